"""Scores of hypotheses, and what happens to the candidates of a step: some end, the best others continue.

The score of a hypothesis Y of n tokens, counting its end symbol, is (Wu et al. 2016, eq. 14)

    score(Y) = log p(Y) / lp(n) + beta · Σ over source tokens of log(min(attention received, 1))

where lp(n) is ((5 + n) / 6) ** alpha, or n ** alpha.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.beams import Beams
from regard.decode.candidates import Candidates, continuing
from regard.decode.options import SearchOptions, SentenceOptions, length_bounds

Layer = tuple[Tensor, Tensor, Tensor]
"""What a step adds to the trellis: the row that each row continues, its token, and the token's log-probability."""

LEAST_COVERAGE = 1e-10
"""Coverage of a source token that received no attention: the logarithm of a true zero would forbid the hypothesis."""


def length_divisors(longest: int, options: SearchOptions) -> tuple[float, ...]:
    """Return lp(n) for each n up to `longest` at least: what divides the log-probability of n tokens, the end included.

    They are computed one by one on the host. A vectorised power rounds differently at the end of a tensor, so a score
    would depend on the length of the longest sentence in the batch.
    """
    return _divisors(1 << longest.bit_length(), options.length_penalty, options.normalise == "gnmt")


@lru_cache(maxsize=256)
def _divisors(count: int, penalty: float, gnmt: bool) -> tuple[float, ...]:
    # No hypothesis has 0 tokens: it has at least the end symbol.
    return 1.0, *(math.pow((5 + length) / 6 if gnmt else length, penalty) for length in range(1, count))


def lost_coverage(coverage_BWS: Float[Tensor, "B W S"], source_length_B: Int[Tensor, " B"]) -> Float[Tensor, "B W"]:
    """Return what hypotheses lose for source tokens that received less than one unit of attention, at a weight of 1."""
    real_BS = torch.arange(coverage_BWS.shape[-1], device=source_length_B.device) < source_length_B[:, None]
    penalty_BWS = coverage_BWS.clamp(LEAST_COVERAGE, 1).log() * real_BS[:, None]
    # A cumulative sum adds from left to right. The order of a plain sum, and so its rounding, depends on the padding.
    return penalty_BWS.cumsum(-1)[..., -1]


