"""The search itself: from token to token, from live hypotheses to ended ones.

    search = Search(stepper, state, wishes, options)
    while search.wishes:
        search.advance()
        for number, hypotheses in search.leave(): ...

One step: ask the stepper, forbid what may not be, pick candidates, take out those that ended, go on with the best of
the others, and see which beams are done. Beside the stepper's own work that is a few small tensors.
"""

import math
from collections.abc import Sequence
from typing import Generic

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.decode.choose import Best, Candidates, Chooser, Greedy
from regard.decode.forbid import rules
from regard.decode.hypothesis import Hypothesis
from regard.decode.live import Live
from regard.decode.options import Options, Wish
from regard.decode.penalty import bound, divisor
from regard.decode.stepper import State, Stepper
from regard.decode.trellis import Trellis

GLANCE = 8
"""Steps between two looks at what a device has done: each look waits for it. A CPU is looked at every step."""


class Search(Generic[State]):
    """Sentences on their way, side by side."""

    def __init__(
        self,
        stepper: Stepper[State],
        state: State,
        wishes: Sequence[Wish],
        options: Options,
        device: torch.device | str = "cpu",
    ) -> None:
        """Begin with a state that has `options.rows` rows for each wish."""
        self.stepper, self.state, self.options = stepper, state, options
        self.wishes, self.numbers = list(wishes), list(range(len(wishes)))
        self.device, self.steps = torch.device(device), 0
        self.born = [0] * len(wishes)
        self.chooser = _chooser(options)
        shape = len(wishes) * options.groups, options.rows // options.groups, self._places()
        self.live = Live.begin(shape, options.begin, self.chooser.independent, device)
        self.trellis = Trellis(len(wishes) * options.rows, device)
        self.moves_R: Tensor | None = None
        self._settle()

    def advance(self) -> None:
        """One more token for every live hypothesis."""
        if self.moves_R is not None:
            self.state = self.stepper.select(self.state, self.moves_R)
        logprobs_RV, self.state = self.stepper.step(self.live.token_BW.flatten(), self.state)
        for rule in self.rules:
            rule(logprobs_RV, self.live)
        found = self.chooser(logprobs_RV, self.live)
        ended_BK = found.token_BK == self.options.end
        # Only a CPU is asked whether anything ended: an answer from a device would have to be waited for.
        some_ended = self.device.type != "cpu" or bool(ended_BK.any())
        if some_ended:
            self._take_out(found, ended_BK)
        self._go_on(found, ended_BK if some_ended else None)
        if self.has_ended:
            self._close()
        self.steps += 1

    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """The sentences that are done, by number, with their hypotheses; they are no longer searched for.

        While few are done they stay, since leaving moves what the stepper keeps of the others.
        """
        last = self.steps >= self.deadline
        look = self.has_ended and (self.device.type == "cpu" or self.steps % GLANCE == 0)
        if not last and not look:
            return []
        done = self.live.done_B.view(-1, self.options.groups).all(1).tolist()
        if not last and sum(done) < max(1, len(done) // 8):
            return []
        left = self._hypotheses([i for i, is_done in enumerate(done) if is_done or last])
        self._keep([i for i, is_done in enumerate(done) if not is_done and not last])
        return left

    def _take_out(self, found: Candidates, ended_BK: Bool[Tensor, "B K"]) -> None:
        """Rank what ended among the best that ended before. To count, it must be among the W first candidates."""
        live, rows = self.live, self.live.total_BW.shape[1]
        found, ended_BW = found.first(rows), ended_BK[:, :rows]
        score_BW = found.total_BK / divisor(live.length_B + 1, self.options)[:, None]
        score_BW = score_BW.masked_fill(~ended_BW, -torch.inf)
        live.ended_B = live.ended_B + (score_BW > -torch.inf).sum(1)
        row_BW = found.parent_BK + self.first_B1
        layer_BW = torch.full_like(row_BW, self.trellis.last)
        live.ends(score_BW, found.total_BK, found.logprob_BK, layer_BW, row_BW)
        self.has_ended = True

    def _go_on(self, found: Candidates, ended_BK: Bool[Tensor, "B K"] | None) -> None:
        """Let the first W candidates that did not end be the live hypotheses."""
        rows = self.live.total_BW.shape[1]
        if ended_BK is None or self.chooser.independent:
            found = found.first(rows)
        else:
            found = found.at(ended_BK.sort(dim=1, stable=True).indices[:, :rows])
        row_R = (found.parent_BK + self.first_B1).flatten()
        self.trellis.push(row_R, found.token_BK.flatten(), found.logprob_BK.flatten())
        self.moves_R = None if self.chooser.independent else row_R
        total_BW = found.total_BK
        if ended_BK is not None:
            total_BW = total_BW.masked_fill(found.token_BK == self.options.end, -torch.inf)
        self.live.goes_on(found.parent_BK, found.token_BK, total_BW)

    def _close(self) -> None:
        """A beam is done when none of its live hypotheses can still become one of the best, or none lives."""
        live, options = self.live, self.options
        best_B = live.total_BW.amax(1)
        if self.chooser.independent:
            live.done_B = best_B == -torch.inf
        elif options.stopping == "full":
            live.done_B = (live.ended_B >= live.total_BW.shape[1]) | (best_B == -torch.inf)
        else:
            live.done_B = live.score_BN[:, -1] >= bound(best_B, live.length_B, self.limit_B, options)
        # Whoever is done but stays a while must not find more: company would change what is found.
        live.total_BW = live.total_BW.masked_fill(live.done_B[:, None], -torch.inf)

    def _hypotheses(self, sentences: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """The best hypotheses of some sentences, with their numbers."""
        live, groups = self.live, self.options.groups
        beams_B = torch.tensor([i * groups + g for i in sentences for g in range(groups)], device=self.device)
        tables = (live.score_BN, live.sum_BN, live.last_BN, live.layer_BN, live.row_BN)
        lines = zip(*(table[beams_B].view(len(sentences), -1).tolist() for table in tables), strict=True)
        found = []
        for i, line in zip(sentences, lines, strict=True):
            most = self.options.limits.of(self.wishes[i])[1]
            ranked = sorted(zip(*line, strict=True), key=lambda place: -place[0])
            wanted = self._places() if self.chooser.independent else self.options.nbest
            good = [self._hypothesis(place, most) for place in ranked if place[0] != -math.inf]
            found.append((self.numbers[i], good[:wanted]))
        return found

    def _hypothesis(self, place: tuple[float, float, float, int, int], most: int) -> Hypothesis:
        """What ended after a row of a layer: its score, log-probability, that of its end, layer and row."""
        score, total, last, layer, row = place
        if math.isnan(score):
            raise ValueError("the stepper gave log-probabilities that are not numbers; look at the model's weights")
        tokens, logprobs = self.trellis.trace(layer, row)
        return Hypothesis(tokens, score, total, (*logprobs, last), len(tokens) >= most)

    def _keep(self, sentences: list[int]) -> None:
        """Go on with these sentences only."""
        self.wishes = [self.wishes[i] for i in sentences]
        self.numbers = [self.numbers[i] for i in sentences]
        self.born = [self.born[i] for i in sentences]
        if not sentences:
            return
        groups, rows = self.options.groups, self.options.rows
        kept_B = torch.tensor([i * groups + g for i in sentences for g in range(groups)], device=self.device)
        kept_R = torch.tensor([i * rows + w for i in sentences for w in range(rows)], device=self.device)
        self.live = self.live.only(kept_B)
        self.trellis.renumber(kept_R)
        self.moves_R = kept_R if self.moves_R is None else self.moves_R[kept_R]
        self._settle()

    def _settle(self) -> None:
        """Make what depends on which sentences there are."""
        groups, limits = self.options.groups, self.options.limits
        wishes = [wish for wish in self.wishes for _ in range(groups)]
        lengths = [self.steps - born for born in self.born for _ in range(groups)]
        self.rules = rules(wishes, lengths, self.options, self.device)
        most = [limits.of(wish)[1] + 1 for wish in wishes]
        self.limit_B = torch.tensor(most, device=self.device)
        self.deadline = self.steps + max(one - length for one, length in zip(most, lengths, strict=True))
        beams, rows = self.live.total_BW.shape
        self.first_B1 = torch.arange(0, beams * rows, rows, device=self.device)[:, None]
        self.has_ended = self.device.type != "cpu" or bool((self.live.ended_B > 0).any())

    def _places(self) -> int:
        """How many ended hypotheses a beam keeps: rows by themselves keep all."""
        return self.options.rows if self.chooser.independent else self.options.nbest


def search(
    stepper: Stepper[State],
    state: State,
    wishes: Sequence[Wish],
    options: Options,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, the best first, in the order of the wishes.

    The state has `options.rows` rows for each wish: `model.start(source, options.rows)`. A sentence whose wishes
    nothing satisfies has no hypothesis; without wishes there is always one.
    """
    if not wishes:
        return []
    running = Search(stepper, state, wishes, options, device)
    found: list[list[Hypothesis]] = [[] for _ in wishes]
    while running.wishes:
        running.advance()
        for number, hypotheses in running.leave():
            found[number] = hypotheses
    return found


def _chooser(options: Options) -> Chooser:
    """What picks the candidates."""
    return Greedy() if options.beam == 1 else Best()
