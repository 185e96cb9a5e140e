"""The examples of one stretch of an epoch, wherever they are stored.

Comes in: which example of which store. Goes out: their ids, from the stores as they are or, with sampling on, from
their text cut into subwords anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Ids, Rows
from regard.data.order import Numbers

Sides = tuple[Rows, Rows]
"""Source and target."""


class Pairs(Protocol):
    """What is asked of a store of tokenised pairs."""

    @property
    def tag(self) -> int | None:
        """The id every source begins with, if there is one."""

    @property
    def lengths(self) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
        """Ids of each source and of each target."""

    @property
    def longest(self) -> tuple[int, int]:
        """Ids of the longest source and of the longest target."""

    def __len__(self) -> int:
        """How many pairs there are."""

    def gather(self, which: Numbers) -> tuple[Ids, Numbers, Ids, Numbers]:
        """Source ids end to end and their offsets, then those of the target."""

    def text(self, which: Numbers) -> tuple[list[str], list[str]]:
        """Sources and targets as text, without the tag."""


class Sampler(Protocol):
    """What is asked of a tokenizer to cut words differently each time."""

    def sample_batch(
        self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None
    ) -> tuple[Ids, Numbers]:
        """The ids of a random segmentation of each line, the same for the same seed."""


@dataclass(frozen=True)
class Sampling:
    """Subwords sampled anew each time an example is shown (BPE-dropout, subword regularisation)."""

    source: Sampler
    """Tokenizer of the source."""
    target: Sampler
    """Tokenizer of the target."""
    amount: float
    """Chance of dropping a merge, or smoothing of a unigram model."""
    threads: int | None = None
    """Threads to encode with; by default, the number of cores."""
    most: int | None = None
    """Tokens a sequence may get by it, its added symbol included; as many as a batch has, unless told."""

    def __post_init__(self) -> None:
        """Refuse an amount that samples nothing or everything."""
        if not 0 < self.amount < 1:
            raise ValueError(f"the amount of sampling is between 0 and 1, not {self.amount}; leave sampling off for 0")

    def encode(self, store: Pairs, which: Numbers, seeds: Sequence[int]) -> Sides:
        """The chosen pairs of a store, segmented at random by a seed for each side."""
        sources, targets = store.text(which)
        source = Rows(*self.source.sample_batch(sources, self.amount, seeds[0], self.threads))
        target = Rows(*self.target.sample_batch(targets, self.amount, seeds[1], self.threads))
        return (source if store.tag is None else source.prepend(store.tag)), target


@dataclass(frozen=True, eq=False)
class Pool:
    """Examples by store and number, and their ids where these are known already."""

    stores: Sequence[Pairs]
    which: tuple[Numbers, Numbers]
    """The number of each example's store, and the example's own number in it."""
    sampled: Sides | None = None

    @classmethod
    def sample(
        cls,
        stores: Sequence[Pairs],
        which: tuple[Numbers, Numbers],
        sampling: Sampling,
        most: int,
        seeds: Sequence[Sequence[int]],
    ) -> "Pool":
        """A pool with its text cut anew; a pair that gets more than `most` tokens with a symbol keeps its usual cut."""
        found = _from_each(stores, which, lambda number, mine: sampling.encode(stores[number], mine, seeds[number]))
        too_long = np.flatnonzero((found[0].lengths >= most) | (found[1].lengths >= most))
        if too_long.size:
            usual = _from_each(stores, (which[0][too_long], which[1][too_long]), _gather_from(stores))
            places = np.arange(which[0].size)
            places[too_long] = places.size + np.arange(too_long.size)
            found = (Rows.join((found[0], usual[0])).take(places), Rows.join((found[1], usual[1])).take(places))
        return cls(stores, which, found)

    def lengths(self) -> tuple[Numbers, Numbers]:
        """Ids of each source and of each target."""
        if self.sampled is not None:
            return self.sampled[0].lengths, self.sampled[1].lengths
        found = np.empty((2, self.which[0].size), np.int64)
        for number, store in enumerate(self.stores):
            here = np.flatnonzero(self.which[0] == number)
            for side in range(2):
                found[side, here] = store.lengths[side][self.which[1][here]]
        return found[0], found[1]

    def take(self, places: Numbers) -> tuple[Rows, Rows, Numbers]:
        """Sources, targets and numbers of the examples at these places, in this order.

        Examples are numbered through all stores, one after the other.
        """
        chosen = self.which[0][places], self.which[1][places]
        bases = np.cumsum([0, *map(len, self.stores)])[:-1]
        numbers = bases[chosen[0]] + chosen[1]
        if self.sampled is not None:
            return self.sampled[0].take(places), self.sampled[1].take(places), numbers
        return *_from_each(self.stores, chosen, _gather_from(self.stores)), numbers


def _gather_from(stores: Sequence[Pairs]) -> Callable[[int, Numbers], Sides]:
    """The ids as a store holds them."""

    def gather(number: int, which: Numbers) -> Sides:
        source_ids, source_offsets, target_ids, target_offsets = stores[number].gather(which)
        return Rows(source_ids, source_offsets), Rows(target_ids, target_offsets)

    return gather


def _from_each(stores: Sequence[Pairs], which: tuple[Numbers, Numbers], load: Callable[[int, Numbers], Sides]) -> Sides:
    """Load each store's examples at once, then put all into the order asked for."""
    if len(stores) == 1:
        return load(0, which[1])
    places = [np.flatnonzero(which[0] == number) for number in range(len(stores))]
    parts = [load(number, which[1][mine]) for number, mine in enumerate(places) if mine.size]
    back = np.argsort(np.concatenate(places))
    return Rows.join([source for source, _ in parts]).take(back), Rows.join([target for _, target in parts]).take(back)
