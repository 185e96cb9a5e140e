"""Length buckets: sequences of similar length as padded rectangles with hardly any padding.

A ragged batch is cut into buckets of sequences of nearly equal length. Its tokens are regrouped once, bucket after
bucket, and each bucket is then a plain `(rows, columns)` rectangle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from regard.nn.ragged import Layout

MAX_RATIO = 1.15  # longest over shortest sequence of a bucket, where padding costs about as much as one more bucket
MIN_SPREAD = 4  # tokens by which sequences of a bucket may always differ: padding short ones is cheaper than a bucket


def _length_edges() -> NDArray[np.int64]:
    """Return the longest length of each class of similar lengths; 0 is a class of its own, as it attends to nothing."""
    edges = [0]
    while edges[-1] < 1_000_000:
        edges.append(max(edges[-1] + MIN_SPREAD, int((edges[-1] + 1) * MAX_RATIO)))
    return np.array(edges)


EDGES = _length_edges()


@dataclass(frozen=True, eq=False)
class BucketLayout:
    """The mapping between the tokens of a ragged batch and the slots of padded rectangles."""

    token_P: Int[Tensor, " P"]
    """For each slot of the rectangles, end to end, the token in it; 0 in padding."""
    slot_N: Int[Tensor, " N"]
    """For each token, its slot."""
    padding_P: Bool[Tensor, " P"] | None
    """The slots without a token; None if there are none."""
    shapes: tuple[tuple[int, int], ...]
    """Rows and columns of each rectangle."""

    def pad(self, x: Shaped[Tensor, "N *rest"]) -> list[Tensor]:
        """Return the tokens as one zero-padded rectangle a bucket."""
        flat = _pad(x, self)
        parts = torch.split_with_sizes(flat, [rows * columns for rows, columns in self.shapes])
        return [part.view(*shape, *x.shape[1:]) for part, shape in zip(parts, self.shapes, strict=True)]

    def unpad(self, rectangles: list[Tensor]) -> Tensor:
        """Return the tokens of the rectangles in the order of the ragged batch."""
        return _unpad(torch.cat([rectangle.flatten(0, 1) for rectangle in rectangles]), self)


def bucket_by_length(queries: Layout, keys: Layout) -> tuple[BucketLayout, BucketLayout, tuple[NDArray[np.int64], ...]]:
    """Group sequences whose queries and keys both have similar lengths; the layouts must be on the CPU.

    Returns:
        The buckets of the queries, those of the keys, and the numbers of the sequences in each bucket.
    """
    query_lengths = queries.lengths_B.numpy().astype(np.int64)
    key_lengths = keys.lengths_B.numpy().astype(np.int64)
    length_class = np.searchsorted(EDGES, query_lengths) * (EDGES.size + 1) + np.searchsorted(EDGES, key_lengths)
    order = np.argsort(length_class, kind="stable")
    buckets = np.split(order, np.flatnonzero(np.diff(length_class[order])) + 1)
    return _assign_slots(queries, query_lengths, buckets), _assign_slots(keys, key_lengths, buckets), tuple(buckets)


def bucket_evenly(layout: Layout, count: int) -> tuple[BucketLayout, tuple[NDArray[np.int64], ...]]:
    """Sort sequences by length and cut them into `count` buckets of about equal size; the layout must be on the CPU."""
    lengths = layout.lengths_B.numpy().astype(np.int64)
    buckets = np.array_split(np.argsort(lengths, kind="stable"), min(count, lengths.size))
    return _assign_slots(layout, lengths, buckets), tuple(buckets)


def _assign_slots(layout: Layout, lengths: NDArray[np.int64], buckets: list[NDArray[np.int64]]) -> BucketLayout:
    """Assign a slot to each token, given the sequences of each bucket."""
    starts = layout.offsets.numpy()[:-1].astype(np.int64)
    tokens, shapes = [np.zeros(0, np.int64)], []
    for members in buckets:
        columns = int(lengths[members].max())
        column = np.arange(columns)
        token = np.where(column < lengths[members, None], starts[members, None] + column, -1)
        tokens.append(token.ravel())
        shapes.append((members.size, columns))
    token_P = np.concatenate(tokens)
    padding_P = token_P < 0
    slot_N = np.empty(layout.tokens, np.int64)
    slot_N[token_P[~padding_P]] = np.flatnonzero(~padding_P)
    return BucketLayout(
        torch.from_numpy(np.maximum(token_P, 0)),
        torch.from_numpy(slot_N),
        torch.from_numpy(padding_P) if padding_P.any() else None,
        tuple(shapes),
    )


def _gather_padded(x: Tensor, layout: BucketLayout) -> Tensor:
    """Return the token of each slot, zero in padding."""
    gathered = x.index_select(0, layout.token_P)
    if layout.padding_P is None:
        return gathered
    return gathered.masked_fill_(layout.padding_P.view(-1, *[1] * (x.ndim - 1)), 0)


class _Pad(torch.autograd.Function):
    """Tokens to slots. Each token has one slot, so the gradient is a gather too; autograd's own would scatter-add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: BucketLayout) -> Tensor:
        ctx.layout = layout
        return _gather_padded(x, layout)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, ctx.layout.slot_N), None


class _Unpad(torch.autograd.Function):
    """Slots to tokens: the inverse of `_Pad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: BucketLayout) -> Tensor:
        ctx.layout = layout
        return x.index_select(0, layout.slot_N)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _gather_padded(gradients[0], ctx.layout), None


_pad: Callable[[Tensor, BucketLayout], Tensor] = _Pad.apply
_unpad: Callable[[Tensor, BucketLayout], Tensor] = _Unpad.apply
