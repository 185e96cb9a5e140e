"""The bounded queue of jobs in front of a model: in fair order, shared evenly among its workers.

There is no batching delay: an idle worker takes jobs at once, and jobs that arrive later join its running search.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Condition
from time import monotonic
from typing import Any, Protocol

from regard.options import ChatOptions, TranslationOptions
from regard.predict import TranslationRequest
from regard.predict.search import search_rows
from regard.serve.fair_queue import FairQueue
from regard.serve.throughput import Throughput

BYTES_PER_TOKEN = 3
"""An estimate, for the cost of a text before it is tokenised."""
NARROW_ROWS = 8
"""A line with more rows is wide."""
NARROW_CELLS = 1024
"""A line with more tokens times rows is wide."""
FUNCTION_COST = 100.0
"""Cost of a function: about that of a short line."""


class QueueFullError(Exception):
    """Raised when a queue has no space for the jobs of a request."""

    def __init__(self, seconds: int) -> None:
        """Suggest to retry after a number of seconds."""
        super().__init__(f"the queue is full; retry after {seconds} s")
        self.seconds = seconds


class EventLoop(Protocol):
    """The part of an asyncio event loop that `PendingResponse` uses."""

    def call_soon_threadsafe(self, callback: Callable[[int, Any], Any], index: int, result: Any, /) -> Any:
        """Schedule a call in the thread of the loop."""


class PendingResponse:
    """Carries the results of a request's jobs from worker threads to the event loop."""

    def __init__(
        self, loop: EventLoop, on_result: Callable[[int, Any], None], streamed: bool = False, client: str = ""
    ) -> None:
        """Create a response without results.

        Args:
            loop: The event loop that waits for the results.
            on_result: Called in the loop with the index of a job and its result.
            streamed: Whether results are also wanted while a job is in progress.
            client: The client that waits, such as its IP address. Clients share a model fairly.
        """
        self._loop, self._on_result, self.streamed, self.client = loop, on_result, streamed, client
        self.created = monotonic()
        self.closed = False
        """Set when no more results are wanted: all have arrived, the client has disconnected, or time is up. Workers
        drop the jobs of a closed response."""

    def deliver(self, index: int, result: Any) -> None:
        """Report the result of a job; callable from any thread."""
        if not self.closed:
            with suppress(RuntimeError):  # the loop has ended, so nobody waits for the result
                self._loop.call_soon_threadsafe(self._receive, index, result)

    def _receive(self, index: int, result: Any) -> None:
        if not self.closed:
            self._on_result(index, result)


