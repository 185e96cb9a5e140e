"""Read files as lines, block by block, write files atomically, and compute checksums of their contents.

All text files are read by the same rules:

- Text is strict UTF-8. A byte-order mark at the start of the file is dropped.
- A line ends at `\\n` or `\\r\\n` only. A lone `\\r`, a form feed, U+0085, U+2028, NUL and all other control characters
  are part of the text; the tokenizer decides what becomes of them.
- The last line may lack its line end. An empty file has no lines.
- A file is gzip if its name ends in `.gz` or its first two bytes are those of gzip, with which no UTF-8 text begins.
"""

import gzip
import hashlib
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

BLOCK = 1 << 20
LONGEST_LINE = 1 << 26
"""Maximal bytes of a line; a file with a longer line is not a text file."""

CHECKSUM_BLOCK = 1 << 22
"""Bytes of a file whose CRC is computed at a time; part of the definition of `checksum`."""

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


def read_lines(
    path: Path,
    stream: BinaryIO | None = None,
    *,
    block: int = BLOCK,
    on_invalid: Callable[[str], None] | None = None,
) -> Iterator[list[str]]:
    """Yield the lines of a file without their ends, in lists of about `block` bytes.

    Memory holds one block of the file at a time.

    Args:
        path: The file to read, or the name of `stream` in messages.
        stream: An open stream to read instead, such as standard input.
        block: Bytes to read at a time.
        on_invalid: Called with a message about bytes that are not UTF-8, which then become U+FFFD. By default they
            raise an error.

    Raises:
        ValueError: If the file is not UTF-8, not a complete gzip file, or has a line longer than `LONGEST_LINE`.
    """
    before = 0
    for data in _whole_lines(path, stream, block):
        try:
            text = _decode(path, data, before)
        except ValueError as error:
            if on_invalid is None:
                raise
            on_invalid(str(error))
            text = data.decode("utf-8", errors="replace")
        lines = text.split("\n")
        lines.pop()
        if b"\r" in data:
            lines = [line.removesuffix("\r") for line in lines]
        before += len(lines)
        yield lines


def read_text(path: Path) -> str:
    """Return the whole text of a file, with `\\n` for each line end."""
    data = b"".join(_blocks(path, BLOCK)).removeprefix(_BOM)
    return _decode(path, data, 0).replace("\r\n", "\n")


def _whole_lines(path: Path, stream: BinaryIO | None, block: int) -> Iterator[bytes]:
    """Yield blocks of bytes that end at a line end; a missing final line end is added."""
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
                f"{path} has a line of more than {LONGEST_LINE >> 20} MiB; "
                "check that it is a text file with line ends \\n or \\r\\n"
            )
    if held:
        # A final `\r` is part of a line end only before `\n`. Here it is text, which "\r\n" protects from being cut.
        rest = b"".join(parts)
        yield rest + (b"\r\n" if rest.endswith(b"\r") else b"\n")


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed if it is gzip, in blocks long enough for a byte-order mark."""
    with path.open("rb") as raw:
        compressed = raw.read(2) == _GZIP or path.name.endswith(".gz")
        raw.seek(0)
        file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if compressed else raw
        try:
            while data := file.read(max(size, len(_BOM))):
                yield data
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is not a complete gzip file: {error}. Download it again, or check it with 'gzip -t'."
            ) from error


def _decode(path: Path, data: bytes, before: int) -> str:
    """Decode a block as UTF-8; an error names the line, given the number of lines `before` the block."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = before + data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        utf16 = before == 0 and data.startswith((b"\xff\xfe", b"\xfe\xff"))
        encoding = "UTF-16" if utf16 else "LATIN1"
        raise ValueError(
            f"{path}, line {line}: byte {column} (0x{data[error.start]:02x}) is not UTF-8 ({error.reason}). "
            f"Convert the file from its own encoding, such as: iconv -f {encoding} -t UTF-8"
        ) from error


def find_inside(folder: Path, name: str) -> Path:
    """Return the resolved path of a regular file in a folder from an untrusted source.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is a pipe, a device or a folder, or a link that leads out of the folder.
    """
    path = folder / name
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder.resolve()):
        raise ValueError(f"{path} leads out of {folder}, to {real}; copy the file into the folder")
    mode = real.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "pipe, socket or device"
        raise ValueError(f"{path} is a {kind}, not a regular file; replace it by a copy of the original")
    return real


def read_inside(folder: Path, name: str, limit: int) -> bytes:
    """Return the contents of a regular file in a folder from an untrusted source.

    Args:
        folder: The folder; a link may not lead out of it.
        name: Path of the file in the folder.
        limit: Maximal number of bytes. A longer file is an error, which is found before it is read.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a regular file inside the folder, or too long.
    """
    # Between the check and this call the file may become a pipe, which O_NONBLOCK opens without waiting for a writer.
    descriptor = os.open(find_inside(folder, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1) if os.fstat(descriptor).st_size <= limit else None
    if data is None or len(data) > limit:
        raise ValueError(f"{folder / name} has more than {limit:,} bytes, so it is not what its name says; replace it")
    return data


def checksum(path: Path, start: int = 0) -> str:
    """Return a checksum of a file from the byte `start` on, computed on all cores.

    It is the SHA-256 of the CRC-32 of all blocks of 4 MiB. It finds damage, but is no protection from forgery.
    """
    with path.open("rb") as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size

        def block_crc(offset: int) -> int:
            # A short read leaves the rest of the block out: then the file was truncated under way.
            return zlib.crc32(os.pread(descriptor, CHECKSUM_BLOCK, offset))

        offsets = range(start, size, CHECKSUM_BLOCK)
        if len(offsets) <= 1:
            return _digest(map(block_crc, offsets))
        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="checksum") as pool:
            return _digest(pool.map(block_crc, offsets))


def checksum_of(data: memoryview) -> str:
    """Return the `checksum` of a file with these contents."""
    return _digest(zlib.crc32(data[start : start + CHECKSUM_BLOCK]) for start in range(0, len(data), CHECKSUM_BLOCK))


def _digest(crcs: Iterable[int]) -> str:
    return hashlib.sha256(b"".join(crc.to_bytes(4, "little") for crc in crcs)).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    with atomic_write(path) as scratch:
        scratch.write_bytes(data)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a scratch file that replaces `path` when the context ends, or is deleted if it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        yield scratch
        fsync_path(scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def fsync_path(path: Path) -> None:
    """Wait until a file's contents, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_and_checksum(file: Path) -> list[int]:
    """Return the size and the CRC-32 of a file, as the metadata of a checkpoint states them."""
    size = value = 0
    with file.open("rb") as stream:
        while block := stream.read(CHECKSUM_BLOCK):
            size, value = size + len(block), zlib.crc32(block, value)
    return [size, value]
