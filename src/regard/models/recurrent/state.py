"""The decoding state of recurrent decoders, and teacher forcing by decoding steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.rows import check_rows
from regard.nn.ragged import Layout
from regard.nn.recurrent import HiddenState, Packing
from regard.nn.tap import joining_records, named_taps


@runtime_checkable
class MemoryCache(Protocol):
    """What a decoder has computed of each memory, once for all steps, such as keys and values."""

    def select_rows(self, rows: Int[Tensor, " B2"]) -> Self:
        """Return the cache of these memories, in this order."""

    def first_rows(self, rows: int) -> Self:
        """Return the cache of the first memories, as views."""


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The decoding state of R rows; its size does not grow with the target. The rows of one source are adjacent."""

    hidden: HiddenState
    """The hidden state of the recurrent layers: h_LRD, and for an LSTM c_LRD."""
    cache: MemoryCache | None
    """What attention needs of the memory, which the rows of a source share; None for a decoder without attention."""
    beams: int
    """Rows of each source."""
    feed_RD: Float[Tensor, "R D"] | None = None
    """The last attentional vector, for input feeding."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.hidden[0].shape[1]

    def advanced(self, hidden: HiddenState, feed_RD: Float[Tensor, "R D"] | None = None) -> "RecurrentState":
        """Return the state after a step."""
        return replace(self, hidden=hidden, feed_RD=feed_RD)

    def select(self, rows_R: Int[Tensor, " R2"]) -> "RecurrentState":
        """Return the state that continues from these rows; no memory moves while every source stays."""
        check_rows(rows_R, self.beams, self.rows)
        cache = self.cache
        if rows_R.shape[0] < self.rows and cache is not None:
            cache = cache.select_rows(rows_R[:: self.beams] // self.beams)
        return RecurrentState(self._hidden_of(rows_R), cache, self.beams, self._feed_of(rows_R))

    def reorder(self, rows_B: Int[Tensor, " B"]) -> "RecurrentState":
        """Return the state of these sources, one row each, in this order."""
        cache = None if self.cache is None else self.cache.select_rows(rows_B)
        return RecurrentState(self._hidden_of(rows_B), cache, 1, self._feed_of(rows_B))

    def first(self, rows: int) -> "RecurrentState":
        """Return the state of the first rows, as views."""
        if rows == self.rows:
            return self
        return RecurrentState(
            tuple(tensor[:, :rows] for tensor in self.hidden),
            None if self.cache is None else self.cache.first_rows(rows),
            1,
            None if self.feed_RD is None else self.feed_RD[:rows],
        )

    def _hidden_of(self, rows_R: Int[Tensor, " R2"]) -> HiddenState:
        return tuple(tensor.index_select(1, rows_R) for tensor in self.hidden)

    def _feed_of(self, rows_R: Int[Tensor, " R2"]) -> Float[Tensor, "R2 D"] | None:
        return None if self.feed_RD is None else self.feed_RD.index_select(0, rows_R)


def spread_over_beams(hidden: HiddenState, rows: int) -> HiddenState:
    """Repeat the hidden state of each source for all of its rows."""
    return tuple(tensor.repeat_interleave(rows // tensor.shape[1], 1) for tensor in hidden)


DecodingStep = Callable[[Tensor, RecurrentState], tuple[Tensor, RecurrentState]]
"""Takes the embedded tokens of all rows and a state; returns outputs and the next state."""


def force_step_by_step(
    step: DecodingStep, x_ND: Float[Tensor, "N D"], layout: Layout, state: RecurrentState, module: nn.Module
) -> Float[Tensor, "N D2"]:
    """Run teacher forcing step by step, for decoders in which each step needs the result of the one before.

    A sequence that has ended is not computed any further. When a tap is watched it is, and all rows keep the order of
    the batch, so that a recording is one table of targets by sources, and a replacement knows which row is which.

    Args:
        step: The decoding step.
        x_ND: Embedded target tokens.
        layout: Their layout.
        state: The initial state, one row for each sequence.
        module: The module with the taps that a step passes.

    Returns:
        The output of `step` for every token.
    """
    taps = list(named_taps(module).values())
    packing = Packing.padded(layout) if any(tap.watched for tap in taps) else Packing.by_length(layout)
    # With the longest sequences first, the rows that still run at a step are the first ones, and a view drops the rest.
    state, outputs = state.reorder(packing.rows_B), []
    with joining_records(taps, lambda steps: _join_records(steps, layout)):
        for x_RD in torch.split_with_sizes(packing.pack(x_ND), packing.sizes):
            y_RD, state = step(x_RD, state.first(x_RD.shape[0]))
            outputs.append(y_RD)
    if not outputs:  # a step of no rows has the right width
        return step(x_ND, state.first(0))[0]
    return packing.unpack(torch.cat(outputs))


def _join_records(steps: list[Tensor], layout: Layout) -> Tensor:
    """Join what passed a tap in every step: (B, 1, T, S) for scores and weights, (N, D) for vectors."""
    if steps[0].ndim == 4:
        # Rows that have ended were computed too, so that all steps have the same rows: their weights become zero.
        table = torch.cat(steps, 2)
        ended_BQ = torch.arange(len(steps), device=table.device) >= layout.lengths_B[:, None]
        return table.masked_fill(ended_BQ[:, None, :, None], 0)
    return layout.unpad(torch.stack(steps, 1))
