"""regard: train, inspect and serve attention models.

translator = regard.train("recipes/phrasebook.toml", run="runs/phrasebook")
translator = regard.load("runs/phrasebook")
translator("I can go alone").text
with regard.recording(translator.model, "decoder.*.cross.weights") as recorded: ...
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.drawing import figure
    from regard.nn.tap import recording, replacing
    from regard.notebook import look
    from regard.recipe import load as load_recipe
    from regard.tasks import load
    from regard.train import train

__version__ = "0.1.0"
__all__ = ["__version__", "figure", "load", "load_recipe", "look", "recording", "replacing", "train"]

_MODULES = {
    "figure": ("regard.drawing", "figure"),
    "load": ("regard.tasks", "load"),
    "load_recipe": ("regard.recipe", "load"),
    "look": ("regard.notebook", "look"),
    "recording": ("regard.nn.tap", "recording"),
    "replacing": ("regard.nn.tap", "replacing"),
}


def __getattr__(name: str) -> object:
    """Import what needs torch on first use, so that `import regard` is fast."""
    if name == "train":
        return import_module("regard.train")  # the package itself can be called
    if name not in _MODULES:
        raise AttributeError(f"module 'regard' has no attribute '{name}'")
    module, attribute = _MODULES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Return the public names, which are imported on first use, for editors and `dir(regard)`."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
