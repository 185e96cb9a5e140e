"""Progress of long tasks on stderr: live in a terminal, one line per task elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.train.events import Finished

STOPPING = "stopping: a checkpoint is saved first, after the validation if one is running; Ctrl-C again exits at once"


@contextmanager
def preparation_progress() -> Iterator[Callable[[str, int], None]]:
    """Yield a function that shows how many sentence pairs a task has processed."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} pairs"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def show(task: str, pairs: int) -> None:
            if task not in tasks:
                tasks[task] = progress.add_task(task, total=None)
                if not console.is_terminal:
                    print(f"regard: {task}", file=sys.stderr)
            progress.update(tasks[task], completed=pairs)

        yield show


def train_with_progress(
    recipe: "Recipe", run: Path, device: str = "auto", *, plain: bool = False, quiet: bool = False
) -> "Finished":
    """Train a recipe, with every event in the log of the run and on stderr.

    Args:
        recipe: What to train.
        run: Folder of the run.
        device: Device to train on.
        plain: Print lines instead of the live view.
        quiet: Show nothing.
    """
    from regard.train.events import Finished, Noticed
    from regard.train.loop import train
    from regard.train.report.log import LogWriter
    from regard.train.report.progress import PlainView, open_view

    view = None if quiet else PlainView() if plain else open_view()

    def on_stop() -> None:
        if view is not None:
            with suppress(RuntimeError):  # a signal handler cannot write while it interrupts a write to stderr
                view.show(Noticed(STOPPING))

    with nullcontext() if quiet else preparation_progress() as show:
        events = train(recipe, run, device, show, on_stop)
        first = next(events)
    with view or nullcontext(), LogWriter(run) as log:
        for event in chain([first], events):
            log.write(event)
            if view is not None:
                view.show(event)
    assert isinstance(event, Finished)
    return event
