"""Find duplicate records of a corpus, with memory that does not grow with the corpus.

A 64-bit hash of each record is written to a scratch file. The hashes are then compared in parts, by their highest bits,
each part small enough to sort in memory. Only hashes are compared: among 100 million distinct records the probability
that any record is wrongly taken for a duplicate is about 1 in 4,000.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Chunk

PART = 1 << 22
"""Number of hashes sorted at a time."""


def find_duplicates(
    chunks: Iterable[Chunk], scratch: Path, *, tick: Callable[[], None], part: int = PART
) -> NDArray[np.bool_]:
    """Return for each record, in order, whether all its values equal those of an earlier record.

    Args:
        chunks: The records.
        scratch: A file to write hashes to; it is removed afterwards.
        tick: Called after each chunk.
        part: Number of hashes sorted at a time.
    """
    count = 0
    try:
        with scratch.open("wb") as file:
            for chunk in chunks:
                # Python's string hash differs between processes; the scratch file never leaves this one.
                hashes = map(hash, zip(*chunk.columns.values(), strict=True))
                file.write(np.fromiter(hashes, np.int64, len(chunk)).data)
                count += len(chunk)
                tick()
        repeated = np.zeros(count, np.bool_)
        bits = max(count // part, 0).bit_length()
        for high in range(1 << bits):
            part_hashes, indices = _part(scratch, high, bits, part)
            order = np.argsort(part_hashes, kind="stable")
            ordered = part_hashes[order]
            repeated[indices[order[1:]][ordered[1:] == ordered[:-1]]] = True
    finally:
        scratch.unlink(missing_ok=True)
    return repeated


def _part(scratch: Path, high: int, bits: int, block: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes whose first `bits` bits are `high`, and their record numbers, in order."""
    hashes, indices = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    start = 0
    for block_hashes in _blocks(scratch, block):
        if bits:
            selected = np.flatnonzero(block_hashes >> np.uint64(64 - bits) == high)
            hashes.append(block_hashes[selected])
            indices.append(selected + start)
        else:
            hashes.append(block_hashes)
            indices.append(np.arange(start, start + len(block_hashes)))
        start += len(block_hashes)
    return np.concatenate(hashes), np.concatenate(indices)


def _blocks(scratch: Path, block: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the hashes of the file, `block` at a time."""
    with scratch.open("rb") as file:
        while len(hashes := np.fromfile(file, np.uint64, block)):
            yield hashes
