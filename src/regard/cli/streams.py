"""Read and print lines as streams, and count them on stderr."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast


def replace_closed_streams() -> None:
    """Replace standard streams that were closed when the process started, which Python sets to None.

    Reading and writing them raises an `OSError` with a message. What would go to a closed stderr is discarded. Their
    file descriptors are opened, so that no other file gets them.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
        if name == "stdin":
            sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedStream("standard input is closed; redirect a file")))
        elif name == "stdout":
            closed = _ClosedStream("standard output is closed; redirect it to a file, or to /dev/null")
            sys.stdout = io.TextIOWrapper(cast(BinaryIO, closed), encoding="utf-8", write_through=True)
        else:
            sys.stderr = io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), encoding="utf-8")


class _ClosedStream(io.RawIOBase):
    """A stream that cannot be read or written."""

    def __init__(self, message: str) -> None:
        self.message = message

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(self.message)

    def write(self, data: object) -> int:
        raise OSError(self.message)


class _UnbufferedReader:
    """A stream whose `read` returns the bytes that have arrived, instead of waiting for a full block."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def read(self, size: int) -> bytes:
        data: bytes = self.stream.read1(size)
        return data


def read_blocks(file: str) -> Iterator[list[str]]:
    """Yield the lines of a file in blocks; `-` is standard input, whose lines are yielded as they arrive.

    Invalid UTF-8 becomes U+FFFD, with a warning.
    """
    from regard.files import read_lines

    def warn(message: str) -> None:
        print(f"regard: {message.partition(' Convert')[0]} They were read as U+FFFD.", file=sys.stderr)

    if file == "-":
        stream = cast(BinaryIO, _UnbufferedReader(sys.stdin.buffer))
        return read_lines(Path("standard input"), stream, on_invalid=warn)
    return read_lines(existing_file(file), on_invalid=warn)


def read_parallel(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield line i of one file with line i of the other; raise a ValueError at the end of the shorter one."""
    from itertools import chain, zip_longest

    from regard.files import read_lines

    paths = [existing_file(source), existing_file(target)]
    sides = (chain.from_iterable(read_lines(path)) for path in paths)
    for number, (source_line, target_line) in enumerate(zip_longest(*sides), start=1):
        if source_line is None or target_line is None:
            shorter, longer = (source, target) if source_line is None else (target, source)
            raise ValueError(
                f"{shorter} has {number - 1} lines, but {longer} has more; line i of one file must be the translation "
                "of line i of the other"
            )
        yield source_line, target_line


def existing_file(file: str) -> Path:
    """Return the path of a file; raise an `OSError` if it does not exist or is a directory."""
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(f"{file} is a directory; give the path of a text file")
    if not path.exists():
        raise FileNotFoundError(f"{file} does not exist; check the path (relative to {Path.cwd()})")
    return path


def print_line(line: str) -> None:
    """Print a line to standard output, in UTF-8 whatever the locale is."""
    sys.stdout.buffer.write(line.encode(errors="replace") + b"\n")


@contextmanager
def line_counter(action: str, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts finished lines, and show the count on stderr.

    The count is live in a terminal; elsewhere one sentence is printed at the end.
    """
    from time import monotonic

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    start, done = monotonic(), 0
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task(f"{action} …", total=None)

        def count(lines: int) -> None:
            nonlocal done
            done += lines
            speed = done / max(monotonic() - start, 1e-9)
            progress.update(task, description=f"{action}: {done:,} lines, {speed:,.1f} per second")

        yield count
    seconds = monotonic() - start
    if not quiet:
        speed = f", {done / seconds:,.1f} per second" if done > 1 else ""
        print(f"regard: {action}: {done:,} line{'s' * (done != 1)} in {seconds:.1f} s{speed}", file=sys.stderr)
