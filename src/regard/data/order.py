"""In which order an epoch shows its examples, without a list of them: memory does not grow with the corpus.

A seeded bijection on the numbers below n stands in for a shuffled list: any stretch of the order is computed when it
is asked for, so a run resumes in the middle of an epoch as quickly as at its start.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Words = NDArray[np.uint64]

ROUNDS = 8  # 4 already make neighbours independent; 8 make the orders of as few as five examples about equally likely
# The multipliers of MurmurHash3's 64-bit finaliser (Appleby 2011): odd, and found by search to spread every bit.
_SPREAD = np.uint64(0xFF51AFD7ED558CCD)
_SPREAD_AGAIN = np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(32)


def permute(numbers: Numbers, size: int, key: Sequence[int]) -> Numbers:
    """Where a permutation of `range(size)` drawn by the key sends each of the numbers.

    A Feistel network on pairs of digits: size fits into rows × columns with less than a row to spare; each round adds
    to one digit a hash of the other, which can be undone and so is a bijection. The few that land beyond size are sent
    on until they are within (cycle walking, Black & Rogaway 2002).
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64).astype(np.uint64, copy=False)
    moved = _send(numbers, rows, columns, keys)
    outside = np.flatnonzero(moved >= size)
    while outside.size:
        moved[outside] = _send(moved[outside], rows, columns, keys)
        outside = outside[moved[outside] >= size]
    return moved


def _send(numbers: Numbers, rows: int, columns: int, keys: Words) -> Numbers:
    """One pass through the network, a bijection on the numbers below rows × columns."""
    left, right = (digit.astype(np.uint64) for digit in np.divmod(numbers, columns))
    for even, odd in keys.reshape(-1, 2):
        _turn(left, right, rows, even)
        _turn(right, left, columns, odd)
    return (left * np.uint64(columns) + right).astype(np.int64)


def _turn(digit: Words, other: Words, base: int, key: np.uint64) -> None:
    """Add to a digit, modulo its base and in place, a hash of the other digit."""
    mixed = other ^ key
    mixed *= _SPREAD
    mixed ^= mixed >> _HALF
    mixed *= _SPREAD_AGAIN
    mixed >>= _HALF
    # The high half of a product with the base is a number below it, without a division.
    mixed *= np.uint64(base)
    mixed >>= _HALF
    digit += mixed
    digit -= np.where(digit >= np.uint64(base), np.uint64(base), np.uint64(0))


@dataclass(frozen=True)
class Mixture:
    """Several corpora as one: which example of which corpus stands at each place of an epoch.

    An example of a corpus of weight w appears floor(w) times in every epoch; a subset drawn afresh each epoch, as large
    a part of the corpus as the rest of w says, appears once more.
    """

    sizes: tuple[int, ...]
    """Examples of each corpus."""
    weights: tuple[float, ...]
    """How often each example of a corpus appears in an epoch."""
    seed: int

    def __len__(self) -> int:
        """Places in an epoch."""
        return int(self._ends[-1])

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Places of each corpus in an epoch."""
        parts = zip(self.sizes, self.weights, strict=True)
        return tuple(math.floor(weight) * size + round((weight % 1) * size) for size, weight in parts)

    @cached_property
    def _ends(self) -> Numbers:
        return np.cumsum(self.shares)

    def draw(self, epoch: int, start: int, stop: int) -> tuple[Numbers, Numbers]:
        """For each place of the epoch from `start` up to `stop`: the number of the corpus, and of its example."""
        places = permute(np.arange(start, stop), len(self), (self.seed, epoch, 0))
        corpora = np.searchsorted(self._ends, places, side="right")
        numbers = places - (self._ends - self.shares)[corpora]
        for corpus in range(len(self.sizes)):
            here = np.flatnonzero(corpora == corpus)
            numbers[here] = self._examples(corpus, epoch, numbers[here])
        return corpora, numbers

    def _examples(self, corpus: int, epoch: int, shown: Numbers) -> Numbers:
        """The examples behind the places of one corpus: all of them floor(w) times, and then the epoch's subset."""
        size = self.sizes[corpus]
        extra = shown - math.floor(self.weights[corpus]) * size
        drawn = np.flatnonzero(extra >= 0)
        examples = shown % size
        examples[drawn] = permute(extra[drawn], size, (self.seed, epoch, 1 + corpus))
        return examples
