"""The examples of one part of an epoch, gathered from several stores.

Ids come from the stores, or with subword sampling from their text, segmented at random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from regard.data.batch import Collator
from regard.data.rows import Ids, Numbers, Rows
from regard.data.store import Records

Load = Callable[[int, Numbers], dict[str, Rows]]
"""Loads the examples with these indices from the store with this number."""


class SegmentationSampler(Protocol):
    """A tokenizer that can segment words at random."""

    def sample_batch(
        self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None
    ) -> tuple[Ids, Numbers]:
        """Return ids and offsets of a random segmentation of each line; equal seeds give equal ids."""


@dataclass(frozen=True)
class SubwordSampling:
    """Subwords sampled each time an example is shown: BPE dropout or subword regularisation."""

    samplers: Mapping[str, SegmentationSampler]
    """The tokenizer of each text field."""
    amount: float
    """Probability of dropping a merge, or smoothing of a unigram model."""
    threads: int | None = None
    """Threads to encode with; default: one per core."""
    max_tokens: int | None = None
    """Maximum number of tokens of a sampled sequence, symbols included; default: the budget of a batch."""

    def __post_init__(self) -> None:
        """Check the amount."""
        if not 0 < self.amount < 1:
            raise ValueError(f"the amount of sampling is between 0 and 1, not {self.amount}; switch it off with 0")

    def encode(self, store: Records, indices: Numbers, seeds: Sequence[int]) -> dict[str, Rows]:
        """Encode the texts of examples of a store with random segmentation, one seed for each text field."""
        texts = store.text(indices)
        encoded = {}
        for (name, sampler), seed in zip(self.samplers.items(), seeds, strict=True):
            rows = Rows(*sampler.sample_batch(texts[name], self.amount, seed, self.threads))
            encoded[name] = rows.prepend(store.tags[name]) if name in store.tags else rows
        return encoded


@dataclass(frozen=True, eq=False)
class ExamplePool:
    """Examples given by store and index, with their ids if those are sampled."""

    stores: Sequence[Records]
    indices: tuple[Numbers, Numbers]
    """The number of each example's store, and the index of the example in it."""
    sampled: dict[str, Rows] | None = None
    """The sampled ids of all examples, by field. Other fields, such as pictures, are gathered for each batch."""

    @classmethod
    def sample(
        cls,
        stores: Sequence[Records],
        indices: tuple[Numbers, Numbers],
        sampling: SubwordSampling,
        collator: Collator,
        max_tokens: int,
        seeds: Sequence[Sequence[int]],
    ) -> "ExamplePool":
        """Sample a segmentation of all examples; one that exceeds `max_tokens` tokens keeps its stored segmentation."""
        sampled = _from_each(
            stores, indices, lambda number, chosen: sampling.encode(stores[number], chosen, seeds[number])
        )
        counts = collator.sequence_lengths(cls(stores, indices, sampled).lengths())
        too_long = np.flatnonzero(np.logical_or.reduce([count > max_tokens for count in counts]))
        if too_long.size:
            stored = _from_each(stores, (indices[0][too_long], indices[1][too_long]), _gather_from(stores))
            order = np.arange(indices[0].size)
            order[too_long] = order.size + np.arange(too_long.size)
            sampled = {name: Rows.concatenate((rows, stored[name])).take(order) for name, rows in sampled.items()}
        return cls(stores, indices, sampled)

    def lengths(self) -> dict[str, Numbers]:
        """Return for each field the number of ids of each example."""
        sampled = self.sampled or {}
        stored = self.stores[0].lengths.keys() - sampled.keys()
        lengths = {name: np.empty(self.indices[0].size, np.int64) for name in stored}
        for number, store in enumerate(self.stores):
            positions = np.flatnonzero(self.indices[0] == number)
            for name in stored:
                lengths[name][positions] = store.lengths[name][self.indices[1][positions]]
        return lengths | {name: rows.lengths for name, rows in sampled.items()}

    def take(self, examples: Numbers) -> tuple[dict[str, Rows], Numbers]:
        """Return the ids, by field, of some examples of the pool, and their numbers.

        Examples are numbered consecutively through all stores.
        """
        chosen = self.indices[0][examples], self.indices[1][examples]
        bases = np.cumsum([0, *map(len, self.stores)])[:-1]
        numbers = bases[chosen[0]] + chosen[1]
        sampled = {name: rows.take(examples) for name, rows in (self.sampled or {}).items()}
        if self.stores[0].lengths.keys() <= sampled.keys():
            return sampled, numbers
        return _from_each(self.stores, chosen, _gather_from(self.stores)) | sampled, numbers


def _gather_from(stores: Sequence[Records]) -> Load:
    """Return a function that gathers stored ids."""
    return lambda number, indices: stores[number].gather(indices)


def _from_each(stores: Sequence[Records], indices: tuple[Numbers, Numbers], load: Load) -> dict[str, Rows]:
    """Load the examples of each store together, then put all into the requested order."""
    if len(stores) == 1:
        return load(0, indices[1])
    positions = [np.flatnonzero(indices[0] == number) for number in range(len(stores))]
    parts = [load(number, indices[1][chosen]) for number, chosen in enumerate(positions) if chosen.size]
    order = np.argsort(np.concatenate(positions))
    return {name: Rows.concatenate([part[name] for part in parts]).take(order) for name in parts[0]}
