"""A text file in, its sentences out, cut where sacrebleu's own command cuts."""

import sys
from itertools import chain
from pathlib import Path

from regard import files


def read_lines(path: str | Path) -> list[str]:
    """All lines of a file, plain or gzip, or of standard input for `-`, without the white space at their ends."""
    file = Path(path)
    if str(path) != "-" and file.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the file of sentences in it")
    if str(path) != "-" and not file.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path (relative to {Path.cwd()})")
    blocks = files.read_lines(Path("standard input"), sys.stdin.buffer) if str(path) == "-" else files.read_lines(file)
    lines = [line.rstrip() for line in chain.from_iterable(blocks)]
    if not lines:
        raise ValueError(f"{path} is empty; it should hold one sentence a line")
    return lines
