"""A served model whose outputs are searched for: its queue and metrics, and the search that its workers share.

A job is searched for in segments: a reply in one, a line to translate in several if it is too long for the model.
Segments of many clients share one search (continuous batching): they join it while it runs, and leave it when they are
done.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, takewhile
from threading import Lock
from time import monotonic
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from regard import decode
from regard.decode import Hypothesis, IncrementalSearch, SearchOptions, SentenceOptions
from regard.engines import SteppableModel
from regard.engines.engine import ModelEngine
from regard.nn.ragged import NestedRagged, Ragged
from regard.predict import Chatbot, Translator
from regard.predict.engine import run_search
from regard.predict.search import SearchResult
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, PendingResponse, QueuedJob, SearchJob

PATIENCE = 2
"""Steps that a finished line waits for others to leave the search with it."""
REPLACEMENT_CHARACTER = "\ufffd"
"""What a character decodes to while some of its bytes are missing."""


class ServerFaultError(Exception):
    """A failure inside the server, not caused by the content of a request; reported with status 500."""


class EncodedInput(Protocol):
    """What is searched for at a time: token ids of an input, and the options of the search for its output."""

    @property
    def ids(self) -> Sized:
        """The token ids."""

    @property
    def options(self) -> SentenceOptions:
        """The options of the search."""


@dataclass(frozen=True)
class PartialOutput:
    """New final tokens of a streamed job, and its text so far."""

    pieces: tuple[str, ...]
    text: str


@dataclass(eq=False)
class LineInProgress:
    """A job that is searched for, with the state of each segment."""

    job: SearchJob
    segments: Sequence[EncodedInput]
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
    def encoded(self) -> EncodedInput:
        """Its token ids and options."""
        return self.line.segments[self.at]

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
        """Tokens times rows, which bounds the memory of its state."""
        return self.line.job.cells_of(len(self.encoded.ids))

    @property
    def cost(self) -> float:
        """Rows times steps, estimated."""
        return self.line.job.cost_of(self.cells)

    @property
    def completion_cost(self) -> int:
        """What it costs to complete it after its search, in rows of a step."""
        return self.line.job.completion_cost(self.cells)


BatchKey = tuple[bool, SearchOptions | int | None]
"""What segments of one batch have in common: whether there is a coverage penalty, which only some engines compute, and
as much of the options as the engine needs to be equal."""


class SearchService(ABC):
    """A model with its queue and metrics, and how its jobs become segments, and hypotheses of segments results."""

    route: ClassVar[str]
    """The main route that it answers."""
    fault: ClassVar[str]
    """What to say about a job whose search fails."""

    def __init__(self, name: str, queue: JobQueue, metrics: Metrics, device: torch.device) -> None:
        """Serve a model on a device under a name."""
        self.name, self.queue, self.metrics, self.device = name, queue, metrics, device
        self.model_lock = Lock()
        """Held while the activations of the model are recorded or changed, which one thread may do at a time."""
        self._mixing: dict[bool, tuple[bool, bool]] = {}
        """Whether the engine, without and with a coverage penalty, can mix beam widths and take new sentences: the
        check of a protocol is slow."""

    @abstractmethod
    def engine_for(self, options: SearchOptions) -> SteppableModel:
        """Return the engine of a search with these options."""

    @abstractmethod
    def prepare(self, job: QueuedJob) -> LineInProgress:
        """Tokenise the input of a job; raise an exception if it cannot be searched for."""

    @abstractmethod
    def inputs(self, segments: Sequence[EncodedInput]) -> Ragged | NestedRagged:
        """Return segments as the encoder reads them."""

    @abstractmethod
    def complete(self, segment: Segment, hypotheses: list[Hypothesis]) -> SearchResult:
        """Return the result of a segment from its hypotheses."""

    @abstractmethod
    def assemble(self, line: LineInProgress) -> Any:
        """Return the result of a line whose segments are all finished; raise the error of one that failed."""

    @abstractmethod
    def partial(self, line: LineInProgress, tokens: Sequence[int]) -> PartialOutput:
        """Return the tokens that were not sent to the client yet, and the text of all these final ones."""

    def batch_key(self, segment: Segment) -> BatchKey:
        """Return the key by which segments are batched: lines with any options share the steps of one search.

        An engine that cannot mix beam widths needs them to be equal, and one that takes no new sentences needs equal
        options.
        """
        options = segment.line.search
        covers = options.coverage_penalty > 0
        if covers not in self._mixing:
            engine = self.engine_for(options)
            self._mixing[covers] = isinstance(engine, decode.MixedStepper), isinstance(engine, decode.JoinableStepper)
        mixes_rows, is_joinable = self._mixing[covers]
        if mixes_rows:
            return covers, None
        return covers, options.rows if is_joinable else options

    def search(self, segments: Sequence[EncodedInput], options: SearchOptions) -> list[list[Hypothesis]]:
        """Search for some segments apart from all others."""
        sentences = [segment.options for segment in segments]
        with self.model_lock if options.coverage_penalty else nullcontext():
            return run_search(self.engine_for(options), self.inputs(segments), sentences, options)


class SearchBatch:
    """Segments of any clients, with any options, in one running search."""

    def __init__(self, service: SearchService, key: BatchKey, options: SearchOptions) -> None:
        """Start a search without segments, for segments with this key; one of them has these options."""
        self.key, self.service = key, service
        self.engine: Any = service.engine_for(options)
        self.lock = service.model_lock if options.coverage_penalty else nullcontext()
        self.search: IncrementalSearch[Any] = IncrementalSearch(self.engine, options, service.device)
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
            added = [segment.encoded for segment in some]
            with torch.inference_mode():
                state = self.engine.start(self.service.inputs(added), rows)
            self.search.add(state, [encoded.options for encoded in added], [segment.line.search for segment in some])

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


def worker_count(predictor: Translator | Chatbot) -> int:
    """Return the number of workers for a model: one if the engine is the model itself, whose taps others may use."""
    engine = predictor.engine
    own = isinstance(engine, ModelEngine) and engine.model is predictor.model
    return 1 if own or engine is predictor.model else predictor.workers
