"""Files read as lines, in blocks, and files written whole or not at all.

What counts as a line is the same everywhere:

- Text is UTF-8, strictly. A byte-order mark at the start of the file is dropped.
- A line ends at `\\n` or `\\r\\n` and nowhere else. A lone `\\r`, a form feed, U+0085, U+2028, NUL and every other
  control character are text like any other; the tokenizer decides what becomes of them.
- The last line may lack its end. An empty file has no lines.
- A file is taken as gzip when its name ends in `.gz` or its first two bytes say so (no UTF-8 text starts like that).
"""

import gzip
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

BLOCK = 1 << 20
LONGEST_LINE = 1 << 26
"""Bytes a line may have; a text file with a longer one is not a text file."""

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


def read_lines(
    path: Path,
    stream: BinaryIO | None = None,
    *,
    block: int = BLOCK,
    broken: Callable[[str], None] | None = None,
) -> Iterator[list[str]]:
    """The lines of a file without their ends, in lists that together span about `block` bytes each.

    Memory holds a block of the file, never the file. Where a `stream` is given, such as standard input, `path` only
    names it. Where `broken` is given, it is told of bytes that are not UTF-8, and they become U+FFFD.
    """
    before = 0
    for data in _whole_lines(path, stream, block):
        try:
            text = _decode(path, data, before)
        except ValueError as error:
            if broken is None:
                raise
            broken(str(error))
            text = data.decode("utf-8", errors="replace")
        lines = text.split("\n")
        lines.pop()
        if b"\r" in data:
            lines = [line.removesuffix("\r") for line in lines]
        before += len(lines)
        yield lines


def _whole_lines(path: Path, stream: BinaryIO | None, block: int) -> Iterator[bytes]:
    """Blocks of bytes that end where a line ends; a missing final newline is added."""
    parts: list[bytes] = []
    held = 0
    for number, data in enumerate(_blocks(path, block) if stream is None else iter(lambda: stream.read(block), b"")):
        fresh = data.removeprefix(_BOM) if number == 0 else data
        end = fresh.rfind(b"\n") + 1
        if end:
            yield b"".join([*parts, fresh[:end]])
            parts, held = [], 0
        parts.append(fresh[end:])
        held += len(fresh) - end
        if held > LONGEST_LINE:
            raise ValueError(
                f"{path} has a line of more than {LONGEST_LINE >> 20} MiB. "
                "Is it a text file, with line ends of \\n or \\r\\n?"
            )
    if held:
        # A final `\r` belongs to a line end only when `\n` follows it, which here it does not.
        rest = b"".join(parts)
        yield rest + (b"\r\n" if rest.endswith(b"\r") else b"\n")


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """The file's bytes, unpacked if they are gzip, in blocks of `size` or a byte-order mark."""
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP or path.name.endswith(".gz")
        raw.seek(0)
        file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
        try:
            while data := file.read(max(size, len(_BOM))):
                yield data
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is not a whole gzip file: {error}. Fetch it again, or see what 'gzip -t' says of it."
            ) from error


def _decode(path: Path, data: bytes, before: int) -> str:
    """The block as text; `before` lines stood in front of it, for the message if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = before + data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        wide = before == 0 and data.startswith((b"\xff\xfe", b"\xfe\xff"))
        name = "UTF-16" if wide else "LATIN1"
        raise ValueError(
            f"{path}, line {line}: byte {column} (0x{data[error.start]:02x}) is not UTF-8 ({error.reason}). "
            f"Convert the file from its own encoding, such as: iconv -f {name} -t UTF-8"
        ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    with writing_whole(path) as scratch:
        scratch.write_bytes(data)


@contextmanager
def writing_whole(path: Path) -> Iterator[Path]:
    """A scratch file to write to, which becomes the file at `path` when the context ends well, and else vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        yield scratch
        settle(scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def settle(path: Path) -> None:
    """Wait until a file's contents, or a folder's names, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
