"""Batches as the device takes them.

For CUDA page-locked and, where the model is compiled, all of one size. For a CPU in a part for each hand, with numbers
of tokens that come again and again.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from regard.data.ahead import Ahead
from regard.data.batching import Feed, Position
from regard.data.example import Batch
from regard.nn.capacity import PIECE, filled
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import Ragged
from regard.text import PAD

_AHEAD = 4  # steps filled and pinned before they are asked for
_BLOCK = 128  # sizes of which kernels are fond
BLOCK = 64  # of which a CPU's batches in half precision are made: few numbers of tokens, and hardly any filling


class Load(NamedTuple):
    """A batch, and how many target tokens of it are to be predicted."""

    batch: Batch
    tokens: int


class Loads(NamedTuple):
    """What this process learns from in one step, and where the stream stands after it."""

    after: Position
    loads: Sequence[Load]


@dataclass(frozen=True)
class Shape:
    """The one size to which all batches are filled."""

    tokens: int
    """Of either side."""
    sequences: int
    longest: int
    """Tokens a sequence may have."""

    @classmethod
    def of(cls, feed: Feed) -> "Shape":
        """Room for every batch of a feed, but perhaps for a few of very short sentences, which take a larger shape."""
        pairs = sum(map(len, feed.stores))
        tokens = max(sum(int(store.lengths[side].sum()) for store in feed.stores) for side in range(2))
        mean = 1 + tokens / pairs
        return cls(_up(feed.tokens), _up(1.5 * feed.tokens / mean + feed.tokens / PIECE), feed.longest)

    def holding(self, batch: Batch) -> "Shape":
        """This shape, or one with twice the sequences, and so on, until the batch fits."""
        shape, piece = self, min(PIECE, self.longest)
        while (shape.sequences - len(batch)) * piece < shape.tokens:
            shape = replace(shape, sequences=2 * shape.sequences)
        return shape

    def fill(self, batch: Batch) -> Batch:
        """The batch in this shape; what fills it up is not predicted."""
        shape = self.holding(batch)
        sizes = (shape.tokens, shape.sequences, PAD, shape.longest)
        missing = shape.tokens - batch.target_tokens
        return Batch(
            filled(batch.source, *sizes),
            filled(batch.target, *sizes),
            functional.pad(batch.labels_N, (0, missing), value=IGNORED),
            batch.index_B,
        )


@dataclass(frozen=True)
class Parts:
    """A batch in parts of about as many tokens, each filled up to the next multiple of so many tokens.

    A CPU's half-precision products are compiled for each number of tokens that they meet. Filled, few numbers are met.
    """

    count: int = 1
    """Parts, unless there are fewer sentences."""
    block: int = 1
    """Of which the tokens of either side are a multiple."""

    def loads(self, batch: Batch) -> list[Load]:
        """The parts, none of them empty; what fills them up is not predicted."""
        ends = batch.source.offsets.numpy().astype(np.int64) + batch.target.offsets.numpy()
        cuts = np.searchsorted(ends, ends[-1] * np.arange(self.count + 1) / self.count)
        parts = [_some(batch, int(first), int(last)) for first, last in pairwise(np.unique(cuts))]
        return [Load(self._filled(part), part.target_tokens) for part in parts]

    def _filled(self, batch: Batch) -> Batch:
        """The batch with one pair more, of tokens that say nothing; both its sides have some, or there is none."""
        missing = [-side.tokens % self.block for side in (batch.source, batch.target)]
        if not any(missing):
            return batch
        source, target = (each or self.block for each in missing)
        return Batch(
            _longer(batch.source, source),
            _longer(batch.target, target),
            functional.pad(batch.labels_N, (0, target), value=IGNORED),
            batch.index_B,
        )


def _some(batch: Batch, first: int, last: int) -> Batch:
    """The pairs of a batch from one number up to another."""
    begin, end = (int(batch.target.offsets[each]) for each in (first, last))
    source, target = (_sequences(side, first, last) for side in (batch.source, batch.target))
    return Batch(source, target, batch.labels_N[begin:end], batch.index_B[first:last])


def _sequences(side: Ragged, first: int, last: int) -> Ragged:
    """The sequences of one side from one number up to another."""
    offsets = side.offsets.numpy()[first : last + 1]
    return Ragged.from_arrays(side.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])


def _longer(side: Ragged, tokens: int) -> Ragged:
    """A sequence of so many tokens behind the others."""
    values = torch.cat([side.values, side.values.new_full((tokens,), PAD)])
    return Ragged.from_arrays(values, np.append(side.offsets.numpy(), values.shape[0]))


def stream(feed: Feed, start: Position, shape: Shape | Parts | None, pin: bool) -> Ahead[Loads]:
    """Steps without end from a position on, ready to be moved to the device; close it when done."""
    device = torch.cuda.current_device() if pin and torch.cuda.is_available() else None
    return Ahead(_loads(feed, start, shape, device), _AHEAD)


def _loads(
    feed: Feed, start: Position, shape: Shape | Parts | None, device: int | None
) -> Generator[Loads, None, None]:
    """What the thread of `stream` makes; whatever is filled is pinned here, the rest where it is made."""
    pin = device is not None
    if device is not None:
        torch.cuda.set_device(device)  # a new thread's is the first one
    with closing(feed.epochs(start, pin=pin and shape is None)) as steps:
        for step in steps:
            yield Loads(step.after, [load for batch in step.batches for load in _ready(batch, shape, pin)])


def _ready(batch: Batch, shape: Shape | Parts | None, pin: bool) -> list[Load]:
    """One batch, made ready."""
    if shape is None:
        return [Load(batch, batch.target_tokens)]
    if isinstance(shape, Parts):
        return shape.loads(batch)
    whole = shape.fill(batch)
    return [Load(whole.pin_memory() if pin else whole, batch.target_tokens)]


def _up(size: float) -> int:
    """The next size of which kernels are fond."""
    return -(-int(size) // _BLOCK) * _BLOCK
