"""Which hypotheses a step might go on with: the candidates of each beam, best first."""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.live import Live
from regard.decode.topk import top


@dataclass(frozen=True, eq=False)
class Candidates:
    """K ways to go on in each of B beams, in the order in which they are preferred."""

    parent_BK: Tensor
    """The live hypothesis each goes on from, counted within the beam."""
    token_BK: Tensor
    logprob_BK: Tensor
    """Log-probability of the token."""
    total_BK: Tensor
    """Log-probability of the hypothesis with it; minus infinity where there is none."""

    def first(self, count: int) -> "Candidates":
        """The first ones."""
        return Candidates(*(each[:, :count] for each in self._parts()))

    def at(self, order_BK: Int[Tensor, "B K"]) -> "Candidates":
        """These, in this order."""
        return Candidates(*(each.gather(1, order_BK) for each in self._parts()))

    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.parent_BK, self.token_BK, self.logprob_BK, self.total_BK


class Chooser(Protocol):
    """What picks the candidates of a step."""

    independent: bool
    """Whether rows go on each by itself, so that none ever takes another's place."""

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """The candidates of each beam; at least as many as it has rows."""
        ...


class Greedy:
    """Each row goes on with its most probable token."""

    independent = True

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """One candidate a row."""
        logprob_R, token_R = logprobs_RV.max(-1)
        return alone(token_R.view_as(live.total_BW), logprob_R.view_as(live.total_BW), live)


class Best:
    """The most probable of everything the rows of a beam might go on with.

    There are twice as many candidates as rows: at worst every row offers its end, and as many remain to go on with.
    """

    independent = False

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """The 2 W best of W times V."""
        return best(logprobs_RV, live.total_BW, 2 * live.total_BW.shape[1])


def alone(token_BW: Int[Tensor, "B W"], logprob_BW: Float[Tensor, "B W"], live: Live) -> Candidates:
    """One candidate for each row: itself with that token."""
    logprob_BW = logprob_BW.double()
    parent_BW = torch.arange(token_BW.shape[1], device=token_BW.device).expand_as(token_BW)
    return Candidates(parent_BW, token_BW, logprob_BW, live.total_BW + logprob_BW)


def best(logprobs_RV: Float[Tensor, "R V"], total_BW: Float[Tensor, "B W"], count: int) -> Candidates:
    """The `count` most probable candidates of each beam; fewer where there are not as many."""
    beams, rows = total_BW.shape
    # No beam takes more than `count` from one row, and within a row the total changes no order.
    each = min(count, logprobs_RV.shape[1])
    logprob_RK, token_RK = top(logprobs_RV, each)
    logprob_BWK = logprob_RK.double().view(beams, rows, each)
    total_BK, at_BK = (total_BW[:, :, None] + logprob_BWK).flatten(1).topk(min(count, rows * each))
    return Candidates(
        at_BK // each,
        token_RK.view(beams, -1).gather(1, at_BK),
        logprob_BWK.flatten(1).gather(1, at_BK),
        total_BK,
    )
