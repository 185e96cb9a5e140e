"""What becomes of the candidates of a step: some end, the best of the others go on, and some beams are done."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.decode.choose import Candidates, going_on
from regard.decode.live import Live
from regard.decode.options import Options, Wish
from regard.decode.penalty import coverage, divisor

Layer = tuple[Tensor, Tensor, Tensor]
"""What a step adds to the history: the row each row goes on from, its token, and the token's log-probability."""


class Judge:
    """Decides over the beams in a table, which it writes."""

    def __init__(
        self, live: Live, options: Options, wishes: Sequence[Wish], independent: bool, blind: bool = False
    ) -> None:
        """Beams with these wishes, one each; rows that are `independent` keep their places.

        One who is `blind` never looks at what is computed, since an answer from a device would have to be waited for.
        """
        device = live.total_BW.device
        self.live, self.options, self.independent = live, options, independent
        self.blind = blind or device.type != "cpu"
        most = [options.limits.of(wish)[1] + 1 for wish in wishes]
        # Lengths are few and known, so what scores are divided by is looked up rather than computed in each step.
        self.divisor_T = divisor(torch.arange(max(most) + 3, device=device), options)
        self.limit_divisor_B = self.divisor_T[torch.tensor(most, device=device)]
        self.source_B = torch.tensor([wish.source for wish in wishes], device=device)
        beams, rows = live.total_BW.shape
        self.first_B1 = torch.arange(0, beams * rows, rows, device=device)[:, None]
        """The first row of each beam."""
        self.has_ended = self.blind or bool((live.ended_B > 0).any())

    def decide(self, found: Candidates, layer: int | Tensor) -> Layer:
        """Take out what ended, go on with the best of the others, and see who is done; `layer` is the newest one."""
        ended_BK = found.token_BK == self.options.end
        some_ended = self.blind or bool(ended_BK.any())
        if some_ended:
            self._take_out(found, ended_BK, layer)
        added = self._go_on(found, ended_BK if some_ended else None)
        if self.has_ended:
            self._close()
        return added

    def scores(self, found: Candidates) -> Float[Tensor, "B K"]:
        """What candidates score, penalties applied."""
        live = self.live
        score_BK = found.total_BK / self.divisor_T[live.length_B + 1][:, None]
        if self.options.coverage_penalty:
            lost_BW = coverage(live.received_BWS, self.source_B, self.options)
            score_BK = score_BK + lost_BW.gather(1, found.parent_BK)
        return score_BK

    def _take_out(self, found: Candidates, ended_BK: Bool[Tensor, "B K"], layer: int | Tensor) -> None:
        """Rank what ended among the best that ended before. To count, it must be among the W first candidates."""
        live, rows = self.live, self.live.total_BW.shape[1]
        found = found.first(rows)
        score_BW = torch.where(ended_BK[:, :rows], self.scores(found), -torch.inf)
        live.ended_B = live.ended_B + (score_BW > -torch.inf).sum(1)
        row_BW = found.parent_BK + self.first_B1
        layer_BW = layer.expand_as(row_BW) if isinstance(layer, Tensor) else torch.full_like(row_BW, layer)
        live.ends(score_BW, found.total_BK, found.logprob_BK, layer_BW, row_BW)
        self.has_ended = True

    def _go_on(self, found: Candidates, ended_BK: Bool[Tensor, "B K"] | None) -> Layer:
        """Let the first W candidates that did not end be the live hypotheses."""
        live, rows = self.live, self.live.total_BW.shape[1]
        found = found.first(rows) if ended_BK is None or self.independent else found.at(going_on(ended_BK, rows))
        total_BW = found.total_BK
        if ended_BK is not None:
            total_BW = total_BW.masked_fill(found.token_BK == self.options.end, -torch.inf)
        live.goes_on(found.parent_BK, found.token_BK, total_BW)
        return (found.parent_BK + self.first_B1).flatten(), found.token_BK.flatten(), found.logprob_BK.flatten()

    def _close(self) -> None:
        """A beam is done when none of its live hypotheses can still become one of the best, or none lives."""
        live, options, rows = self.live, self.options, self.live.total_BW.shape[1]
        best_B = live.total_BW.amax(1)
        if options.sampling is not None:
            live.done_B = best_B == -torch.inf
        elif options.stopping == "full" or rows == 1:  # a beam of one is greedy: its end is the end
            live.done_B = (live.ended_B >= rows) | (best_B == -torch.inf)
        else:
            live.done_B = live.score_BN[:, -1] >= best_B / self._best_divisor()
        # Whoever is done but stays a while must not find more: company would change what is found.
        live.total_BW = live.total_BW.masked_fill(live.done_B[:, None], -torch.inf)

    def _best_divisor(self) -> Float[Tensor, " B"]:
        """What a live hypothesis's log-probability is divided by at best.

        The log-probability can only fall and a coverage penalty only subtract, so no score can become higher than if
        the rest cost nothing and had the length that suits it: the greatest if length is rewarded, else the least.
        """
        rewarded = self.options.length_penalty >= 0
        return self.limit_divisor_B if rewarded else self.divisor_T[self.live.length_B + 1]
