"""Lexical constraints: phrases that a hypothesis must contain, by dynamic beam allocation (Post & Vilar 2018).

Hypotheses that have met the same number of constraint tokens form a bank and compete with each other only. Each bank
has a share of the beam, the bank with most tokens first. Beside the most probable candidates, every row offers its most
probable token and each token that continues a constraint. Without constraints this is plain beam search.

With word boundaries, a constraint is met by whole words only. Whether its last token ends a word shows only in the next
token, so a row that ends with a constraint also offers its most probable token that begins a new word.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.beams import Beams, rows_of
from regard.decode.candidates import Candidates, best_candidates
from regard.decode.options import SentenceOptions, WordBoundaries
from regard.decode.rules import NEVER
from regard.decode.topk import greatest


class ConstrainedSelector:
    """Selects candidates so that every bank has its share."""

    independent = False
    static = False

    def __init__(self, sentences: Sequence[SentenceOptions], end: int, device: torch.device | str) -> None:
        """Take the constraints of each beam."""
        longest = max(len(phrase) for sentence in sentences for phrase in sentence.constraints)
        most = max(len(sentence.constraints) for sentence in sentences)
        filled = [
            [list(phrase) + [NEVER] * (longest - len(phrase)) for phrase in sentence.constraints]
            + [[NEVER] * longest] * (most - len(sentence.constraints))
            for sentence in sentences
        ]
        self.phrases_BKT = torch.tensor(filled, device=device)
        self.end = end
        given = next((sentence.boundaries for sentence in sentences if sentence.boundaries is not None), None)
        self.boundaries = None if given is None else BoundaryTable(given, device)

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return twice as many candidates as rows, from bank to bank in turn; none ends with a constraint unmet."""
        rows = beams.total_BW.shape[1]
        phrases_RKT = rows_of(self.phrases_BKT, beams)
        history_RT, length_R = beams.history_BWT.flatten(0, 1), rows_of(beams.length_B, beams)
        met_RK, begun_RK, ends_R = progress(history_RT, length_R, phrases_RKT, self.boundaries)
        logprobs_RV[:, self.end].masked_fill_(~met_RK.all(1), -torch.inf)
        # What each row offers, however improbable: its best token, and the next token of each unmet constraint, which
        # is the first one of a constraint that has not begun.
        next_RK = phrases_RKT.gather(2, begun_RK[:, :, None])[:, :, 0].masked_fill(met_RK, NEVER)
        offered_RK = torch.cat([greatest(logprobs_RV)[1][:, None], next_RK], 1)
        if self.boundaries is not None:
            last_R = history_RT.gather(1, (length_R - 1).clamp(min=0)[:, None])[:, 0].clamp(min=0)
            continues_RV = self.boundaries.continuing(last_R) & ends_R[:, None]
            new_word_R = greatest(logprobs_RV.masked_fill(continues_RV, -torch.inf))[1]
            offered_RK = torch.cat([offered_RK, new_word_R[:, None]], 1)
        candidates = _merge(best_candidates(logprobs_RV, beams.total_BW, 2 * rows), offered_RK, logprobs_RV, beams)
        bank_BK = self._banks(candidates, beams)
        return candidates.at(_in_turn(candidates.total_BK, bank_BK)[:, : 2 * rows])

    def _banks(self, candidates: Candidates, beams: Beams) -> Int[Tensor, "B K"]:
        """Return how many constraint tokens candidates have met, those of an unfinished constraint included."""
        # The history of a candidate is that of its parent with the candidate's token at the end.
        count, size = candidates.token_BK.shape
        width = beams.history_BWT.shape[2]
        history = beams.history_BWT.gather(1, candidates.parent_BK[:, :, None].expand(-1, -1, width))
        position = beams.length_B[:, None, None].expand(-1, size, 1)
        history = history.scatter(2, position.clamp(max=width - 1), candidates.token_BK[:, :, None])
        phrases_RKT = self.phrases_BKT.repeat_interleave(size, 0)
        length_R = (beams.length_B + 1).repeat_interleave(size)
        met_RK, begun_RK, _ = progress(history.flatten(0, 1), length_R, phrases_RKT, self.boundaries)
        size_RK = (phrases_RKT != NEVER).sum(2)
        return ((met_RK * size_RK).sum(1) + begun_RK.amax(1)).view(count, size)


class BoundaryTable:
    """`WordBoundaries` as tensors."""

    def __init__(self, boundaries: WordBoundaries, device: torch.device | str) -> None:
        """Copy the tables to a device."""
        self.first_V = torch.from_numpy(boundaries.first).to(device, torch.int64)
        self.last_V = torch.from_numpy(boundaries.last).to(device, torch.int64)
        self.joins_CC = torch.tensor(boundaries.joins, device=device)

    def continuing(self, last_R: Int[Tensor, " R"]) -> Bool[Tensor, "R V"]:
        """Return which tokens continue the word that ends with the last token of each row."""
        return self.joins_CC[self.last_V[last_R]][:, self.first_V]

    def inside(self, history_RT: Int[Tensor, "R T"], length_R: Int[Tensor, " R"]) -> Bool[Tensor, "R T"]:
        """Return which tokens of each row continue the word of the token before them."""
        token_RT = history_RT.clamp(min=0)
        joined_RT = torch.zeros_like(token_RT, dtype=torch.bool)
        joined_RT[:, 1:] = self.joins_CC[self.last_V[token_RT[:, :-1]], self.first_V[token_RT[:, 1:]]]
        return joined_RT & (torch.arange(token_RT.shape[1], device=token_RT.device) < length_R[:, None])


