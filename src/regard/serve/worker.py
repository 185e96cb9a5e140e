"""A worker thread: it takes jobs from the queue of a model and advances the search of all of them step by step.

Workers are threads of one process, so the weights of a model are in memory once. Each worker computes on one thread;
only the steps of a single line may be shared by more threads, as in `regard translate`. If a step fails, each of its
lines is searched for again by itself, so that only the line that causes the failure gets an error. If a worker itself
fails, its jobs get an error and it starts again.
"""

import logging
import os
from collections import deque
from collections.abc import Sequence
from threading import Thread
from time import monotonic

import torch

from regard.decode import Hypothesis
from regard.engines.thread_sharing import single_threaded
from regard.predict import Translation
from regard.serve.chat_service import ServedReply
from regard.serve.queue import FunctionJob, QueuedJob
from regard.serve.scheduling import MAX_ROWS, SchedulingClass, StepShares
from regard.serve.service import LineInProgress, SearchBatch, SearchService, Segment, ServerFaultError

log = logging.getLogger(__name__)
DEBUG = bool(os.environ.get("REGARD_DEBUG"))

MAX_JOBS_PER_TAKE = 64


class Worker(Thread):
    """One of the worker threads of a model."""

    def __init__(self, service: SearchService, number: int, threads: int = 1) -> None:
        """Create a worker that runs from `start` until its queue is closed and empty.

        Args:
            service: The model to work for.
            number: Its number among the workers of the model.
            threads: Threads that may share the steps of a single line.
        """
        super().__init__(name=f"regard-{service.name}-{number}", daemon=True)
        self.number, self.threads = number, threads
        self.service, self.queue = service, service.queue
        self.busy_since: float | None = None
        """Start time of the current step; None while the worker waits for jobs."""
        self._reset()

    def _reset(self) -> None:
        self.narrow, self.wide = (SchedulingClass(max_rows) for max_rows in MAX_ROWS)
        self.shares = StepShares()
        self.functions: deque[FunctionJob] = deque()
        self.taken: dict[QueuedJob, None] = {}  # a set in insertion order

    def run(self) -> None:
        """Work until the queue is closed and empty. A failure ends the jobs in progress, not the thread."""
        torch.set_num_threads(1)
        while True:
            try:
                while self._step():
                    pass
                return
            except BaseException:
                log.exception("a worker of %s failed and is restarted", self.service.name, exc_info=DEBUG)
                self.service.metrics.faults.labels(self.service.name).inc()
                for job in list(self.taken):
                    self._finish(job, ServerFaultError("the worker failed; send the request again"))
                self._reset()

    def _step(self) -> bool:
        """Take new jobs and advance all by one step; return False when the queue is closed and empty."""
        self.busy_since = None
        new = self.queue.take(
            len(self.taken), MAX_JOBS_PER_TAKE, self.number, lambda job: self._class_of(job).accepts(job)
        )
        if new is None:
            return False
        self.busy_since = monotonic()
        self.taken |= dict.fromkeys(new)
        for job in new:
            self.service.metrics.queue_seconds.labels(self.service.name).observe(self.busy_since - job.response.created)
            self._prepare(job)
        for members in (self.narrow, self.wide):
            self._admit(members)
        self._call_function()
        self._advance_class(self.narrow)
        if self.wide.has_work and self.shares.is_turn_of_wide(self.narrow.rows, self.wide.next_cost):
            if self.wide.completing:
                self._complete(self.wide.next_completing())
            else:
                self._advance_class(self.wide)
        for job in [job for job in self.taken if job.response.closed]:
            self._finish(job, None)
        return True

    def _class_of(self, job: QueuedJob) -> SchedulingClass:
        return self.wide if job.is_wide else self.narrow

    def _prepare(self, job: QueuedJob) -> None:
        """Let the service tokenise a line and split it into segments; set a function aside."""
        if job.response.closed:
            return
        if isinstance(job, FunctionJob):
            self.functions.append(job)
            return
        try:
            line = self.service.prepare(job)
            for encoded in line.segments:
                line.search.check(encoded.options)
        except Exception as error:
            self._finish(job, error)
            return
        for at in range(len(line.segments)):
            self._class_of(job).ready.push(Segment(line, at))
        if not line.segments:
            self._finish(job, self.service.assemble(line))

    def _call_function(self) -> None:
        """Call one function; not more, because lines in progress wait meanwhile."""
        while self.functions:
            job = self.functions.popleft()
            if not job.response.closed:
                try:
                    self._finish(job, job.function())
                except Exception as error:
                    self._finish(job, error)
                return

    def _admit(self, members: SchedulingClass) -> None:
        """Start the search of ready segments as far as memory allows, in as few batches as the engine allows."""
        new: dict[SearchBatch, list[Segment]] = {}
        for segment in members.admit():
            key = self.service.batch_key(segment)
            batch = next((batch for batch in (*members.batches, *new) if batch.key == key and batch.is_open), None)
            new.setdefault(batch or SearchBatch(self.service, key, segment.line.search), []).append(segment)
        for batch, segments in new.items():
            if batch not in members.batches:
                members.batches.append(batch)
            try:
                batch.add(segments)
            except Exception:
                self._search_separately(batch)

    def _advance_class(self, members: SchedulingClass) -> None:
        """Advance all batches of a class by one step, and finish or stream what results from it."""
        for batch in list(members.batches):
            self.service.metrics.batch.observe(len(batch.segments))
            try:
                with single_threaded(self.threads if len(self.taken) == 1 else 1):
                    done = batch.advance()
            except Exception:
                self._search_separately(batch)
                continue
            if members is self.wide:
                members.completing.extend(done)  # one at a time, because narrow lines wait meanwhile
            else:
                self._complete(done)
            for line in {line: None for line, _ in batch.segments.values() if line.job.response.streamed}:
                self._stream(line)
        members.batches = [batch for batch in members.batches if batch.segments]

    def _search_separately(self, batch: SearchBatch) -> None:
        """Search for each segment of a failed batch by itself: any one of them may have caused the failure."""
        log.warning("a search of %d lines failed; each is retried by itself", len(batch.segments), exc_info=DEBUG)
        self.service.metrics.faults.labels(self.service.name).inc()
        segments, batch.segments = list(batch.segments.values()), {}
        for segment in segments:
            line = segment.line
            if line.job.response.closed:
                continue
            try:
                (hypotheses,) = self.service.search([segment.encoded], line.search)
            except Exception as error:
                log.warning("%s: %s: %s", self.service.fault, type(error).__name__, error)
                self._finish(line.job, ServerFaultError(self.service.fault))
            else:
                self._complete([(segment, hypotheses)])

    def _complete(self, done: Sequence[tuple[Segment, list[Hypothesis]]]) -> None:
        """Store the results of segments, and finish the lines whose segments are all done."""
        for segment, hypotheses in done:
            segment.line.results[segment.at] = self.service.complete(segment, hypotheses)
        complete = [line for line in {line: None for (line, _), _ in done} if len(line.results) == len(line.segments)]
        for line in complete:
            if line.job in self.taken:
                if line.job.response.streamed:
                    self._stream(line)
                try:
                    self._finish(line.job, self.service.assemble(line))
                except Exception as error:
                    self._finish(line.job, error)

    def _stream(self, line: LineInProgress) -> None:
        """Deliver the tokens that have become final since the last time."""
        tokens = line.settled_tokens()
        if len(tokens) > line.streamed:
            partial = self.service.partial(line, tokens)
            line.streamed = len(tokens)
            line.job.response.deliver(line.job.index, partial)

    def _finish(self, job: QueuedJob, result: object) -> None:
        """Remove a job, and deliver its result unless that is None."""
        if job not in self.taken:
            return
        del self.taken[job]
        self.queue.mark_done(1)
        metrics, name = self.service.metrics, self.service.name
        metrics.sentences.labels(name).inc()
        if isinstance(result, Translation | ServedReply):
            metrics.tokens.labels(name).inc(len(result.tokens))
        if result is not None:
            job.response.deliver(job.index, result)


def start_workers(service: SearchService) -> list[Worker]:
    """Start the workers of a model.

    Only the first worker shares the steps of single lines with other threads, and the queue leaves single lines to it:
    a second worker with a thread team of its own took longer for shared steps than for steps by itself
    (docs/serve.md).
    """
    service.metrics.observe_queue(service.name, lambda: service.queue.waiting, lambda: service.queue.running)
    threads = torch.get_num_threads()
    workers = [Worker(service, number, 1 if number else threads) for number in range(service.queue.workers)]
    for worker in workers:
        worker.start()
    return workers
