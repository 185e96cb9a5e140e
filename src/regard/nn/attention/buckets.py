"""Sequences of like length side by side, so that attention over padded rows has hardly any padding.

A batch is cut into cells of sequences nearly as long as each other. Its tokens are regrouped once, cell after cell, and
each cell is then a plain rectangle of rows. With every sequence in a cell of its own length there is no padding at all.
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

SLACK = 1.15  # the longest of a cell over its shortest: where padding costs about as much as one more cell
NEAR = 4  # tokens that sequences of a cell may differ by, however short: of short ones, any padding costs less


def _edges(slack: float) -> NDArray[np.int64]:
    """The longest length of each class of like lengths; 0 is a class of its own, because it sees nothing."""
    edges = [0]
    while edges[-1] < 1_000_000:
        edges.append(max(edges[-1] + NEAR, int((edges[-1] + 1) * slack)))
    return np.array(edges)


EDGES = _edges(SLACK)


@dataclass(frozen=True, eq=False)
class Grouping:
    """Where the tokens of one side of an attention stand, cell after cell."""

    there: Int[Tensor, " P"]
    """For each place of the cells, the token that stands there; 0 where none does."""
    back: Int[Tensor, " N"]
    """For each token, its place."""
    holes: Bool[Tensor, " P"] | None
    """The places where no token stands; None if there are none."""
    shapes: tuple[tuple[int, int], ...]
    """Rows and columns of each cell."""

    def spread(self, x: Shaped[Tensor, "N *rest"]) -> list[Tensor]:
        """The tokens as one rectangle a cell."""
        flat = _spread(x, self)
        parts = torch.split_with_sizes(flat, [rows * columns for rows, columns in self.shapes])
        return [part.view(*shape, *x.shape[1:]) for part, shape in zip(parts, self.shapes, strict=True)]

    def collect(self, cells: list[Tensor]) -> Tensor:
        """The tokens of rectangular cells, in the order they had in the batch."""
        return _collect(torch.cat([cell.flatten(0, 1) for cell in cells]), self)


def group(queries: Layout, keys: Layout) -> tuple[Grouping, Grouping, tuple[NDArray[np.int64], ...]]:
    """Cells of like length for queries and keys, and the sequences of each cell; reads the lengths on the host."""
    query_lengths = queries.lengths_B.numpy().astype(np.int64)
    key_lengths = keys.lengths_B.numpy().astype(np.int64)
    alike = np.searchsorted(EDGES, query_lengths) * (EDGES.size + 1) + np.searchsorted(EDGES, key_lengths)
    order = np.argsort(alike, kind="stable")
    cells = np.split(order, np.flatnonzero(np.diff(alike[order])) + 1)
    return _lay(queries, query_lengths, cells), _lay(keys, key_lengths, cells), tuple(cells)


def by_length(layout: Layout, parts: int) -> tuple[Grouping, tuple[NDArray[np.int64], ...]]:
    """So many cells of about as many sequences, sorted by length, and the sequences of each; reads on the host."""
    lengths = layout.lengths_B.numpy().astype(np.int64)
    cells = np.array_split(np.argsort(lengths, kind="stable"), min(parts, lengths.size))
    return _lay(layout, lengths, cells), tuple(cells)


def _lay(layout: Layout, lengths: NDArray[np.int64], cells: list[NDArray[np.int64]]) -> Grouping:
    """Give each token of one side its place."""
    starts = layout.offsets.numpy()[:-1].astype(np.int64)
    there, shapes = [np.zeros(0, np.int64)], []
    for members in cells:
        columns = int(lengths[members].max())
        column = np.arange(columns)
        place = np.where(column < lengths[members, None], starts[members, None] + column, -1)
        there.append(place.ravel())
        shapes.append((members.size, columns))
    every = np.concatenate(there)
    holes = every < 0
    back = np.empty(layout.tokens, np.int64)
    back[every[~holes]] = np.flatnonzero(~holes)
    return Grouping(
        torch.from_numpy(np.maximum(every, 0)),
        torch.from_numpy(back),
        torch.from_numpy(holes) if holes.any() else None,
        tuple(shapes),
    )


def _fill(x: Tensor, grouping: Grouping) -> Tensor:
    """The tokens at their places, zero in the holes."""
    placed = x.index_select(0, grouping.there)
    if grouping.holes is None:
        return placed
    return placed.masked_fill_(grouping.holes.view(-1, *[1] * (x.ndim - 1)), 0)


class _Spread(torch.autograd.Function):
    """Tokens to places. Each token has one place, so the gradient is a gathering too: torch's own would add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grouping: Grouping) -> Tensor:
        ctx.grouping = grouping
        return _fill(x, grouping)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, ctx.grouping.back), None


class _Collect(torch.autograd.Function):
    """Places to tokens, the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grouping: Grouping) -> Tensor:
        ctx.grouping = grouping
        return x.index_select(0, grouping.back)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _fill(gradients[0], ctx.grouping), None


_spread: Callable[[Tensor, Grouping], Tensor] = _Spread.apply
_collect: Callable[[Tensor, Grouping], Tensor] = _Collect.apply