@dataclass(frozen=True, eq=False)
class SearchJob(ABC):
    """Something that is searched for, number `index` of its request."""

    response: PendingResponse
    index: int

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of the search: its beam width, or the number of samples."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What the encoder reads."""

    @abstractmethod
    def cells_of(self, tokens: int) -> int:
        """Return the rows times tokens of a search for the output to an input of so many tokens."""

    @abstractmethod
    def cost_of(self, cells: int) -> float:
        """Return the rows times steps, estimated, of a search with so many cells."""

    @abstractmethod
    def completion_cost(self, cells: int) -> int:
        """Return what it costs to complete a search with so many cells, in rows of a step."""

    @cached_property
    def cells(self) -> int:
        """Rows times tokens, estimated before the text is tokenised."""
        return self.cells_of(len(self.text.encode(errors="replace")) // BYTES_PER_TOKEN)

    @property
    def cost(self) -> float:
        """Rows times steps, estimated."""
        return self.cost_of(self.cells)

    @property
    def is_wide(self) -> bool:
        """Whether it has so many rows that narrow lines must not wait for its steps."""
        return self.rows > NARROW_ROWS or self.cells > NARROW_CELLS


@dataclass(frozen=True, eq=False)
class TranslationJob(SearchJob):
    """A line to translate."""

    request: TranslationRequest
    options: TranslationOptions

    @cached_property
    def rows(self) -> int:
        """Rows of the search: its beam width, or the number of samples."""
        return search_rows(self.options)

    @property
    def text(self) -> str:
        """The line."""
        return self.request.line

    def cells_of(self, tokens: int) -> int:
        """Return rows times source tokens: a translation has about as many tokens as its source."""
        return self.rows * (tokens + 1)

    def cost_of(self, cells: int) -> float:
        """Return rows times steps: not more than the maximum length."""
        longest = self.options.max_length
        return cells if longest is None else min(cells, self.rows * (longest + 1))

    def completion_cost(self, cells: int) -> int:
        """Return what it costs to complete a segment.

        Minimum Bayes risk compares all pairs of samples, which takes about as long as one row of a small model for
        each. Alignments are computed for all positions at once.
        """
        return max(self.rows, self.rows**2 if self.options.mbr else 0, cells if self.options.alignments else 0)


@dataclass(frozen=True, eq=False)
class ChatJob(SearchJob):
    """A history to reply to."""

    history: tuple[str, ...]
    options: ChatOptions
    """Options of the reply that is returned."""
    search: ChatOptions
    """Options of the search, which may be for more replies, to choose from."""
    longest: int
    """Tokens of a history that are read."""
    attention: bool = False
    """Whether to return what the reply attends to."""

    @property
    def rows(self) -> int:
        """Rows of the search: its beam width, or the number of samples."""
        return self.search.nbest if self.search.sample else self.search.beam

    @property
    def text(self) -> str:
        """The turns."""
        return " ".join(self.history)

    def cells_of(self, tokens: int) -> int:
        """Return rows times the tokens of the history, or half as many as the reply may have if these are more.

        This bounds the memory of a search as the length of a line does, whose translation has at most twice as many
        tokens.
        """
        return self.rows * max(min(tokens, self.longest) + 1, self.options.max_tokens // 2)

    def cost_of(self, cells: int) -> float:
        """Return rows times the maximum number of steps: the length of a reply does not follow from the history."""
        return self.rows * (self.options.max_tokens + 1)

    def completion_cost(self, cells: int) -> int:
        """Return what it costs to complete it: attention is computed for all positions at once."""
        return cells if self.attention else self.rows


@dataclass(frozen=True, eq=False)
class FunctionJob:
    """Any other use of a model: a function that one worker calls, and whose return value is the result."""

    response: PendingResponse
    index: int
    function: Callable[[], Any]
    cost: float = FUNCTION_COST
    is_wide: bool = False


@dataclass(frozen=True, eq=False)
class TextJob:
    """A text to predict something about, number `index` of its request."""

    response: PendingResponse
    index: int
    text: str
    options: tuple[tuple[str, Any], ...] = ()
    """Names and values of the options; texts with equal options are predicted together."""
    is_wide: bool = False

    @cached_property
    def cost(self) -> float:
        """Tokens, estimated."""
        return len(self.text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


QueuedJob = SearchJob | FunctionJob | TextJob


class JobQueue:
    """Jobs of all clients for one model."""

    def __init__(self, capacity: int, workers: int) -> None:
        """Create an empty queue that holds up to `capacity` jobs, for a number of worker threads."""
        self.capacity, self.workers = capacity, workers
        self.running = 0
        """Jobs that workers have taken and not finished."""
        self._waiting = FairQueue[QueuedJob]()
        self._changed = Condition()
        self._closed = False
        self._idle: set[int] = set()
        self._throughput = Throughput()

    @property
    def waiting(self) -> int:
        """Number of jobs that no worker has taken yet."""
        return len(self._waiting)

    def put(self, jobs: Sequence[QueuedJob]) -> None:
        """Append all jobs of a request, or none. An empty queue accepts a request of any size.

        Raises:
            QueueFullError: There is no space for all of them.
        """
        with self._changed:
            if len(self._waiting) + len(jobs) > self.capacity:
                self._waiting.drop_closed()
                if self._waiting and len(self._waiting) + len(jobs) > self.capacity:
                    raise QueueFullError(self._throughput.seconds_for(len(self._waiting), monotonic()))
            if not self._waiting and not self.running:
                self._throughput.start(monotonic())
            for job in jobs:
                self._waiting.push(job)
            self._changed.notify_all()

    def take(
        self,
        in_progress: int,
        limit: int,
        worker: int = 0,
        accepts: Callable[[QueuedJob], bool] = lambda job: True,
    ) -> list[QueuedJob] | None:
        """Take a worker's share of the waiting jobs, in fair order; block while a worker without jobs finds none.

        A single waiting job goes to the idle worker with the lowest number. Jobs of closed responses are skipped.

        Args:
            in_progress: Jobs that the worker has already.
            limit: Maximum number of jobs to take.
            worker: Number of the worker.
            accepts: Return whether a worker that has jobs can use this one too; others stay in the queue.

        Returns:
            Jobs, perhaps none; or None when the queue is closed and empty.
        """
        with self._changed:
            while True:
                if not in_progress:
                    self._waiting.drop_closed()
                if in_progress or (self._waiting and not self._is_left_to_another(worker)):
                    break
                if self._closed:
                    return None
                self._idle.add(worker)
                self._changed.wait()
                self._idle.discard(worker)
            share = -(-(len(self._waiting) + self.running) // self.workers) - in_progress
            count = max(0, min(len(self._waiting), max(share, int(in_progress == 0)), limit))
            taken: list[QueuedJob] = []
            while len(taken) < count and (job := self._waiting.pop(accepts)) is not None:
                taken.append(job)
            self.running += len(taken)
            return taken

    def _is_left_to_another(self, worker: int) -> bool:
        """Return whether the only waiting job is left to an idle worker with a lower number."""
        return len(self._waiting) == 1 and not self._closed and any(idle < worker for idle in self._idle)

    def mark_done(self, count: int) -> None:
        """Record that jobs taken from the queue are finished."""
        with self._changed:
            self.running -= count
            self._throughput.finish(count, monotonic())

    def close(self) -> None:
        """Let workers end once they have finished all waiting jobs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
