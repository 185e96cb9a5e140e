"""How far a search by a recurrent decoder has come."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.beams import check_lines
from regard.nn.attention.kept import Kept
from regard.nn.recurrent import Hidden


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """Where R rows stand, of which W in a line share one memory. It does not grow with the target."""

    hidden: Hidden
    """The recurrence's own state, h_LRD and for an LSTM c_LRD."""
    kept: Kept | None
    """What the decoder looks at, one memory a line; None where the last state is the only bridge."""
    beams: int
    feed_RD: Float[Tensor, "R D"] | None = None
    """What the last step hands to the next beside the token: input feeding."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.hidden[0].shape[1]

    def moved(self, hidden: Hidden, feed_RD: Float[Tensor, "R D"] | None = None) -> "RecurrentState":
        """One step further."""
        return replace(self, hidden=hidden, feed_RD=feed_RD)

    def select(self, rows_R: Int[Tensor, " R2"]) -> "RecurrentState":
        """Only these rows; no memory moves while every line stays."""
        check_lines(rows_R, self.beams, self.rows)
        lines_B = rows_R[:: self.beams] // self.beams
        leave = rows_R.shape[0] < self.rows
        return RecurrentState(
            tuple(each.index_select(1, rows_R) for each in self.hidden),
            self.kept.rows(lines_B) if leave and self.kept is not None else self.kept,
            self.beams,
            None if self.feed_RD is None else self.feed_RD.index_select(0, rows_R),
        )

    def placed(self, rows_B: Int[Tensor, " B"]) -> "RecurrentState":
        """These sequences in this order, one row each, whatever the order was: for targets known beforehand."""
        return RecurrentState(
            tuple(each.index_select(1, rows_B) for each in self.hidden),
            None if self.kept is None else self.kept.rows(rows_B),
            1,
            None if self.feed_RD is None else self.feed_RD.index_select(0, rows_B),
        )

    def first(self, rows: int) -> "RecurrentState":
        """Only the first rows, as views."""
        if rows == self.rows:
            return self
        return RecurrentState(
            tuple(each[:, :rows] for each in self.hidden),
            None if self.kept is None else self.kept.first(rows),
            1,
            None if self.feed_RD is None else self.feed_RD[:rows],
        )


def joined(states: list[RecurrentState]) -> RecurrentState:
    """The sentences of several searches as those of one; how far each has come does not matter to a recurrence."""
    feeds = [each.feed_RD for each in states if each.feed_RD is not None]
    kept = [each.kept for each in states if each.kept is not None]
    return RecurrentState(
        tuple(torch.cat(parts, 1) for parts in zip(*(each.hidden for each in states), strict=True)),
        Kept.joined(kept) if kept else None,
        states[0].beams,
        torch.cat(feeds) if feeds else None,
    )


def spread_over_beams(last: Hidden, rows: int) -> Hidden:
    """A row for each beam of each sequence."""
    return tuple(each.repeat_interleave(rows // each.shape[1], 1) for each in last)
