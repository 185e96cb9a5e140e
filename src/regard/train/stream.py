"""Batches as the device takes them: page-locked for CUDA and, where the model is compiled, all of one size."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch.nn import functional

from regard.data.ahead import Ahead
from regard.data.batching import Feed, Position
from regard.data.example import Batch
from regard.nn.capacity import PIECE, filled
from regard.nn.cross_entropy import IGNORED
from regard.text import PAD

_AHEAD = 4  # steps filled and pinned before they are asked for
_BLOCK = 128  # sizes of which kernels are fond


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
        longest = feed.tokens if feed.sampling else max(max(store.longest) for store in feed.stores) + 1
        return cls(_up(feed.tokens), _up(1.5 * feed.tokens / mean + feed.tokens / PIECE), longest)

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


def stream(feed: Feed, start: Position, shape: Shape | None, pin: bool) -> Ahead[Loads]:
    """Steps without end from a position on, ready to be moved to the device; close it when done."""
    device = torch.cuda.current_device() if pin and torch.cuda.is_available() else None
    return Ahead(_loads(feed, start, shape, device), _AHEAD)


def _loads(feed: Feed, start: Position, shape: Shape | None, device: int | None) -> Generator[Loads, None, None]:
    """What the thread of `stream` makes; whatever is filled is pinned here, the rest where it is made."""
    pin = device is not None
    if device is not None:
        torch.cuda.set_device(device)  # a new thread's is the first one
    with closing(feed.epochs(start, pin=pin and shape is None)) as steps:
        for step in steps:
            yield Loads(step.after, [_load(batch, shape, pin) for batch in step.batches])


def _load(batch: Batch, shape: Shape | None, pin: bool) -> Load:
    """One batch, made ready."""
    if shape is None:
        return Load(batch, batch.target_tokens)
    whole = shape.fill(batch)
    return Load(whole.pin_memory() if pin else whole, batch.target_tokens)


def _up(size: float) -> int:
    """The next size of which kernels are fond."""
    return -(-int(size) // _BLOCK) * _BLOCK
