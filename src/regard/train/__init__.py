"""Training: the loop, the update of the weights, checkpoints, distributed training, and reports of a run.

The package can be called: `regard.train(recipe, run)` trains a model and returns it, as the function `train` here does.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.train.events import Event


def train(
    recipe: "Recipe | str | Path",
    run: str | Path | None = None,
    overrides: Iterable[str] = (),
    *,
    device: str = "auto",
    on_event: "Callable[[Event], None] | None" = None,
) -> Any:
    """Train the model of a recipe, or resume its training, and return what `regard.load` returns for the run.

    Args:
        recipe: A recipe, or the path of a TOML file.
        run: Folder of the run. Default: `runs/` and the name of the recipe.
        overrides: Settings of the file to change, such as `train.steps=500`.
        device: `cpu`, `cuda`, `cuda:1`, …, or `auto`: a GPU if there is one.
        on_event: Called with each event of the training, such as `regard.train.events.Validated`.

    Raises:
        KeyboardInterrupt: If Ctrl-C stopped the training, after a checkpoint was saved; the same call resumes it.
    """
    from regard.recipe import Recipe, load
    from regard.tasks import load as load_run
    from regard.train.events import Finished
    from regard.train.loop import train as train_events

    if isinstance(recipe, Recipe):
        if overrides := list(overrides):
            raise ValueError(f"overrides apply to the file of a recipe: pass them to load_recipe; found {overrides}")
    else:
        recipe = load(recipe, overrides)
    folder = Path(run) if run is not None else Path("runs", recipe.name)
    for event in train_events(recipe, folder, device):
        if on_event is not None:
            on_event(event)
        if isinstance(event, Finished) and event.reason == "stopped":
            raise KeyboardInterrupt
    return load_run(folder, device)


class _CallableModule(ModuleType):
    """Makes this package callable: after `import regard.train.loop`, `regard.train` is the package and no function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call `train`."""
        return train(*args, **options)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(train)


sys.modules[__name__].__class__ = _CallableModule
