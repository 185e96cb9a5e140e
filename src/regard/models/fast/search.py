"""The rows of a search by index: lists of places where their tokens and sources lie in tables of keys and values.

Rows need not be equally long: all write into the last column of the lists, and what lies before a row's beginning is
shaded.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.models.fast.gaze import Gaze, lines_of
from regard.models.fast.pool import Pool


@dataclass(eq=False)
class Search:
    """How far a search has come. Each step writes into it: a state that was stepped on from is spent."""

    beams: int
    own: Pool
    memory: Pool
    source_BS: Int[Tensor, "B S"]
    """Rows of the memory's tables that are each sentence's, filled up with 0."""
    shade_BS: Float[Tensor, "B S"]
    rows_RT: Int[Tensor, "R T"]
    """Rows of the own tables that are each row's tokens, the newest in the last column in use, filled up with 0."""
    shade_RT: Float[Tensor, "R T"]
    length_R: Int[Tensor, " R"]
    """Tokens each row has."""
    clock: int = 0
    """Columns in use: tokens the longest row has."""
    at_memory: Gaze | None = field(default=None, repr=False)
    """Where rows look in the memory, while that stays."""


def take(state: Search, each: int = 1) -> int:
    """The first of as many rows of the own tables as there are rows, for one new token each; lists have room for it.

    Where one stands for `each` rows, there are as many fewer.
    """
    rows, columns = state.rows_RT.shape[0] // each, state.rows_RT.shape[1]
    if state.clock == columns:
        state.rows_RT = functional.pad(state.rows_RT, (0, columns))
        state.shade_RT = functional.pad(state.shade_RT, (0, columns), value=-torch.inf)
    if state.own.taken + rows > state.own.room:
        state.rows_RT = state.own.prune(state.rows_RT)
    first: int = state.own.take(rows).start
    return first


def trim(state: Search) -> None:
    """Drop columns from before every row's beginning."""
    spare = state.clock - (int(state.length_R.max()) if state.length_R.numel() else 0)
    if spare:
        state.rows_RT = functional.pad(state.rows_RT[:, spare:], (0, spare))
        state.shade_RT = functional.pad(state.shade_RT[:, spare:], (0, spare), value=-torch.inf)
        state.clock -= spare


def absorb(state: Search, other: Search) -> None:
    """Take the sentences of another search in, behind one's own."""
    other.rows_RT = state.own.append(other.own, other.rows_RT)
    clock = max(state.clock, other.clock)
    rows, shades = zip(*(_aligned(each, clock) for each in (state, other)), strict=True)
    state.rows_RT, state.shade_RT = torch.cat(rows), torch.cat(shades)
    state.length_R, state.clock = torch.cat([state.length_R, other.length_R]), clock
    if state.memory.taken + other.memory.taken > state.memory.room:
        state.source_BS = state.memory.prune(state.source_BS)
    sources = [state.source_BS, state.memory.append(other.memory, other.source_BS)]
    widest = max(each.shape[1] for each in sources)
    state.source_BS = torch.cat([_widened(each, widest, 0) for each in sources])
    state.shade_BS = torch.cat([_widened(each.shade_BS, widest, -torch.inf) for each in (state, other)])
    state.at_memory = None


def _aligned(state: Search, clock: int) -> tuple[Tensor, Tensor]:
    """A search's lists with the newest token in the column before this one, and room behind."""
    sides = (clock - state.clock, lines_of(clock + 1) - clock)
    rows_RT = functional.pad(state.rows_RT[:, : state.clock], sides)
    return rows_RT, functional.pad(state.shade_RT[:, : state.clock], sides, value=-torch.inf)


def _widened(lists: Tensor, columns: int, value: int | float) -> Tensor:
    """Lists filled up to so many columns."""
    return functional.pad(lists, (0, columns - lists.shape[1]), value=value)