class Ranker:
    """Ranks the candidates of each step and updates the table of beams."""

    def __init__(
        self,
        beams: Beams,
        searches: Sequence[SearchOptions],
        sentences: Sequence[SentenceOptions],
        independent: bool,
        no_sync: bool = False,
        bounds: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Prepare to rank the candidates of these beams.

        Args:
            beams: The table, which every step changes.
            searches: Options of the search of each beam. Penalties, limits and the number of results may differ.
            sentences: Options of the sentence of each beam.
            independent: Whether rows do not compete, so that every row stays in its place.
            no_sync: Never read a tensor on the host. On a device that is always so, since the host would wait for it.
            bounds: Minimum and maximum length of each beam, if they are known already.
        """
        device = beams.total_BW.device
        self.beams, self.options, self.independent = beams, searches[0], independent
        self.no_sync = no_sync or device.type != "cpu"
        maxima = [most + 1 for _, most in bounds or length_bounds(searches, sentences)]
        # Lengths are few and known, so divisors are looked up instead of computed in each step: a row for each penalty.
        numbers: dict[tuple[float, str], int] = {}
        kinds = [numbers.setdefault((one.length_penalty, one.normalise), len(numbers)) for one in searches]
        divisors = [length_divisors(max(maxima) + 2, searches[kinds.index(kind)]) for kind in range(len(numbers))]
        self.divisor_PT = torch.tensor(divisors, dtype=torch.float64, device=device)
        self.penalty_B = torch.tensor(kinds, device=device)
        self.limit_divisor_B = self.divisor_PT[self.penalty_B, torch.tensor(maxima, device=device)]
        rewards = {one.length_penalty >= 0 for one in searches}
        self.rewards_length_B = torch.tensor([one.length_penalty >= 0 for one in searches], device=device)
        self.rewards_length = rewards.pop() if len(rewards) == 1 else None
        """Whether the penalty of all beams rewards length; None if that of some does."""
        slots = [one.ended_slots for one in searches]
        self.last_slot_B1 = None if len(set(slots)) == 1 else torch.tensor(slots, device=device)[:, None] - 1
        """The last slot of each beam; None if that is the last one of the table."""
        self.last_slot = slots[0] - 1
        weights = [[one.coverage_penalty] for one in searches]
        self.coverage_penalty_B1 = torch.tensor(weights, dtype=torch.float64, device=device)
        self.source_length_B = torch.tensor([sentence.source_length for sentence in sentences], device=device)
        count, rows = beams.total_BW.shape
        self.first_row_B1 = torch.arange(0, count * rows, rows, device=device)[:, None]
        self.may_finish = self.no_sync or bool(((beams.ended_count_B > 0) | beams.done_B).any())
        """Whether a beam may be finished: some hypothesis has ended, or some beam has no live hypothesis."""

    def step(self, candidates: Candidates, layer: int | Tensor) -> Layer:
        """Collect candidates that ended, continue with the best others, and see which beams are finished.

        Args:
            candidates: The candidates of each beam, best first.
            layer: Number of the newest layer of the trellis.
        """
        # On a CPU both questions are answered by NumPy: each takes 1 µs instead of the 10 µs of several small kernels.
        ended_BK = None
        if self.no_sync or bool((candidates.token_BK.numpy() == self.options.end).any()):
            ended_BK = candidates.token_BK == self.options.end
            self._collect_ended(candidates, ended_BK, layer)
        added = self._continue(candidates, ended_BK)
        # A beam whose every continuation is forbidden is finished too, although nothing has ended. Its live hypotheses
        # come first.
        self.may_finish = self.may_finish or bool((self.beams.total_BW.numpy()[:, 0] == -math.inf).any())
        if self.may_finish:
            self._finish()
        return added

    def scores(self, candidates: Candidates) -> Float[Tensor, "B K"]:
        """Return the scores of candidates, with penalties."""
        beams = self.beams
        score_BK = candidates.total_BK / self.divisor_PT[self.penalty_B, beams.length_B + 1][:, None]
        if self.options.coverage_penalty:
            loss_BW = self.coverage_penalty_B1 * lost_coverage(beams.coverage_BWS, self.source_length_B)
            score_BK = score_BK + loss_BW.gather(1, candidates.parent_BK)
        return score_BK

    def _collect_ended(self, candidates: Candidates, ended_BK: Bool[Tensor, "B K"], layer: int | Tensor) -> None:
        """Rank ended candidates among those that ended before. Only the first W candidates of a beam count."""
        beams, rows = self.beams, self.beams.total_BW.shape[1]
        candidates = candidates.first(rows)
        score_BW = torch.where(ended_BK[:, :rows], self.scores(candidates), -torch.inf)
        beams.ended_count_B = beams.ended_count_B + (score_BW > -torch.inf).sum(1)
        row_BW = candidates.parent_BK + self.first_row_B1
        layer_BW = layer.expand_as(row_BW) if isinstance(layer, Tensor) else torch.full_like(row_BW, layer)
        beams.add_ended(score_BW, candidates.total_BK, candidates.logprob_BK, layer_BW, row_BW)
        self.may_finish = True

    def _continue(self, candidates: Candidates, ended_BK: Bool[Tensor, "B K"] | None) -> Layer:
        """Make the first W candidates that have not ended the live hypotheses."""
        beams, rows = self.beams, self.beams.total_BW.shape[1]
        if ended_BK is None or self.independent:
            chosen = candidates.first(rows)
        else:
            chosen = candidates.at(continuing(ended_BK, rows))
        total_BW = chosen.total_BK
        if ended_BK is not None:
            total_BW = total_BW.masked_fill(chosen.token_BK == self.options.end, -torch.inf)
        beams.extend(chosen.parent_BK, chosen.token_BK, total_BW)
        parent_R = (chosen.parent_BK + self.first_row_B1).flatten()
        return parent_R, chosen.token_BK.flatten(), chosen.logprob_BK.flatten()

    def _finish(self) -> None:
        """Finish the beams of which no live hypothesis is left, or none can still become one of the best."""
        beams, options, rows = self.beams, self.options, self.beams.total_BW.shape[1]
        best_B = beams.total_BW.amax(1)
        if options.sampling is not None:
            beams.done_B = best_B == -torch.inf
        elif options.stopping == "full" or rows == 1:  # greedy search is over when its only hypothesis ends
            beams.done_B = (beams.ended_count_B >= rows) | (best_B == -torch.inf)
        else:
            # Finished when all slots are filled and no live hypothesis can still score better than the worst of them.
            worst_B = beams.ended_score_BN[:, self.last_slot]
            if self.last_slot_B1 is not None:
                worst_B = beams.ended_score_BN.gather(1, self.last_slot_B1)[:, 0]
            beams.done_B = worst_B >= best_B / self._best_divisor()
        # A finished beam stays for some steps; if it found more in them, its result would depend on the batch.
        beams.total_BW = beams.total_BW.masked_fill(beams.done_B[:, None], -torch.inf)

    def _best_divisor(self) -> Float[Tensor, " B"]:
        """Return the divisor that gives a live hypothesis the best score it can still reach.

        Log-probabilities only fall and the coverage penalty only subtracts. So no score can be higher than if the rest
        cost nothing and had the best length: the maximum if the penalty rewards length, else the present one.
        """
        if self.rewards_length:
            return self.limit_divisor_B
        present_B = self.divisor_PT[self.penalty_B, self.beams.length_B + 1]
        if self.rewards_length is None:
            return torch.where(self.rewards_length_B, self.limit_divisor_B, present_B)
        return present_B
