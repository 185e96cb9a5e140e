"""regard: train, inspect and serve attention models.

translator = regard.load("runs/phrasebook")
translator("I can go alone").text
with regard.recording(translator.model, "decoder.*.cross.weights") as recorded: ...
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.drawing import figure
    from regard.nn.tap import recording, replacing
    from regard.notebook import look
    from regard.tasks import load

__version__ = "0.1.0"
__all__ = ["__version__", "figure", "load", "look", "recording", "replacing"]


def __getattr__(name: str) -> object:
    """Import what needs torch on first use, so that `import regard` is fast."""
    if name == "load":
        from regard.tasks import load

        return load
    if name == "figure":
        from regard.drawing import figure

        return figure
    if name == "look":
        from regard.notebook import look

        return look
    if name in ("recording", "replacing"):
        from regard.nn import tap

        return {"recording": tap.recording, "replacing": tap.replacing}[name]
    raise AttributeError(f"module 'regard' has no attribute '{name}'")
