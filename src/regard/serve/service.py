"""A served model: its translator, queue and metrics, and the translation pipeline that its workers share.

A line is translated in segments, one unless it is too long for the model. Segments of many clients share one beam
search (continuous batching): they join it while it runs, and leave it when they are done.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, takewhile
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

import torch

from regard import decode
from regard.decode import Hypothesis, IncrementalSearch, SearchOptions
from regard.engines.engine import ModelEngine
from regard.explore.questions import MAX_QUOTED
from regard.predict import Translation, Translator
from regard.predict.alignment import AttentionMatrix
from regard.predict.engine import encoder_input
from regard.predict.scoring import ScoredTarget, score_pairs
from regard.predict.search import SearchResult, search_batch, search_segments
from regard.predict.segments import SourceSegment
from regard.predict.teacher_forcing import TokenPair
from regard.predict.translation import WeightedHypotheses, assemble, with_weights
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, PendingResponse, TranslationJob

PATIENCE = 2
"""Steps that a finished line waits for others to leave the search with it."""
MAX_ATTENTION_CELLS = 1 << 18
"""Attention weights per head that are computed in one forward pass."""


class ServerFaultError(Exception):
    """A failure inside the server, not caused by the content of a request; reported with status 500."""


@dataclass(eq=False)
class LineInProgress:
    """A line that is being translated, with the state of each segment."""

    job: TranslationJob
    segments: tuple[SourceSegment, ...]
    search: SearchOptions
    results: dict[int, SearchResult] = field(default_factory=dict)
    """Results of finished segments, by their number."""
    settled: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Tokens that all live hypotheses of a segment share, by its number; filled for streamed responses only."""
    streamed: int = 0
    """Tokens that were sent to the client already."""

    def settled_tokens(self) -> list[int]:
        """Return the tokens that are final: those of finished segments, and the settled ones of the next segment."""
        finished = [at for at, _ in takewhile(lambda item: item[0] in self.results, enumerate(self.segments))]
        tokens = [result[0].tokens for at in finished if not isinstance(result := self.results[at], Exception)]
        return [token for part in (*tokens, self.settled.get(len(finished), ())) for token in part]


class Segment(NamedTuple):
    """A line, and the number of one of its segments."""

    line: LineInProgress
    at: int

    @property
    def response(self) -> PendingResponse:
        """The response that it belongs to."""
        return self.line.job.response

    @property
    def rows(self) -> int:
        """Rows of its search."""
        return self.line.job.rows

    @property
    def cells(self) -> int:
        """Source tokens times rows, which bounds the memory of its state."""
        return self.rows * (len(self.line.segments[self.at].ids) + 1)

    @property
    def cost(self) -> float:
        """Rows times steps, estimated."""
        longest = self.line.job.options.max_length
        return self.cells if longest is None else min(self.cells, self.rows * (longest + 1))

    @property
    def completion_cost(self) -> int:
        """What it costs to complete it after its search, in rows of a step.

        Minimum Bayes risk compares all pairs of samples, which takes about as long as one row of a small model for
        each. Alignments are computed for all positions at once.
        """
        options = self.line.job.options
        return max(self.rows, self.rows**2 if options.mbr else 0, self.cells if options.alignments else 0)


BatchKey = tuple[bool, SearchOptions | int | None]
"""What segments of one batch have in common: whether there is a coverage penalty, which only some engines compute, and
as much of the options as the engine needs to be equal."""