class ConstraintProgress(NamedTuple):
    """How far the constraints of rows are met."""

    met_RK: Tensor
    """Which constraints each row contains; an empty slot counts as one that is met."""
    begun_RK: Tensor
    """How many tokens of each other constraint are the row's last tokens."""
    ends_R: Tensor
    """Whether the row ends with a whole constraint, which the next token can make a part of a longer word."""


def progress(
    history_RT: Int[Tensor, "R T"],
    length_R: Int[Tensor, " R"],
    phrases_RKT: Int[Tensor, "R K T2"],
    boundaries: BoundaryTable | None = None,
) -> ConstraintProgress:
    """Return how far the rows meet their constraints, anywhere or only by whole words."""
    size_RK = (phrases_RKT != NEVER).sum(2)
    positions = torch.arange(history_RT.shape[1], device=history_RT.device)
    left_RT = (length_R[:, None] - positions).clamp(min=0)
    # For each row, phrase and position: how many tokens from there on are the first tokens of the phrase, and whether
    # all of those compared so far are.
    matched = torch.zeros(*size_RK.shape, history_RT.shape[1], dtype=torch.int64, device=history_RT.device)
    alive = torch.ones_like(matched, dtype=torch.bool)
    if boundaries is None:
        inside_RT = torch.zeros_like(history_RT, dtype=torch.bool)
    else:
        inside_RT = boundaries.inside(history_RT, length_R)
        alive &= ~inside_RT[:, None]
    for j in range(phrases_RKT.shape[2]):
        token_RT = history_RT.roll(-j, 1)[:, None]
        alive = alive & (token_RT == phrases_RKT[:, :, j : j + 1]) & (left_RT > j)[:, None]
        matched += alive
    # A phrase that matches wholly is met if a word ends after it. One whose match reaches the end of the row is begun.
    after = (positions + size_RK[:, :, None]).clamp(max=history_RT.shape[1])
    is_word = ~torch.cat([inside_RT, torch.zeros_like(inside_RT[:, :1])], 1)[:, None].expand(-1, after.shape[1], -1)
    whole = matched >= size_RK[:, :, None]
    met_RK = (whole & is_word.gather(2, after)).any(2)
    ends_R = (whole & (after == length_R[:, None, None]) & (size_RK > 0)[:, :, None]).flatten(1).any(1)
    unfinished = (matched == left_RT[:, None]) & (matched > 0)
    begun_RK = (matched * unfinished).amax(2).masked_fill(met_RK, 0)
    return ConstraintProgress(met_RK, begun_RK, ends_R)


def _merge(candidates: Candidates, offered_RK: Int[Tensor, "R K"], logprobs_RV: Tensor, beams: Beams) -> Candidates:
    """Append the tokens that rows offer to the candidates; each pair of row and token appears once."""
    count, rows = beams.total_BW.shape
    size = logprobs_RV.shape[1]
    row_BWK = torch.arange(rows, device=offered_RK.device)[:, None].expand(count, rows, offered_RK.shape[1])
    token_BK, parent_BK = offered_RK.view(count, -1), row_BWK.reshape(count, -1)
    logprob_BK = logprobs_RV.gather(1, offered_RK.clamp(min=0)).view(count, -1).double()
    total_BK = beams.total_BW.gather(1, parent_BK) + logprob_BK
    offered = Candidates(
        parent_BK, token_BK.clamp(min=0), logprob_BK, total_BK.masked_fill(token_BK == NEVER, -torch.inf)
    )
    merged = candidates.append(offered)
    pair_BK = merged.parent_BK * size + merged.token_BK
    # An empty slot must not count as the duplicate of a real candidate.
    real_BK = merged.total_BK > -torch.inf
    equal_BKK = (pair_BK[:, :, None] == pair_BK[:, None]) & real_BK[:, None]
    duplicate_BK = equal_BKK.tril(-1).any(2)
    total_BK = merged.total_BK.masked_fill(duplicate_BK, -torch.inf)
    return Candidates(merged.parent_BK, merged.token_BK, merged.logprob_BK, total_BK)


def _in_turn(total_BK: Float[Tensor, "B K"], bank_BK: Int[Tensor, "B K"]) -> Int[Tensor, "B K"]:
    """Return the order that takes the best of each bank, then the second of each, and so on, fuller banks first."""
    # The rank of a candidate in its bank is the number of better ones in it; equal ones keep their order.
    better_BKK = total_BK[:, None] > total_BK[:, :, None]
    earlier_BKK = (total_BK[:, None] == total_BK[:, :, None]).tril(-1)
    same_bank_BKK = bank_BK[:, None] == bank_BK[:, :, None]
    rank_BK = ((better_BKK | earlier_BKK) & same_bank_BKK).sum(2)
    # Sort by rank, and within a rank by bank, from the one with the most constraint tokens down.
    banks = bank_BK.amax() + 1
    key_BK = rank_BK * banks + (banks - 1 - bank_BK)
    return key_BK.masked_fill(total_BK == -torch.inf, torch.iinfo(torch.int64).max).sort(dim=1, stable=True).indices
