"""The sentences of a search whose options have the same shape: one table of beams, with its rules and its selector.

Sentences of a group may differ in limits, penalties, number of results, sampling options and phrases to avoid. The
groups of a search share the steps of the stepper (`incremental.py`).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import fields
from typing import TypeVar

import torch
from jaxtyping import Float, Int
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
from regard.decode.greedy import check_number
from regard.decode.hypothesis import Hypothesis
from regard.decode.options import SearchOptions, SentenceOptions, begin_of, length_bounds
from regard.decode.ranking import Ranker
from regard.decode.rules import RuleSet
from regard.decode.sampling import SamplingSelector
from regard.decode.tree import TreeRecorder
from regard.decode.trellis import ROOT, Trellis

T = TypeVar("T")

PER_SENTENCE = ("begin", "beam", "nbest", "length_penalty", "normalise", "coverage_penalty", "limits", "sampling")
"""Options in which the sentences of a group may differ, if they have equal `rows`."""
_SHAPE = tuple(field.name for field in fields(SearchOptions) if field.name not in PER_SENTENCE)


def group_shape(options: SearchOptions, sentence: SentenceOptions) -> Hashable:
    """Return what the sentences of a group have in common: all options but those in `PER_SENTENCE`.

    Required phrases slow down every step of a group, so sentences with and without them are apart.
    """
    kind = options.rows, options.sampling is not None, bool(options.coverage_penalty), bool(sentence.constraints)
    return kind, *(getattr(options, name) for name in _SHAPE)


class SearchGroup:
    """The table of some sentences of a search; every step selects and ranks their candidates."""

    rules: RuleSet
    selector: CandidateSelector
    ranker: Ranker
    beams: Beams
    trellis: Trellis

    def __init__(self, shape: Hashable, options: SearchOptions, device: torch.device) -> None:
        """Begin without sentences, for options of this shape, which those given have."""
        self.shape, self.options, self.device, self.steps = shape, options, device, 0
        self.sentences: list[SentenceOptions] = []
        self.searches: list[SearchOptions] = []
        """Options of the search of each sentence."""
        self.numbers: list[int] = []
        """Their numbers in the whole search."""
        self.bounds: list[tuple[int, int]] = []
        """Their minimum and maximum lengths."""
        self.rows_R: Tensor | None = None
        """Where the rows are in the state of the stepper; None if the group has all rows, in order."""
        self._born: list[tuple[int, int]] = []
        """The step, and the layer of the trellis, at which each was added."""

    def add(
        self, sentences: Sequence[SentenceOptions], searches: Sequence[SearchOptions], numbers: Sequence[int]
    ) -> None:
        """Search for more sentences, whose rows come after those of the others."""
        groups, rows = self.options.groups, self.options.rows
        shape = len(sentences) * groups, rows // groups, max(options.ended_slots for options in searches)
        begin = [begin_of(*pair) for pair in zip(sentences, searches, strict=True) for _ in range(groups)]
        beams = Beams.begin(shape, begin, rows == 1 or self.options.sampling is not None, self.device)
        count = len(sentences) * rows
        if not self.sentences:
            self.beams, self.trellis = beams, Trellis(count, self.device)
        else:
            present = torch.arange(len(self.sentences) * rows, device=self.device)
            self.trellis.renumber(torch.cat([present, present.new_full((count,), ROOT)]))
            self.beams = concatenate([self.beams, beams])
        self.sentences += sentences
        self.searches += searches
        self.numbers += numbers
        self.bounds += length_bounds(searches, sentences)
        self._born += [(self.steps, self.trellis.last)] * len(sentences)
        self._rebuild()

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.sentences) * self.options.rows

    def own_rows(self, table: Tensor) -> Tensor:
        """Return the rows of this group from a table with a line for each row of the state."""
        return table if self.rows_R is None else table.index_select(0, self.rows_R)

    def top_k(self, most: float) -> int | None:
        """Return how many of the best tokens of each row are enough for this step; None if that is more than `most`."""
        if self.options.coverage_penalty or not isinstance(self.selector, BeamSelector | GreedySelector):
            return None
        k = self.selector.top_k(self.beams.total_BW.shape[1])
        if k > most:
            return None
        spare = self.rules.spare
        return None if spare is None or k + spare > most else k + spare

    def select_among(self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"]) -> Candidates:
        """Select candidates from the `top_k` best tokens of each row."""
        assert isinstance(self.selector, BeamSelector | GreedySelector), "only these need not see all tokens"
        return self.selector.among(self.rules.forbid_listed(logprob_RK, token_RK, self.beams), token_RK, self.beams)

    def select(self, logprobs_RV: Float[Tensor, "R V"], attention_RS: Float[Tensor, "R S"] | None) -> Candidates:
        """Select candidates from what the rules allow; attention weights are added to the coverage."""
        if attention_RS is not None:
            self.beams.add_coverage(attention_RS)
        self.rules.forbid(logprobs_RV, self.beams)
        return self.selector(logprobs_RV, self.beams)

    def advance(self, candidates: Candidates) -> Int[Tensor, " R"] | None:
        """Rank the candidates; return the row that each row continues, or None if each continues itself."""
        layer = self.ranker.step(candidates, self.trellis.last)
        self.trellis.push(*layer)
        self.steps += 1
        return None if self.selector.independent else layer[0]

    def record(self, candidates: Candidates, recorder: TreeRecorder) -> None:
        """Record the candidates of a step."""
        ended_BK = candidates.token_BK == self.options.end
        rows = self.beams.total_BW.shape[1]
        continuing_BW = candidates.parent_BK if self.selector.independent else continuing(ended_BK, rows)
        scores_BK = self.ranker.scores(candidates)
        recorder.add_step(self.numbers, candidates, scores_BK, (ended_BK, continuing_BW), self.beams.length_B)

    @property
    def is_over(self) -> bool:
        """Whether every sentence has its maximum length."""
        return self.steps >= self.deadline

    def done(self) -> list[bool]:
        """Return whether each sentence is finished."""
        if self.is_over:
            return [True] * len(self.sentences)
        done: list[bool] = self.beams.done_B.view(-1, self.options.groups).all(1).tolist()
        return done

    def settled(self, number: int) -> tuple[int, ...]:
        """Return the tokens that all hypotheses of a sentence, live and ended, start with: they are final."""
        beams, sentence = self.beams, self.numbers.index(number)
        own = slice(sentence * self.options.groups, (sentence + 1) * self.options.groups)
        rows = (self.ranker.first_row_B1 + torch.arange(beams.total_BW.shape[1], device=self.device))[own]
        live = rows[beams.total_BW[own] > -torch.inf].tolist()
        slots = slice(self.searches[sentence].ended_slots)
        score_BN, layer_BN, row_BN = (
            table[own, slots] for table in (beams.ended_score_BN, beams.ended_layer_BN, beams.ended_row_BN)
        )
        ended = score_BN > -torch.inf
        places = [(self.trellis.last, row) for row in live]
        places += zip(layer_BN[ended].tolist(), row_BN[ended].tolist(), strict=True)
        hypotheses = [self.trellis.trace(*place)[0] for place in places]
        # The common prefix of all is that of the first and the last in sorted order.
        first, last = min(hypotheses, default=()), max(hypotheses, default=())
        differing = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        return first[: next(differing, len(first))]

    def hypotheses(self, sentences: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """Return the best hypotheses of some sentences, with their numbers."""
        beams, groups = self.beams, self.options.groups
        beams_B = self._indices(sentences, groups)
        tables = (
            beams.ended_score_BN,
            beams.ended_total_BN,
            beams.ended_logprob_BN,
            beams.ended_layer_BN,
            beams.ended_row_BN,
        )
        lines = zip(*(table[beams_B].view(len(sentences), groups, -1).tolist() for table in tables), strict=True)
        results = []
        for i, line in zip(sentences, lines, strict=True):
            options = self.searches[i]
            maximum = self.bounds[i][1]
            slots: list[tuple[float, float, float, int, int]] = []
            for group in zip(*line, strict=True):
                slots += list(zip(*group, strict=True))[: options.ended_slots]
            ranked = sorted(slots, key=lambda slot: -slot[0])
            hypotheses = [self._hypothesis(slot, maximum) for slot in ranked if slot[0] != -math.inf]
            results.append((self.numbers[i], hypotheses[: options.nbest]))
        return results

    def _hypothesis(self, slot: tuple[float, float, float, int, int], maximum: int) -> Hypothesis:
        """Return the hypothesis in a slot: its score, log-probability, that of its end symbol, layer and row."""
        score, total, end_logprob, layer, row = slot
        check_number(score)
        tokens, logprobs = self.trellis.trace(layer, row)
        return Hypothesis(tokens, score, total, (*logprobs, end_logprob), len(tokens) >= maximum)

    def keep(self, sentences: list[int]) -> None:
        """Continue with these sentences only; at least one."""
        self.sentences = [self.sentences[i] for i in sentences]
        self.searches = [self.searches[i] for i in sentences]
        self.numbers = [self.numbers[i] for i in sentences]
        self.bounds = [self.bounds[i] for i in sentences]
        self._born = [self._born[i] for i in sentences]
        self.beams = self.beams.select(self._indices(sentences, self.options.groups))
        self.trellis.renumber(self._indices(sentences, self.options.rows))
        self.trellis.drop(min(layer for _, layer in self._born))
        self._rebuild()

    def _rebuild(self) -> None:
        """Make what depends on which sentences there are."""
        groups = self.options.groups
        sentences, searches = _repeat(self.sentences, groups), _repeat(self.searches, groups)
        bounds = _repeat(self.bounds, groups)
        lengths = _repeat([self.steps - step for step, _ in self._born], groups)
        maxima = [most + 1 for _, most in bounds]
        self.deadline = self.steps + max(most - length for most, length in zip(maxima, lengths, strict=True))
        self.rules = RuleSet(sentences, lengths, searches, self.device, bounds)
        self.selector = make_selector(sentences, searches, self.device)
        looks_back = self.rules.looks_back or isinstance(self.selector, ConstrainedSelector)
        self.beams.keep_history(max(maxima) + 1 if looks_back else 0)
        self.ranker = Ranker(self.beams, searches, sentences, self.selector.independent, bounds=bounds)

    def _indices(self, sentences: list[int], count: int) -> Int[Tensor, " N"]:
        """Return the indices of the beams or rows of some sentences, which have `count` each."""
        return torch.tensor([i * count + j for i in sentences for j in range(count)], device=self.device)


def _repeat(values: list[T], count: int) -> list[T]:
    """Return each value as many times, one after the other."""
    return values if count == 1 else [value for value in values for _ in range(count)]


def make_selector(
    sentences: Sequence[SentenceOptions], searches: Sequence[SearchOptions], device: torch.device | str
) -> CandidateSelector:
    """Return the selector for sentences, of which all searches have the same shape."""
    options = searches[0]
    sampling = [search.sampling for search in searches if search.sampling is not None]
    if sampling:
        return SamplingSelector([sentence.seed for sentence in sentences], sampling, device)
    if any(sentence.constraints for sentence in sentences):
        return ConstrainedSelector(sentences, options.end, device)
    if options.diversity:
        return DiverseSelector(options.groups, options.diversity)
    return GreedySelector() if options.beam == 1 else BeamSelector()
