"""A text file in, its lines out: plain or gzip, UTF-8, cut where sacrebleu's own command cuts."""

import gzip
import sys
import zlib
from pathlib import Path


def read_lines(path: str | Path) -> list[str]:
    """All lines of a file, or of standard input for `-`, without the white space at their ends.

    Only a newline ends a line, so that a lone carriage return or U+2028 inside a sentence does not make two of it. A
    byte order mark at the start is no part of the text and is dropped.
    """
    text = _decoded(_bytes(path), path)
    if not text:
        raise ValueError(f"{path} is empty; it should hold one sentence a line")
    return [line.rstrip() for line in text.removesuffix("\n").split("\n")]


def _bytes(path: str | Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the file of sentences in it")
    if not file.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path (relative to {Path.cwd()})")
    if file.suffix != ".gz":
        return file.read_bytes()
    try:
        with gzip.open(file) as stream:
            return stream.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be unpacked ({error}); make the .gz file again, or drop the ending if it is plain text"
        ) from error


def _decoded(data: bytes, path: str | Path) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is no UTF-8 ({error.reason}); "
            "convert the file first, for instance with iconv -f latin1 -t utf-8"
        ) from error
