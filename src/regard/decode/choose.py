"""Which hypotheses a step might go on with: the candidates of each beam, best first."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.live import Live
from regard.decode.topk import greatest, top


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
        return Candidates(*(each[:, :count] for each in self.parts()))

    def at(self, order_BK: Int[Tensor, "B K"]) -> "Candidates":
        """These, in this order."""
        return Candidates(*(each.gather(1, order_BK) for each in self.parts()))

    def and_also(self, more: "Candidates") -> "Candidates":
        """These, and others behind them."""
        return Candidates(*(torch.cat(pair, 1) for pair in zip(self.parts(), more.parts(), strict=True)))

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Parents, tokens, log-probabilities and totals."""
        return self.parent_BK, self.token_BK, self.logprob_BK, self.total_BK


@runtime_checkable
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
        logprob_R, token_R = greatest(logprobs_RV)
        return alone(token_R.view_as(live.total_BW), logprob_R.view_as(live.total_BW), live)

    def reach(self, rows: int) -> int:
        """One."""
        return 1

    def among(self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], live: Live) -> Candidates:
        """One candidate a row."""
        logprob_R, at_R = logprob_RK.max(1)
        token_R = token_RK.gather(1, at_R[:, None])
        return alone(token_R.view_as(live.total_BW), logprob_R.view_as(live.total_BW), live)


class Best:
    """The most probable of everything the rows of a beam might go on with.

    There are twice as many candidates as rows: at worst every row offers its end, and as many remain to go on with.
    """

    independent = False

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """The 2 W best of W times V."""
        return best(logprobs_RV, live.total_BW, 2 * live.total_BW.shape[1])

    def reach(self, rows: int) -> int:
        """As many as candidates: they may all come from one row."""
        return 2 * rows

    def among(self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], live: Live) -> Candidates:
        """The 2 W best of them."""
        beams, rows = live.total_BW.shape
        each = logprob_RK.shape[1]
        logprob_BWK = logprob_RK.double().view(beams, rows, each)
        total_BK, at_BK = (live.total_BW[:, :, None] + logprob_BWK).flatten(1).topk(min(2 * rows, rows * each))
        token_BK, logprob_BK = (part.reshape(beams, -1).gather(1, at_BK) for part in (token_RK, logprob_BWK))
        return Candidates(at_BK // each, token_BK, logprob_BK, total_BK)


class Diverse:
    """Groups of beams, each the best it can be while it loses for tokens earlier groups chose at the same step.

    Diverse beam search with Hamming diversity (Vijayakumar et al. 2018, §4). The loss only orders the candidates: what
    they are worth stays what the stepper said.
    """

    independent = False

    def __init__(self, groups: int, diversity: float) -> None:
        """So many groups in a line for each sentence."""
        self.groups, self.diversity = groups, diversity

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """The 2 W best of each group, one group after the other."""
        beams, rows = live.total_BW.shape
        size = logprobs_RV.shape[1]
        groups_V = logprobs_RV.view(beams // self.groups, self.groups, rows, size).unbind(1)
        totals = live.total_BW.view(-1, self.groups, rows).unbind(1)
        chosen_BV = logprobs_RV.new_zeros(beams // self.groups, size)
        found = []
        for logprobs_BWV, total_BW in zip(groups_V, totals, strict=True):
            lowered_BWV = logprobs_BWV - self.diversity * chosen_BV[:, None]
            ranked = best(lowered_BWV.flatten(0, 1), total_BW, 2 * rows)
            at_BK = ranked.parent_BK * size + ranked.token_BK
            logprob_BK = logprobs_BWV.flatten(1).gather(1, at_BK).double()
            total_BK = total_BW.gather(1, ranked.parent_BK) + logprob_BK
            found.append(Candidates(ranked.parent_BK, ranked.token_BK, logprob_BK, total_BK))
            # A group that is done chooses nothing more.
            real_BW = (total_BK[:, :rows] > -torch.inf).to(chosen_BV.dtype)
            chosen_BV.scatter_add_(1, ranked.token_BK[:, :rows], real_BW)
        return Candidates(
            *(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*(each.parts() for each in found), strict=True))
        )


def going_on(ended_BK: Bool[Tensor, "B K"], rows: int) -> Int[Tensor, "B W"]:
    """Which candidates go on: the first W that have not ended; where too few are left, ended ones fill the places."""
    return ended_BK.sort(dim=1, stable=True).indices[:, :rows]


def alone(token_BW: Int[Tensor, "B W"], logprob_BW: Float[Tensor, "B W"], live: Live) -> Candidates:
    """One candidate for each row: itself with that token."""
    logprob_BW = logprob_BW.double()
    parent_BW = torch.arange(token_BW.shape[1], device=token_BW.device).expand_as(token_BW)
    return Candidates(parent_BW, token_BW, logprob_BW, live.total_BW + logprob_BW)


def best(logprobs_RV: Float[Tensor, "R V"], total_BW: Float[Tensor, "B W"], count: int) -> Candidates:
    """The `count` most probable candidates of each beam; fewer where there are not as many."""
    found = top(logprobs_RV, total_BW, count)
    return Candidates(found.row_BK, found.column_BK, found.value_BK.double(), found.sum_BK)
