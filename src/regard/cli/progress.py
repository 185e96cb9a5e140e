"""How far a long task is: live in a terminal, a line for each task elsewhere; always on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
