"""A search that advances token by token, while sentences join and leave.

    running = IncrementalSearch(stepper, options)
    running.add(state, sentences)
    while running.sentences:
        running.advance()
        for number, hypotheses in running.leave(): ...

A step asks the stepper for log-probabilities, applies the rules, selects candidates, collects those that ended,
continues with the best others, and sees which beams are finished.
"""

import math
from collections.abc import Collection, Sequence
from typing import Generic

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decode.beams import Beams, concatenate
from regard.decode.candidates import (
    BeamSelector,
    Candidates,
    CandidateSelector,
    DiverseSelector,
    GreedySelector,
    continuing,
)
from regard.decode.constraints import ConstrainedSelector
from regard.decode.greedy import CHECK_INTERVAL, check_number
from regard.decode.hypothesis import Hypothesis
from regard.decode.options import SearchOptions, SentenceOptions
from regard.decode.ranking import Ranker
from regard.decode.rules import RuleSet
from regard.decode.sampling import SamplingSelector
from regard.decode.stepper import AttentionStepper, JoinableStepper, State, Stepper, TopKStepper
from regard.decode.tree import TreeRecorder
from regard.decode.trellis import ROOT, Trellis


class IncrementalSearch(Generic[State]):
    """A search in progress: greedy, beam search or sampling, with any rules and penalties."""

    rules: RuleSet
    selector: CandidateSelector
    ranker: Ranker

    def __init__(
        self,
        stepper: Stepper[State],
        options: SearchOptions,
        device: torch.device | str = "cpu",
        recorder: TreeRecorder | None = None,
    ) -> None:
        """Begin without sentences.

        Args:
            stepper: What is searched.
            options: Options that hold for all sentences.
            device: Where the stepper's tensors are.
            recorder: Records every candidate, if given.
        """
        self.stepper, self.options, self.recorder = stepper, options, recorder
        self.topk_stepper = stepper if isinstance(stepper, TopKStepper) else None
        self.device, self.steps, self.added = torch.device(device), 0, 0
        self.sentences: list[SentenceOptions] = []
        """Options of the sentences that are searched for."""
        self.numbers: list[int] = []
        """Their numbers, counted in the order in which they were added."""
        self._born: list[tuple[int, int]] = []
        """The step, and the layer of the trellis, at which each was added."""
        self._moves_R: Tensor | None = None
        """Rows that the stepper has still to select."""
        if options.coverage_penalty and not isinstance(stepper, AttentionStepper):
            raise ValueError("a coverage penalty needs attention weights, which this stepper does not return")

    @torch.inference_mode()
    def add(self, state: State, sentences: Sequence[SentenceOptions]) -> None:
        """Search for more sentences; the state has `options.rows` rows for each."""
        for sentence in sentences:
            self.options.check(sentence)
        options, count = self.options, len(sentences) * self.options.rows
        independent = options.rows == 1 or options.sampling is not None
        shape = len(sentences) * options.groups, options.rows // options.groups, options.ended_slots
        begin = [
            options.begin if sentence.begin is None else sentence.begin
            for sentence in sentences
            for _ in range(options.groups)
        ]
        beams = Beams.begin(shape, begin, independent, self.device)
        if not self.sentences:
            self.state, self.beams, self.trellis = state, beams, Trellis(count, self.device)
        elif not isinstance(self.stepper, JoinableStepper):
            raise ValueError("this stepper cannot take new sentences during a search; wait until it is over")
        else:
            self._move()
            self.state = self.stepper.join([self.state, state])
            present = torch.arange(len(self.sentences) * options.rows, device=self.device)
            self.trellis.renumber(torch.cat([present, present.new_full((count,), ROOT)]))
            self.beams = concatenate([self.beams, beams])
        self.sentences += sentences
        self.numbers += range(self.added, self.added + len(sentences))
        self._born += [(self.steps, self.trellis.last)] * len(sentences)
        self.added += len(sentences)
        self._rebuild()

    @torch.inference_mode()
    def advance(self) -> None:
        """Add one token to every live hypothesis."""
        if not self.sentences:
            return
        self._move()
        candidates = self._candidates()
        if self.recorder is not None:
            self._record(candidates, self.recorder)
        layer = self.ranker.step(candidates, self.trellis.last)
        self.trellis.push(*layer)
        self._moves_R = None if self.selector.independent else layer[0]
        self.steps += 1

    @torch.inference_mode()
    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """Return finished sentences by number, each with its hypotheses, and drop them.

        They stay while they are few, since the stepper must move the state of the others when they leave.
        """
        if not self.sentences:
            return []
        last = self.steps >= self.deadline
        may_ask = self.ranker.may_finish and (self.device.type == "cpu" or self.steps % CHECK_INTERVAL == 0)
        if not last and not may_ask:
            return []
        done = self.beams.done_B.view(-1, self.options.groups).all(1).tolist()
        if not last and sum(done) < max(1, len(done) // 8):
            return []
        left = self._hypotheses([i for i, is_done in enumerate(done) if is_done or last])
        self._keep([i for i, is_done in enumerate(done) if not is_done and not last])
        return left

    @torch.inference_mode()
    def drop(self, numbers: Collection[int]) -> None:
        """Stop searching for the sentences with these numbers."""
        kept = [i for i, number in enumerate(self.numbers) if number not in numbers]
        if len(kept) < len(self.numbers):
            self._keep(kept)

    def settled(self, number: int) -> tuple[int, ...]:
        """Return the tokens that all hypotheses of a sentence, live and ended, start with: they are final."""
        beams, sentence = self.beams, self.numbers.index(number)
        own = slice(sentence * self.options.groups, (sentence + 1) * self.options.groups)
        rows = (self.ranker.first_row_B1 + torch.arange(beams.total_BW.shape[1], device=self.device))[own]
        live = rows[beams.total_BW[own] > -torch.inf].tolist()
        ended = beams.ended_score_BN[own] > -torch.inf
        places = [(self.trellis.last, row) for row in live]
        places += zip(beams.ended_layer_BN[own][ended].tolist(), beams.ended_row_BN[own][ended].tolist(), strict=True)
        hypotheses = [self.trellis.trace(*place)[0] for place in places]
        # The common prefix of all is that of the first and the last in sorted order.
        first, last = min(hypotheses, default=()), max(hypotheses, default=())
        differing = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        return first[: next(differing, len(first))]

    def _candidates(self) -> Candidates:
        """Ask the stepper, and select candidates from what the rules allow."""
        token_R, selector, k = self.beams.token_BW.flatten(), self.selector, self._top_k()
        if k is not None and self.topk_stepper is not None and isinstance(selector, BeamSelector | GreedySelector):
            logprob_RK, token_RK, self.state = self.topk_stepper.top_k(token_R, self.state, k)
            logprob_RK = self.rules.forbid_listed(logprob_RK, token_RK, self.beams)
            return selector.among(logprob_RK, token_RK, self.beams)
        logprobs_RV, self.state = self.stepper.step(token_R, self.state)
        if self.options.coverage_penalty and isinstance(self.stepper, AttentionStepper):
            self.beams.add_coverage(self.stepper.attention(self.state))
        self.rules.forbid(logprobs_RV, self.beams)
        return selector(logprobs_RV, self.beams)

    def _top_k(self) -> int | None:
        """Return how many of the best tokens of each row are enough for this step; None if all are needed."""
        spare = self.rules.spare
        if self.topk_stepper is None or spare is None or not isinstance(self.selector, BeamSelector | GreedySelector):
            return None
        k = self.selector.top_k(self.beams.total_BW.shape[1]) + spare
        return None if self.options.coverage_penalty or k > self.topk_stepper.max_top_k else k

    def _move(self) -> None:
        """Let the stepper select the rows that continue; put off until its next step, so that it moves them once."""
        if self._moves_R is not None:
            self.state = self.stepper.select(self.state, self._moves_R)
            self._moves_R = None

    def _record(self, candidates: Candidates, recorder: TreeRecorder) -> None:
        ended_BK = candidates.token_BK == self.options.end
        rows = self.beams.total_BW.shape[1]
        continuing_BW = candidates.parent_BK if self.selector.independent else continuing(ended_BK, rows)
        scores_BK = self.ranker.scores(candidates)
        recorder.add_step(self.numbers, candidates, scores_BK, (ended_BK, continuing_BW), self.beams.length_B)

    def _hypotheses(self, sentences: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """Return the best hypotheses of some sentences, with their numbers."""
        beams, options = self.beams, self.options
        beams_B = self._indices(sentences, options.groups)
        tables = (
            beams.ended_score_BN,
            beams.ended_total_BN,
            beams.ended_logprob_BN,
            beams.ended_layer_BN,
            beams.ended_row_BN,
        )
        lines = zip(*(table[beams_B].view(len(sentences), -1).tolist() for table in tables), strict=True)
        results = []
        for i, line in zip(sentences, lines, strict=True):
            maximum = options.limits.bounds(self.sentences[i])[1]
            ranked = sorted(zip(*line, strict=True), key=lambda slot: -slot[0])
            hypotheses = [self._hypothesis(slot, maximum) for slot in ranked if slot[0] != -math.inf]
            results.append((self.numbers[i], hypotheses[: options.nbest]))
        return results

    def _hypothesis(self, slot: tuple[float, float, float, int, int], maximum: int) -> Hypothesis:
        """Return the hypothesis in a slot: its score, log-probability, that of its end symbol, layer and row."""
        score, total, end_logprob, layer, row = slot
        check_number(score)
        tokens, logprobs = self.trellis.trace(layer, row)
        return Hypothesis(tokens, score, total, (*logprobs, end_logprob), len(tokens) >= maximum)

    def _keep(self, sentences: list[int]) -> None:
        """Continue with these sentences only."""
        self.sentences = [self.sentences[i] for i in sentences]
        self.numbers = [self.numbers[i] for i in sentences]
        self._born = [self._born[i] for i in sentences]
        if not sentences:
            self._moves_R = None
            return
        kept_R = self._indices(sentences, self.options.rows)
        self.beams = self.beams.select(self._indices(sentences, self.options.groups))
        self.trellis.renumber(kept_R)
        self.trellis.drop(min(layer for _, layer in self._born))
        self._moves_R = kept_R if self._moves_R is None else self._moves_R[kept_R]
        self._rebuild()

    def _rebuild(self) -> None:
        """Make what depends on which sentences there are."""
        options, groups = self.options, self.options.groups
        sentences = [sentence for sentence in self.sentences for _ in range(groups)]
        lengths = [self.steps - step for step, _ in self._born for _ in range(groups)]
        maxima = [options.limits.bounds(sentence)[1] + 1 for sentence in sentences]
        self.deadline = self.steps + max(most - length for most, length in zip(maxima, lengths, strict=True))
        self.rules = RuleSet(sentences, lengths, options, self.device)
        self.selector = make_selector(sentences, options, self.device)
        looks_back = self.rules.looks_back or isinstance(self.selector, ConstrainedSelector)
        self.beams.keep_history(max(maxima) + 1 if looks_back else 0)
        self.ranker = Ranker(self.beams, options, sentences, self.selector.independent)

    def _indices(self, sentences: list[int], count: int) -> Int[Tensor, " N"]:
        """Return the indices of the beams or rows of some sentences, which have `count` each."""
        return torch.tensor([i * count + j for i in sentences for j in range(count)], device=self.device)


def make_selector(
    sentences: Sequence[SentenceOptions], options: SearchOptions, device: torch.device | str
) -> CandidateSelector:
    """Return the selector for these options."""
    if options.sampling is not None:
        return SamplingSelector([sentence.seed for sentence in sentences], options.sampling, device)
    if any(sentence.constraints for sentence in sentences):
        return ConstrainedSelector(sentences, options.end, device)
    if options.diversity:
        return DiverseSelector(options.groups, options.diversity)
    return GreedySelector() if options.beam == 1 else BeamSelector()
