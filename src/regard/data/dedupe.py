"""Which pairs of a corpus have been seen before in it, with memory that does not grow with the corpus.

Each pair leaves a 64-bit hash in a scratch file. The hashes are then looked at in parts, by their highest bits, each
part small enough to sort in memory. Only the hashes are compared: among 100 million distinct pairs the chance that any
one is wrongly taken for a duplicate is about 1 in 4,000.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Chunk

PART = 1 << 22
"""Hashes sorted at once."""


def find_duplicates(
    chunks: Iterable[Chunk], scratch: Path, *, tick: Callable[[], None], part: int = PART
) -> NDArray[np.bool_]:
    """For each pair, in order, whether an earlier one has the same source and target; a byte a pair.

    `scratch` is a file to write and remove; `tick` is called after each chunk.
    """
    count = 0
    try:
        with scratch.open("wb") as file:
            for chunk in chunks:
                # Python's own hash is keyed anew in each process, which is all the use the file is put to.
                pairs = map(hash, zip(chunk.source, chunk.target, strict=True))
                file.write(np.fromiter(pairs, np.int64, len(chunk)).data)
                count += len(chunk)
                tick()
        repeated = np.zeros(count, np.bool_)
        bits = max(count // part, 0).bit_length()
        for high in range(1 << bits):
            hashes, places = _part(scratch, high, bits, part)
            order = np.argsort(hashes, kind="stable")
            ordered = hashes[order]
            repeated[places[order[1:]][ordered[1:] == ordered[:-1]]] = True
    finally:
        scratch.unlink(missing_ok=True)
    return repeated


def _part(scratch: Path, high: int, bits: int, block: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The hashes whose first `bits` bits are `high`, and their places in the corpus, in order."""
    hashes, places = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    start = 0
    for all_hashes in _blocks(scratch, block):
        if bits:
            found = np.flatnonzero(all_hashes >> np.uint64(64 - bits) == high)
            hashes.append(all_hashes[found])
            places.append(found + start)
        else:
            hashes.append(all_hashes)
            places.append(np.arange(start, start + len(all_hashes)))
        start += len(all_hashes)
    return np.concatenate(hashes), np.concatenate(places)


def _blocks(scratch: Path, block: int) -> Iterator[NDArray[np.uint64]]:
    """The hashes of the file, `block` at a time."""
    with scratch.open("rb") as file:
        while len(hashes := np.fromfile(file, np.uint64, block)):
            yield hashes
