"""How far a long task is: live in a terminal, a line for each task elsewhere; always on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.train.events import Finished

STOPPING = "stopping: what was learnt is saved first, after a validation if one goes on; Ctrl-C again would not wait"


@contextmanager
def watching() -> Iterator[Callable[[str, int], None]]:
    """A function that shows how many pairs a task has dealt with, while the context lasts."""
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


def follow_training(
    recipe: "Recipe", run: Path, device: str = "auto", *, plain: bool = False, quiet: bool = False
) -> "Finished":
    """Train with everything kept in the run's log, and shown: live, as lines if `plain`, not at all if `quiet`."""
    from regard.train.events import Finished, Noticed
    from regard.train.journal import Journal
    from regard.train.loop import train
    from regard.train.view import PlainView, open_view

    view = None if quiet else PlainView() if plain else open_view()

    def asked() -> None:
        if view is not None:
            with suppress(RuntimeError):  # a signal that comes within a line being written cannot write another
                view.show(Noticed(STOPPING))

    with nullcontext() if quiet else watching() as watch:
        events = train(recipe, run, device, watch, asked)
        first = next(events)
    with view or nullcontext(), Journal(run) as journal:
        for event in chain([first], events):
            journal.write(event)
            if view is not None:
                view.show(event)
    assert isinstance(event, Finished)
    return event
