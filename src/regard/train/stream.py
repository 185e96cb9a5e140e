"""The stream of batches in the form that the device needs, prepared ahead by a thread.

For CUDA: in page-locked memory and, if the model is compiled or captured, all of one size. For a CPU: split into one
part per thread, with numbers of tokens that recur.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from regard.data.batch import Batch
from regard.data.batching import Feed, StreamPosition
from regard.data.prefetch import Prefetch
from regard.nn.fill import FILL_LENGTH

_AHEAD = 8  # steps prepared before they are requested
_CUDA_BLOCK = 128  # static sizes are multiples of this, which suits the kernels
CPU_BLOCK = 64  # bfloat16 batches on a CPU have a multiple of this many tokens: few different sizes, little filling


class MicroBatch(NamedTuple):
    """A batch, perhaps filled up, and its number of units without the filling."""

    batch: Batch
    units: int


class StepBatches(NamedTuple):
    """The micro-batches of this process for one update, and the position in the stream after it."""

    after: StreamPosition
    batches: Sequence[MicroBatch]


@dataclass(frozen=True)
class StaticShape:
    """The one size to which all batches are filled."""

    tokens: int
    """Tokens of each sequence attribute."""
    sequences: int
    longest: int
    """Maximum number of tokens of a sequence."""

    @classmethod
    def from_feed(cls, feed: Feed) -> "StaticShape":
        """Return a shape for every batch of a feed; a few batches of very short sequences may need a larger one."""
        examples = sum(map(len, feed.stores))
        totals = [
            [int(count.sum()) for count in feed.collator.sequence_lengths(store.lengths)] for store in feed.stores
        ]
        mean = max(map(sum, zip(*totals, strict=True))) / examples
        sequences = _round_up(1.5 * feed.tokens / mean + feed.tokens / FILL_LENGTH)
        return cls(_round_up(feed.tokens), sequences, feed.longest)

    def enlarged_for(self, batch: Batch) -> "StaticShape":
        """Return this shape, or one with twice the sequences, and so on, until the batch fits."""
        shape, piece = self, min(FILL_LENGTH, self.longest)
        while (shape.sequences - len(batch)) * piece < shape.tokens:
            shape = replace(shape, sequences=2 * shape.sequences)
        return shape

    def fill(self, batch: Batch) -> Batch:
        """Fill a batch up to this shape; the filling has no part in the loss."""
        shape = self.enlarged_for(batch)
        return batch.filled(shape.tokens, shape.sequences, shape.longest)


@dataclass(frozen=True)
class CpuParts:
    """A batch split into parts with about equally many tokens, each filled up to a multiple of `block` tokens.

    oneDNN compiles a bfloat16 matrix product for each number of tokens that occurs; filling makes few numbers occur.
    """

    count: int = 1
    """Number of parts; fewer if there are fewer examples."""
    block: int = 1
    """Tokens of each sequence attribute are a multiple of this."""

    def split(self, batch: Batch) -> list[MicroBatch]:
        """Return the parts, none of them empty; the filling has no part in the loss."""
        return [MicroBatch(part.rounded(self.block), part.units) for part in batch.split(self.count)]


def stream(feed: Feed, start: StreamPosition, shape: StaticShape | CpuParts | None, pin: bool) -> Prefetch[StepBatches]:
    """Return an endless iterator of steps, to be closed after use.

    Args:
        feed: The batches.
        start: Position in the stream to start from.
        shape: The form of the batches: all filled to one size, split for CPU threads, or as they are.
        pin: Whether to copy batches to page-locked memory.
    """
    device = torch.cuda.current_device() if pin and torch.cuda.is_available() else None
    return Prefetch(_prepare(feed, start, shape, device), _AHEAD)


def _prepare(
    feed: Feed, start: StreamPosition, shape: StaticShape | CpuParts | None, device: int | None
) -> Generator[StepBatches, None, None]:
    """Yield the steps of `stream`; runs in the thread that prepares them."""
    if device is not None:
        torch.cuda.set_device(device)  # a new thread has device 0, where pinning would then allocate memory
    with closing(feed.steps(start)) as steps:
        for step in steps:
            yield StepBatches(
                step.after,
                [part for batch in step.batches for part in _make_micro_batches(batch, shape, device is not None)],
            )


def _make_micro_batches(batch: Batch, shape: StaticShape | CpuParts | None, pin: bool) -> list[MicroBatch]:
    """Return the micro-batches of one batch in the requested form."""
    if isinstance(shape, CpuParts):
        return shape.split(batch)
    filled = batch if shape is None else shape.fill(batch)
    return [MicroBatch(filled.pin_memory() if pin else filled, batch.units)]


def _round_up(size: float) -> int:
    """Return the next multiple of the block that suits the kernels."""
    return -(-int(size) // _CUDA_BLOCK) * _CUDA_BLOCK
