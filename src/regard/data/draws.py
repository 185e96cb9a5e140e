"""Random numbers that depend on a key, the number of an example and a position in it, and on nothing else.

So they depend neither on the batch that an example is in nor on earlier batches, and a resumed run repeats them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.rows import Numbers

UInt64s = NDArray[np.uint64]
# The multipliers of MurmurHash3's 64-bit finaliser (Appleby 2011), and the fraction of the golden ratio.
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(33)


def random_bits(seed: np.uint64, numbers: Numbers, positions: Numbers) -> UInt64s:
    """Return 64 random bits for each pair of an example and a position."""
    mixed = _mix(numbers.astype(np.uint64) * _GOLDEN + seed)
    return _mix(mixed + positions.astype(np.uint64) * _GOLDEN)


def uniform(key: Sequence[int], numbers: Numbers, count: int) -> NDArray[np.float64]:
    """Return `count` numbers from 0 up to 1 for each example, of the shape (examples, count)."""
    (seed,) = np.random.SeedSequence(tuple(key)).generate_state(1, np.uint64)
    bits = random_bits(seed, np.repeat(numbers, count), np.tile(np.arange(count), len(numbers)))
    return (bits >> np.uint64(11)).reshape(len(numbers), count) / 2.0**53


def _mix(values: UInt64s) -> UInt64s:
    """Mix all bits of each value: MurmurHash3's finaliser."""
    values = (values ^ (values >> _SHIFT)) * _FIRST
    values = (values ^ (values >> _SHIFT)) * _SECOND
    return values ^ (values >> _SHIFT)
