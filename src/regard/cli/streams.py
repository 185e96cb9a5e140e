"""Lines as they come in and go out: nothing waits for more than is there, and nothing is lost on the way."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast


class Counter(Protocol):
    """Told how many more lines are done."""

    def __call__(self, lines: int) -> None:
        """So many more."""


class _Eager:
    """A stream that gives what is there instead of waiting until a block is full."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def read(self, size: int) -> bytes:
        data: bytes = self.stream.read1(size)
        return data


def blocks(file: str) -> Iterator[list[str]]:
    """The lines of a file, or for `-` of standard input as they arrive; broken UTF-8 is told of and mended."""
    from regard.files import read_lines

    def tell(complaint: str) -> None:
        print(f"regard: {complaint.partition(' Convert')[0]} They were read as U+FFFD.", file=sys.stderr)

    if file == "-":
        eager = cast(BinaryIO, _Eager(sys.stdin.buffer))
        return read_lines(Path("standard input"), eager, broken=tell)
    return read_lines(existing(file), broken=tell)


def parallel(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Line i of one file with line i of the other, as a stream; files of unequal length are refused at their end."""
    from itertools import chain, zip_longest

    from regard.files import read_lines

    paths = [existing(source), existing(target)]
    sides = (chain.from_iterable(read_lines(path)) for path in paths)
    for number, (one, other) in enumerate(zip_longest(*sides), start=1):
        if one is None or other is None:
            shorter, longer = (source, target) if one is None else (target, source)
            raise ValueError(
                f"{shorter} ends after line {number - 1}, but {longer} goes on; line i of one must translate line i "
                "of the other"
            )
        yield one, other


def existing(file: str) -> Path:
    """The path of a file that is there."""
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(f"{file} is a directory; name a file of lines")
    if not path.exists():
        raise FileNotFoundError(f"{file} does not exist; check the path (relative to {Path.cwd()})")
    return path


def put(line: str) -> None:
    """Print a line to standard output, in UTF-8 whatever the terminal's language is."""
    sys.stdout.buffer.write(line.encode(errors="replace") + b"\n")


@contextmanager
def counting(what: str, quiet: bool = False) -> Iterator[Counter]:
    """A count of lines on stderr while the context lasts: live in a terminal, elsewhere one sentence at the end."""
    from time import monotonic

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    start, done = monotonic(), 0
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task(f"{what} …", total=None)

        def count(lines: int) -> None:
            nonlocal done
            done += lines
            pace = done / max(monotonic() - start, 1e-9)
            progress.update(task, description=f"{what}: {done:,} lines, {pace:,.1f} a second")

        yield count
    seconds = monotonic() - start
    if not quiet:
        pace = f", {done / seconds:,.1f} a second" if done > 1 else ""
        print(f"regard: {what}: {done:,} line{'s' * (done != 1)} in {seconds:.1f} s{pace}", file=sys.stderr)
