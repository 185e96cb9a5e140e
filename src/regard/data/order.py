"""The order in which an epoch shows its examples, computed without a shuffled list.

A seeded bijection on the numbers below n replaces the list. Any part of the order is computed when it is needed, so
memory does not grow with the corpus, and a run resumes in the middle of an epoch as quickly as at its start.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.data.rows import Numbers

_UInt64s = NDArray[np.uint64]

ROUNDS = 8  # 4 make neighbours independent; 8 make all orders of as few as five examples about equally likely
# The multipliers of MurmurHash3's 64-bit finaliser (Appleby 2011): odd, and found by search to mix every bit.
_MULTIPLIERS = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(32)


def permute(numbers: Numbers, size: int, key: Sequence[int]) -> Numbers:
    """Return the image of each number under the permutation of `range(size)` that the key selects.

    The permutation is a Feistel network on pairs of digits, row and column in a nearly square grid with at least `size`
    cells and fewer than `rows` to spare. Each round adds a hash of one digit to the other, modulo its base, which can
    be undone and so is a bijection on the grid. Numbers sent to `size` or beyond are sent through the network again
    until they are below it (cycle walking, Black & Rogaway 2002).
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64).astype(np.uint64, copy=False)
    images = _feistel_network(numbers, rows, columns, keys)
    outside = np.flatnonzero(images >= size)
    while outside.size:
        images[outside] = _feistel_network(images[outside], rows, columns, keys)
        outside = outside[images[outside] >= size]
    return images


def _feistel_network(numbers: Numbers, rows: int, columns: int, keys: _UInt64s) -> Numbers:
    """Apply all rounds: a bijection on the numbers below rows × columns."""
    row, column = (digit.astype(np.uint64) for digit in np.divmod(numbers, columns))
    for even, odd in keys.reshape(-1, 2):
        _feistel_round(row, column, rows, even)
        _feistel_round(column, row, columns, odd)
    return (row * np.uint64(columns) + column).astype(np.int64)


def _feistel_round(digit: _UInt64s, other: _UInt64s, base: int, key: np.uint64) -> None:
    """Add a hash of the other digit to a digit, modulo its base and in place."""
    mixed = other ^ key
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIERS[1]
    mixed >>= _HALF
    # `mixed` has 32 bits now, so the high half of its product with the base is below the base: no division is needed.
    mixed *= np.uint64(base)
    mixed >>= _HALF
    digit += mixed
    digit -= np.where(digit >= np.uint64(base), np.uint64(base), np.uint64(0))


@dataclass(frozen=True)
class Mixture:
    """Several corpora mixed by weight: which example of which corpus is at each position of an epoch.

    Each example of a corpus of weight w appears floor(w) times in every epoch. A random subset of the corpus, of the
    fraction w - floor(w) and different in each epoch, appears once more.
    """

    sizes: tuple[int, ...]
    """Number of examples of each corpus."""
    weights: tuple[float, ...]
    """How often each example of a corpus appears in an epoch."""
    seed: int
    """Random seed."""

    def __len__(self) -> int:
        """Return the number of positions of an epoch."""
        return int(self._ends[-1])

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """The number of positions of each corpus in an epoch."""
        parts = zip(self.sizes, self.weights, strict=True)
        return tuple(math.floor(weight) * size + round((weight % 1) * size) for size, weight in parts)

    @cached_property
    def _ends(self) -> Numbers:
        return np.cumsum(self.shares)

    def draw(self, epoch: int, start: int, stop: int) -> tuple[Numbers, Numbers]:
        """Return the number of the corpus, and of the example in it, for positions `start` to `stop` of an epoch."""
        slots = permute(np.arange(start, stop), len(self), (self.seed, epoch, 0))
        corpora = np.searchsorted(self._ends, slots, side="right")
        numbers = slots - (self._ends - self.shares)[corpora]
        for corpus in range(len(self.sizes)):
            positions = np.flatnonzero(corpora == corpus)
            numbers[positions] = self._examples(corpus, epoch, numbers[positions])
        return corpora, numbers

    def _examples(self, corpus: int, epoch: int, slots: Numbers) -> Numbers:
        """Return the examples in these slots of a corpus: all of them floor(w) times, then the subset of the epoch."""
        size = self.sizes[corpus]
        extra = slots - math.floor(self.weights[corpus]) * size
        in_subset = np.flatnonzero(extra >= 0)
        examples = slots % size
        examples[in_subset] = permute(extra[in_subset], size, (self.seed, epoch, 1 + corpus))
        return examples
