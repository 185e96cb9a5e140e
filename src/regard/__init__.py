"""regard: attention you can train, see and ship.

translator = regard.load("runs/phrasebook")
translator("I can go alone").text
with regard.recording(translator.model, "decoder.*.cross.weights") as seen: ...
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.drawing import figure
    from regard.nn.tap import recording, replacing
    from regard.notebook import look
    from regard.translator import load

__version__ = "0.1.0"
__all__ = ["__version__", "figure", "load", "look", "recording", "replacing"]


def __getattr__(name: str) -> object:
    """What needs torch is imported when it is asked for, so that `import regard` takes no time."""
    if name == "load":
        from regard.translator import load

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
