"""The search itself: from token to token, from live hypotheses to ended ones.

    running = Search(stepper, options)
    running.add(state, wishes)
    while running.wishes:
        running.advance()
        for number, hypotheses in running.leave(): ...

One step: ask the stepper, forbid what may not be, pick candidates, take out those that ended, go on with the best of
the others, and see which beams are done. Beside the stepper's own work that is a few small tensors.
"""

import math
from collections.abc import Collection, Sequence
from typing import Generic

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decode.choose import Best, Candidates, Chooser, Diverse, Greedy, going_on
from regard.decode.constraints import Constrained
from regard.decode.forbid import Rules
from regard.decode.greedy import GLANCE, GreedySearch, is_plain
from regard.decode.hypothesis import Hypothesis
from regard.decode.judge import Judge
from regard.decode.live import Live, join
from regard.decode.options import Options, Wish
from regard.decode.run import run
from regard.decode.sample import Sample
from regard.decode.stepper import Attender, Joiner, Runner, Shortlister, State, Stepper
from regard.decode.tree import Forest, Tree
from regard.decode.trellis import ROOT, Trellis


class Search(Generic[State]):
    """Sentences on their way, side by side."""

    rules: Rules
    chooser: Chooser
    judge: Judge

    def __init__(
        self,
        stepper: Stepper[State],
        options: Options,
        device: torch.device | str = "cpu",
        forest: Forest | None = None,
    ) -> None:
        """A search without sentences yet; with a forest, it keeps every candidate it looks at."""
        self.stepper, self.options, self.forest = stepper, options, forest
        self.shortlister = stepper if isinstance(stepper, Shortlister) else None
        self.device, self.steps, self.added = torch.device(device), 0, 0
        self.wishes: list[Wish] = []
        self.numbers: list[int] = []
        self.born: list[tuple[int, int]] = []
        self.moves_R: Tensor | None = None
        if options.coverage_penalty and not isinstance(stepper, Attender):
            raise ValueError("a coverage penalty asks where the model looks, which this stepper does not say")

    @torch.inference_mode()
    def add(self, state: State, wishes: Sequence[Wish]) -> None:
        """Search for more sentences; the state has `options.rows` rows for each. They are numbered as they come."""
        for wish in wishes:
            self.options.check(wish)
        wishes, options = list(wishes), self.options
        count = len(wishes) * options.rows
        independent = options.rows == 1 or options.sampling is not None
        shape = len(wishes) * options.groups, options.rows // options.groups, options.places
        live = Live.begin(shape, options.begin, independent, self.device)
        if not self.wishes:
            self.state, self.live, self.trellis = state, live, Trellis(count, self.device)
        elif not isinstance(self.stepper, Joiner):
            raise ValueError("this stepper takes no new sentences while others are on their way")
        else:
            self._move()
            self.state = self.stepper.join([self.state, state])
            there = torch.arange(len(self.wishes) * options.rows, device=self.device)
            self.trellis.renumber(torch.cat([there, there.new_full((count,), ROOT)]))
            self.live = join([self.live, live])
        self.wishes += wishes
        self.numbers += range(self.added, self.added + len(wishes))
        self.born += [(self.steps, self.trellis.last)] * len(wishes)
        self.added += len(wishes)
        self._settle()

    @torch.inference_mode()
    def advance(self) -> None:
        """One more token for every live hypothesis."""
        if not self.wishes:
            return
        self._move()
        enough = self._shortlist()
        found = self._ask() if enough is None else self._ask_for_list(enough)
        if self.forest is not None:
            self._record(found)
        layer = self.judge.decide(found, self.trellis.last)
        self.trellis.push(*layer)
        self.moves_R = None if self.chooser.independent else layer[0]
        self.steps += 1

    @torch.inference_mode()
    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """The sentences that are done, by number, with their hypotheses; they are no longer searched for.

        While few are done they stay, since leaving moves what the stepper keeps of the others.
        """
        if not self.wishes:
            return []
        last = self.steps >= self.deadline
        look = self.judge.has_ended and (self.device.type == "cpu" or self.steps % GLANCE == 0)
        if not last and not look:
            return []
        done = self.live.done_B.view(-1, self.options.groups).all(1).tolist()
        if not last and sum(done) < max(1, len(done) // 8):
            return []
        left = self._hypotheses([i for i, is_done in enumerate(done) if is_done or last])
        self._keep([i for i, is_done in enumerate(done) if not is_done and not last])
        return left

    @torch.inference_mode()
    def drop(self, numbers: Collection[int]) -> None:
        """Search no longer for the sentences of these numbers."""
        kept = [i for i, number in enumerate(self.numbers) if number not in numbers]
        if len(kept) < len(self.numbers):
            self._keep(kept)

    def settled(self, number: int) -> tuple[int, ...]:
        """The tokens that every hypothesis of a sentence, live or ended, begins with: they are final."""
        live, place = self.live, self.numbers.index(number)
        begin, end = place * self.options.groups, (place + 1) * self.options.groups
        rows = (self.judge.first_B1 + torch.arange(live.total_BW.shape[1], device=self.device))[begin:end]
        alive = rows[live.total_BW[begin:end] > -torch.inf].tolist()
        ended = live.score_BN[begin:end] > -torch.inf
        places = zip(live.layer_BN[begin:end][ended].tolist(), live.row_BN[begin:end][ended].tolist(), strict=True)
        told = [self.trellis.trace(*place)[0] for place in (*((self.trellis.last, row) for row in alive), *places)]
        least, most = min(told, default=()), max(told, default=())
        alike = (at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other)
        return least[: next(alike, len(least))]

    def _ask(self) -> Candidates:
        """Ask the stepper, and pick candidates from what it says and no rule forbids."""
        logprobs_RV, self.state = self.stepper.step(self.live.token_BW.flatten(), self.state)
        if self.options.coverage_penalty and isinstance(self.stepper, Attender):
            self.live.looked(self.stepper.attention(self.state))
        self.rules(logprobs_RV, self.live)
        return self.chooser(logprobs_RV, self.live)

    def _shortlist(self) -> int | None:
        """How many of the best tokens of each row are enough for this step; None if all must be seen."""
        spare = self.rules.spare
        if self.shortlister is None or spare is None or not isinstance(self.chooser, Best | Greedy):
            return None
        reach = self.chooser.reach(self.live.total_BW.shape[1]) + spare
        return None if self.options.coverage_penalty or reach > self.shortlister.listed else reach

    def _ask_for_list(self, reach: int) -> Candidates:
        """Ask for the best few tokens of each row, and pick candidates among them."""
        assert self.shortlister is not None, "there is somebody to ask"
        logprob_RK, token_RK, self.state = self.shortlister.top(self.live.token_BW.flatten(), self.state, reach)
        assert isinstance(self.chooser, Best | Greedy), "only these need no more"
        return self.chooser.among(self.rules.strike(logprob_RK, token_RK, self.live), token_RK, self.live)

    def _move(self) -> None:
        """Let the stepper follow where rows went; put off until its next step, so that it moves only once."""
        if self.moves_R is not None:
            self.state = self.stepper.select(self.state, self.moves_R)
            self.moves_R = None

    def _record(self, found: Candidates) -> None:
        """Note every candidate of this step in the forest."""
        assert self.forest is not None, "there is a forest to note it in"
        ended_BK = found.token_BK == self.options.end
        rows = self.live.total_BW.shape[1]
        going_BW = found.parent_BK if self.chooser.independent else going_on(ended_BK, rows)
        fates = ended_BK, going_BW
        self.forest.grow(self.numbers, found, self.judge.scores(found), fates, self.live.length_B)

    def _hypotheses(self, sentences: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """The best hypotheses of some sentences, with their numbers."""
        live, options = self.live, self.options
        beams_B = self._spread(sentences, options.groups)
        tables = (live.score_BN, live.sum_BN, live.last_BN, live.layer_BN, live.row_BN)
        lines = zip(*(table[beams_B].view(len(sentences), -1).tolist() for table in tables), strict=True)
        found = []
        for i, line in zip(sentences, lines, strict=True):
            most = options.limits.of(self.wishes[i])[1]
            ranked = sorted(zip(*line, strict=True), key=lambda place: -place[0])
            wanted = options.nbest if options.sampling is None else options.sampling.count
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
            self.moves_R = None
            return
        kept_R = self._spread(sentences, self.options.rows)
        self.live = self.live.only(self._spread(sentences, self.options.groups))
        self.trellis.renumber(kept_R)
        self.trellis.drop(min(layer for _, layer in self.born))
        self.moves_R = kept_R if self.moves_R is None else self.moves_R[kept_R]
        self._settle()

    def _settle(self) -> None:
        """Make what depends on which sentences there are."""
        options, groups = self.options, self.options.groups
        wishes = [wish for wish in self.wishes for _ in range(groups)]
        lengths = [self.steps - step for step, _ in self.born for _ in range(groups)]
        most = [options.limits.of(wish)[1] + 1 for wish in wishes]
        self.deadline = self.steps + max(one - length for one, length in zip(most, lengths, strict=True))
        self.rules = Rules(wishes, lengths, options, self.device)
        self.chooser = _chooser(wishes, options, self.device)
        if self.rules.look_back or isinstance(self.chooser, Constrained):
            self.live.remember(max(most) + 1)
        self.judge = Judge(self.live, options, wishes, self.chooser.independent)

    def _spread(self, sentences: list[int], each: int) -> Int[Tensor, " N"]:
        """The beams or rows of some sentences, so many each."""
        return torch.tensor([i * each + j for i in sentences for j in range(each)], device=self.device)


def _chooser(wishes: Sequence[Wish], options: Options, device: torch.device | str) -> Chooser:
    """What picks the candidates."""
    if options.sampling is not None:
        return Sample([wish.seed for wish in wishes], options.sampling, device)
    if any(wish.phrases for wish in wishes):
        return Constrained(wishes, options.end, device)
    if options.diversity:
        return Diverse(options.groups, options.diversity)
    return Greedy() if options.beam == 1 else Best()


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
    for wish in wishes:
        options.check(wish)
    if not wishes:
        return []
    plain = is_plain(wishes, options)
    if plain and isinstance(stepper, Runner):
        return run(stepper, state, wishes, options, device)
    if plain and options.beam == 1:
        return _all(GreedySearch(stepper, state, wishes, options, device), len(wishes))
    running = Search(stepper, options, device)
    running.add(state, wishes)
    return _all(running, len(wishes))


def explore(
    stepper: Stepper[State],
    state: State,
    wishes: Sequence[Wish],
    options: Options,
    device: torch.device | str = "cpu",
) -> list[tuple[list[Hypothesis], Tree]]:
    """As `search`, with the tree of every candidate it looked at; slower, as each step is read by the host."""
    forest = Forest(options.groups, options.rows // options.groups)
    running = Search(stepper, options, device, forest)
    if wishes:
        running.add(state, wishes)
    return [(hypotheses, forest.tree(number)) for number, hypotheses in enumerate(_all(running, len(wishes)))]


def _all(running: Search[State] | GreedySearch[State], count: int) -> list[list[Hypothesis]]:
    """Search until every sentence is done."""
    found: list[list[Hypothesis]] = [[] for _ in range(count)]
    while running.numbers:
        running.advance()
        for number, hypotheses in running.leave():
            found[number] = hypotheses
    return found
