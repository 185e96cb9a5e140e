"""A store of documents as blocks of a fixed number of tokens, for language models.

Documents are concatenated, each between `<s>` and `</s>`, and cut into blocks of `block` + 1 ids: the model reads the
first `block` of them and predicts the last `block`. Consecutive blocks start `stride` tokens apart.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from regard.data.rows import Lengths, Numbers, Rows, gather_slices, offsets_of
from regard.data.store import Store
from regard.text import END, START

FIELD = "text"
STARTS = "text.starts"
"""Key of `Blocks.lengths`: how many documents begin after the first id of each block."""


class Blocks:
    """The documents of a store as overlapping or adjacent blocks of tokens."""

    def __init__(self, store: Store, block: int, stride: int | None = None) -> None:
        """View a store as blocks of `block` tokens; the last one may be shorter."""
        self.store, self.block, self.stride = store, block, stride or block
        assert 0 < self.stride <= self.block, "the recipe allows no gaps between blocks"
        self.folder = store.folder
        self.report = store.report
        self.tags: Mapping[str, int] = {}
        # Symbols included, document i occupies the positions _starts[i] to _starts[i + 1] of the stream.
        self._starts = offsets_of(store.fields[FIELD].lengths.astype(np.int64) + 2)
        self._predicted = int(self._starts[-1]) - 1  # every token but the first is predicted
        self._count = max(1, -(-(self._predicted - self.block) // self.stride) + 1)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return self._count

    @cached_property
    def lengths(self) -> dict[str, Numbers]:
        """The number of ids of each block, `block` + 1 but for the last one, and of `<s>` among them, as `STARTS`.

        The first id of a block is not counted in `STARTS`, because it is not predicted.
        """
        begins = self.stride * np.arange(self._count)
        lengths = self._lengths(begins)
        starts = np.searchsorted(self._starts[:-1], begins + lengths) - np.searchsorted(
            self._starts[:-1], begins, side="right"
        )
        return {FIELD: lengths, STARTS: starts}

    @property
    def longest(self) -> dict[str, int]:
        """The number of ids of the longest block."""
        return {FIELD: min(self.block, self._predicted) + 1}

    def tokens(self, name: str) -> int:
        """Return the total number of ids, symbols included."""
        assert name == FIELD
        return int(self._starts[-1])

    def gather(self, indices: Lengths) -> dict[str, Rows]:
        """Return the ids of the blocks with these indices."""
        field = self.store.fields[FIELD]
        chosen: Numbers = np.asarray(indices, np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"there are blocks 0 to {len(self) - 1}, not {chosen.min()} to {chosen.max()}")
        begins = self.stride * chosen
        lengths = self._lengths(begins)
        ends, offsets = begins + lengths, offsets_of(lengths)
        first, last = (np.searchsorted(self._starts, at, side="right") - 1 for at in (begins, ends - 1))
        # The stored ids of a block are one slice: after <s> of its first document, or from its middle on, to the last.
        from_ids = field.offsets[first] + np.maximum(begins - self._starts[first] - 1, 0)
        to_ids = field.offsets[last] + np.minimum(ends - self._starts[last] - 1, field.lengths[last])
        ids = np.empty(offsets[-1], np.int32)
        stored = np.ones(offsets[-1], bool)
        # Every document that reaches into a block has its <s> and its </s> in the block, or one of them, or neither.
        counts = last - first + 1
        documents = np.repeat(first - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
        begin, end, shift = (np.repeat(numbers, counts) for numbers in (begins, ends, offsets[:-1] - begins))
        for symbol, positions in ((START, self._starts[documents]), (END, self._starts[documents + 1] - 1)):
            slots = (positions + shift)[(positions >= begin) & (positions < end)]
            ids[slots], stored[slots] = symbol, False
        ids[stored] = gather_slices(field.ids, from_ids, to_ids - from_ids)[0]
        return {FIELD: Rows(ids, offsets)}

    def text(self, indices: Lengths) -> dict[str, list[str]]:
        """Raise a `ValueError`, because a block of tokens has no text of its own."""
        raise ValueError("a block of tokens has no text of its own; keep documents apart by leaving data.block unset")

    def _lengths(self, begins: Numbers) -> Numbers:
        """Return the number of ids of blocks that begin at these positions of the stream."""
        return np.minimum(self._predicted - begins, self.block) + 1