@dataclass(eq=False)
class ModelService:
    """A model with its queue, its metrics, and the state that its workers share."""

    name: str
    translator: Translator
    queue: JobQueue
    metrics: Metrics
    model_lock: Lock = field(default_factory=Lock)
    """Held while the activations of the model are recorded or changed, which one thread may do at a time."""
    _mixing: dict[bool, tuple[bool, bool]] = field(default_factory=dict)
    """Whether the engine, without and with a coverage penalty, can mix beam widths and take new sentences: the check of
    a protocol is slow."""

    def batch_key(self, segment: Segment) -> BatchKey:
        """Return the key by which segments are batched: lines with any options share the steps of one search.

        An engine that cannot mix beam widths needs them to be equal, and one that takes no new sentences needs equal
        options.
        """
        options = segment.line.search
        covers = options.coverage_penalty > 0
        if covers not in self._mixing:
            engine = self.translator.engine_for(options)
            self._mixing[covers] = isinstance(engine, decode.MixedStepper), isinstance(engine, decode.JoinableStepper)
        mixes_rows, is_joinable = self._mixing[covers]
        if mixes_rows:
            return covers, None
        return covers, options.rows if is_joinable else options

    def search(self, segments: Sequence[SourceSegment], options: SearchOptions) -> list[list[Hypothesis]]:
        """Search for some segments apart from all others."""
        with self.model_lock if options.coverage_penalty else nullcontext():
            return search_batch(self.translator.engine_for(options), segments, options, self.translator.device)

    def complete(self, segment: Segment, hypotheses: list[Hypothesis]) -> SearchResult:
        """Return the result of a segment from its hypotheses.

        Searches again if the hypotheses contain a phrase to avoid, and picks among samples by minimum Bayes risk.
        """
        line, at = segment
        options, first = line.job.options, [hypotheses]

        def search(segments: Sequence[SourceSegment]) -> list[list[Hypothesis]]:
            return [first.pop()] if first else self.search(segments, line.search)

        (result,) = search_segments([line.segments[at]], options, self.translator.tokenizers["target"], search)
        return result

    def assemble(self, line: LineInProgress) -> Translation:
        """Return the translation of a line whose segments are all finished; raise the error of one that failed."""
        results = [line.results[at] for at in range(len(line.segments))]
        weights_of = self._attention_weights if line.job.options.alignments else None
        parts: list[tuple[SourceSegment, WeightedHypotheses]] = []
        for segment, ranked in zip(line.segments, with_weights(line.segments, results, weights_of), strict=True):
            if isinstance(ranked, Exception):
                raise ranked
            parts.append((segment, ranked))
        return assemble(line.job.request.line, parts, self.translator.tokenizers)

    def _attention_weights(self, pairs: Sequence[TokenPair]) -> list[AttentionMatrix]:
        """Return the attention weights of pairs, in small batches, so that others may use the model in between."""
        weights: list[AttentionMatrix] = []
        for batch in _batches(pairs):
            with self.model_lock:
                weights += self.translator.attention_weights(batch)
        return weights

    def score_pairs(self, pairs: Sequence[tuple[str, str]], alignments: bool) -> list[ScoredTarget]:
        """Score given sentence pairs by teacher forcing, with word alignments if asked for.

        Raises:
            ValueError: A sentence is much longer than the model was trained on. Memory grows with the square of it.
        """
        translator, tokenizers = self.translator, self.translator.tokenizers
        sides = ((tokenizers["source"], translator.longest), (tokenizers["target"], 2 * translator.longest))
        for pair in pairs:
            for line, (tokenizer, limit) in zip(pair, sides, strict=True):
                if (count := len(tokenizer.encode(line))) > limit:
                    quoted = repr(line[:MAX_QUOTED])[1:-1][:MAX_QUOTED]  # control characters become longer
                    raise ValueError(f"'{quoted}…' has {count} tokens, and at most {limit} are allowed; shorten it")
        scored: list[ScoredTarget] = []
        for pair in pairs:
            with self.model_lock:
                scored += score_pairs(translator, [pair], alignments)
        return scored


class SearchBatch:
    """Segments of any clients, with any options, in one running search."""

    def __init__(self, service: ModelService, key: BatchKey, options: SearchOptions) -> None:
        """Start a search without segments, for segments with this key; one of them has these options."""
        self.key, self.device = key, service.translator.device
        self.engine: Any = service.translator.engine_for(options)
        self.lock = service.model_lock if options.coverage_penalty else nullcontext()
        self.search: IncrementalSearch[Any] = IncrementalSearch(self.engine, options, self.device)
        self.segments: dict[int, Segment] = {}
        """Segments by the number that the search gave them."""
        self.first_token_seconds = service.metrics.first_token_seconds.labels(service.name)
        self.without_tokens: list[LineInProgress] = []
        """Lines that were added since the last step."""

    @property
    def is_open(self) -> bool:
        """Whether segments can be added: always if the engine can join states, else only to an empty batch."""
        return not self.segments or self.search.joinable_stepper is not None

    def add(self, segments: Sequence[Segment]) -> None:
        """Encode segments and add them to the search, those with equal numbers of rows together."""
        by_rows: dict[int, list[Segment]] = {}
        for segment in segments:
            by_rows.setdefault(segment.line.search.rows, []).append(segment)
        self.without_tokens += [line for line, at in segments if at == 0]
        # All are noted before any is encoded: after a failure, each is searched for by itself.
        numbers = enumerate(chain.from_iterable(by_rows.values()), self.search.added)
        self.segments |= dict(numbers)
        for rows, some in by_rows.items():
            added = [line.segments[at] for line, at in some]
            source = encoder_input([segment.ids for segment in added], self.device)
            with torch.inference_mode():
                state = self.engine.start(source, rows)
            self.search.add(state, [segment.options for segment in added], [segment.line.search for segment in some])

    def advance(self) -> list[tuple[Segment, list[Hypothesis]]]:
        """Run one step of the search, and return the segments it finishes with their hypotheses."""
        closed = {number for number, (line, _) in self.segments.items() if line.job.response.closed}
        if closed:
            self.search.drop(closed)
            for number in closed:
                del self.segments[number]
        if not self.segments:
            return []
        with self.lock:
            self.search.advance()
        for line in self.without_tokens:
            self.first_token_seconds.observe(monotonic() - line.job.response.created)
        self.without_tokens.clear()
        for number, (line, at) in self.segments.items():
            if line.job.response.streamed:
                line.settled[at] = self.search.settled(number)
        return [(self.segments.pop(number), hypotheses) for number, hypotheses in self.search.leave(PATIENCE)]


def worker_count(translator: Translator) -> int:
    """Return the number of workers for a model: one if the engine is the model itself, whose taps others may use."""
    engine = translator.engine
    own = isinstance(engine, ModelEngine) and engine.model is translator.model
    return 1 if own or engine is translator.model else translator.workers


def _batches(pairs: Sequence[TokenPair]) -> list[list[TokenPair]]:
    """Split pairs, in order, into batches of at most `MAX_ATTENTION_CELLS` attention weights per head."""
    batches: list[list[TokenPair]] = []
    cells = MAX_ATTENTION_CELLS
    for pair in pairs:
        size = (len(pair[0]) + 1) * (len(pair[1]) + 1)
        cells += size
        if cells > MAX_ATTENTION_CELLS:
            batches.append([])
            cells = size
        batches[-1].append(pair)
    return batches
