"""A target known beforehand, taken step by step where each step needs the one before it."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.recurrent.state import RecurrentState
from regard.nn.ragged import Layout
from regard.nn.recurrent import Packing
from regard.nn.tap import joining, taps

Step = Callable[[Tensor, RecurrentState], tuple[Tensor, RecurrentState]]


def walk(
    step: Step, x_ND: Float[Tensor, "N D"], layout: Layout, state: RecurrentState, inside: nn.Module
) -> Float[Tensor, "N D2"]:
    """What `step` makes of every token, from one state a sequence; `inside` holds the taps it passes.

    Sequences that have ended are computed no further. Watched, they are, and all rows keep the order of the batch, so
    that who records sees one table of targets by sources, and who replaces knows which row is which.
    """
    within = list(taps(inside).values())
    packing = Packing.square(layout) if any(tap.watched for tap in within) else Packing.of(layout)
    state, made = state.placed(packing.rows_B), []
    with joining(within, lambda steps: _table(steps, layout)):
        for x_RD in torch.split_with_sizes(packing.spread(x_ND), packing.sizes):
            y_RD, state = step(x_RD, state.first(x_RD.shape[0]))
            made.append(y_RD)
    if not made:
        return _nothing(step, x_ND, state)
    return packing.collect(torch.cat(made))


def _nothing(step: Step, x_ND: Float[Tensor, "N D"], state: RecurrentState) -> Float[Tensor, "N D2"]:
    """What `step` makes of no row at all."""
    return step(x_ND, state.first(0))[0]


def _table(steps: list[Tensor], layout: Layout) -> Tensor:
    """One tensor of what passed a tap: (B, 1, T, S) of scores or weights, (N, D) of vectors."""
    if steps[0].ndim == 4:
        table = torch.cat(steps, 2)
        ended_BQ = torch.arange(len(steps), device=table.device) >= layout.lengths_B[:, None]
        return table.masked_fill(ended_BQ[:, None, :, None], 0)
    return layout.unpad(torch.stack(steps, 1))
