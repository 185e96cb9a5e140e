"""The candidates of a step: which hypotheses a beam may continue with, best first, and how they are selected."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.beams import Beams
from regard.decode.topk import greatest, top


@dataclass(frozen=True, eq=False)
class Candidates:
    """K candidates for each of B beams, in order of preference: a live hypothesis and one more token."""

    parent_BK: Tensor
    """The live hypothesis, as a row of its beam."""
    token_BK: Tensor
    """The next token."""
    logprob_BK: Tensor
    """Log-probability of the token."""
    total_BK: Tensor
    """Log-probability of the hypothesis with the token; minus infinity marks an empty slot."""

    def first(self, count: int) -> "Candidates":
        """Return the first candidates of each beam."""
        return Candidates(*(table[:, :count] for table in self.tables()))

    def at(self, order_BK: Int[Tensor, "B K"]) -> "Candidates":
        """Return the candidates at these places, in this order."""
        return Candidates(*(table.gather(1, order_BK) for table in self.tables()))

    def append(self, more: "Candidates") -> "Candidates":
        """Return these candidates followed by others."""
        return Candidates(*(torch.cat(pair, 1) for pair in zip(self.tables(), more.tables(), strict=True)))

    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return parents, tokens, log-probabilities and totals."""
        return self.parent_BK, self.token_BK, self.logprob_BK, self.total_BK


@runtime_checkable
class CandidateSelector(Protocol):
    """Selects the candidates of each step."""

    independent: bool
    """Whether every row continues by itself, so that no row takes the place of another."""
    static: bool
    """Whether a static search selects the same candidates (`decode/static_search.py`)."""

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return the candidates of each beam, at least as many as it has rows."""
        ...


class GreedySelector:
    """Greedy search: every row continues with its most probable token."""

    independent = True
    static = True

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return one candidate for each row."""
        logprob_R, token_R = greatest(logprobs_RV)
        return one_per_row(token_R.view_as(beams.total_BW), logprob_R.view_as(beams.total_BW), beams)

    def top_k(self, rows: int) -> int:
        """Return how many of the best tokens of each row are enough to select from."""
        return 1

    def among(self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], beams: Beams) -> Candidates:
        """Return one candidate for each row, from the best tokens of that row."""
        logprob_R, token_R = greatest_among(logprob_RK, token_RK)
        return one_per_row(token_R.view_as(beams.total_BW), logprob_R.view_as(beams.total_BW), beams)


class BeamSelector:
    """Beam search: the most probable continuations of all rows of a beam together.

    There are twice as many candidates as rows: if every row offers the end symbol, as many remain to continue with.
    """

    independent = False
    static = True

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return the 2 W best of W times V continuations."""
        return best_candidates(logprobs_RV, beams.total_BW, 2 * beams.total_BW.shape[1])

    def top_k(self, rows: int) -> int:
        """Return how many of the best tokens of each row are enough: all candidates may come from one row."""
        return 2 * rows

    def among(self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], beams: Beams) -> Candidates:
        """Return the 2 W best continuations, from the best tokens of each row."""
        count, rows = beams.total_BW.shape
        k = logprob_RK.shape[1]
        logprob_BWK = logprob_RK.double().view(count, rows, k)
        total_BK, at_BK = (beams.total_BW[:, :, None] + logprob_BWK).flatten(1).topk(min(2 * rows, rows * k))
        token_BK, logprob_BK = (table.reshape(count, -1).gather(1, at_BK) for table in (token_RK, logprob_BWK))
        return Candidates(at_BK // k, token_BK, logprob_BK, total_BK)


class DiverseSelector:
    """Diverse beam search with Hamming diversity (Vijayakumar et al. 2018, §4).

    The beams of a sentence are its groups. A token that earlier groups chose at the same step is penalised. The penalty
    changes only the order of candidates; their log-probabilities stay those of the stepper.
    """

    independent = False
    static = False

    def __init__(self, groups: int, diversity: float) -> None:
        """Take the number of groups of each sentence, and the penalty for each earlier group with the same token."""
        self.groups, self.diversity = groups, diversity

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return the 2 W best of each group, one group after the other."""
        count, rows = beams.total_BW.shape
        size = logprobs_RV.shape[1]
        logprobs_of_groups = logprobs_RV.view(count // self.groups, self.groups, rows, size).unbind(1)
        totals_of_groups = beams.total_BW.view(-1, self.groups, rows).unbind(1)
        chosen_BV = logprobs_RV.new_zeros(count // self.groups, size)
        selected = []
        for logprobs_BWV, total_BW in zip(logprobs_of_groups, totals_of_groups, strict=True):
            penalised_BWV = logprobs_BWV - self.diversity * chosen_BV[:, None]
            ranked = best_candidates(penalised_BWV.flatten(0, 1), total_BW, 2 * rows)
            at_BK = ranked.parent_BK * size + ranked.token_BK
            logprob_BK = logprobs_BWV.flatten(1).gather(1, at_BK).double()
            total_BK = total_BW.gather(1, ranked.parent_BK) + logprob_BK
            selected.append(Candidates(ranked.parent_BK, ranked.token_BK, logprob_BK, total_BK))
            # A finished group has only empty slots, and chooses nothing.
            real_BW = (total_BK[:, :rows] > -torch.inf).to(chosen_BV.dtype)
            chosen_BV.scatter_add_(1, ranked.token_BK[:, :rows], real_BW)
        tables = zip(*(candidates.tables() for candidates in selected), strict=True)
        return Candidates(*(torch.stack(parts, 1).flatten(0, 1) for parts in tables))


def continuing(ended_BK: Bool[Tensor, "B K"], rows: int) -> Int[Tensor, "B W"]:
    """Return the first W candidates that have not ended; where there are too few, ended ones fill the rows."""
    return ended_BK.sort(dim=1, stable=True).indices[:, :rows]


def one_per_row(token_BW: Int[Tensor, "B W"], logprob_BW: Float[Tensor, "B W"], beams: Beams) -> Candidates:
    """Return one candidate for each row: the row itself with this token."""
    logprob_BW = logprob_BW.double()
    parent_BW = torch.arange(token_BW.shape[1], device=token_BW.device).expand_as(token_BW)
    return Candidates(parent_BW, token_BW, logprob_BW, beams.total_BW + logprob_BW)


def best_candidates(logprobs_RV: Float[Tensor, "R V"], total_BW: Float[Tensor, "B W"], count: int) -> Candidates:
    """Return the `count` most probable candidates of each beam, or all if there are fewer."""
    best = top(logprobs_RV, total_BW, count)
    return Candidates(best.row_BK, best.column_BK, best.value_BK.double(), best.sum_BK)


def greatest_among(
    logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"]
) -> tuple[Float[Tensor, " R"], Int[Tensor, " R"]]:
    """Return the greatest log-probability of each row of a list of tokens, and its token."""
    logprob_R, at_R = logprob_RK.max(1)
    return logprob_R, token_RK.gather(1, at_R[:, None])[:, 0]
