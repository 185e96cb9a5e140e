"""A served model that predicts something about texts in one pass: a classifier, a tagger, a mask filler.

Texts of all clients that wait, with equal options, are predicted in one call. If that call fails, each text is
predicted by itself, so that only the text that causes the failure gets an error.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from typing import Any, Protocol

from torch import nn

from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, QueuedJob, TextJob
from regard.serve.service import ServerFaultError
from regard.text import Tokenizer

log = logging.getLogger(__name__)
DEBUG = bool(os.environ.get("REGARD_DEBUG"))

MAX_TEXTS = 64
"""Texts that are predicted in one call, for which all others wait."""


class Prediction(Protocol):
    """What a model predicts about a text."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""


@dataclass(eq=False)
class PredictorService:
    """A model with its queue and metrics."""

    name: str
    route: str
    """The route that it answers: `classify`, `tag` or `fill`."""
    predict: Callable[..., Sequence[Prediction]]
    """Takes a list of texts, and options by name."""
    tokenizer: Tokenizer
    """The tokenizer of the texts, by which the size of a request is measured."""
    model: nn.Module
    precision: str
    queue: JobQueue
    metrics: Metrics


class PredictorWorker(Thread):
    """The worker thread of a model; a call uses all threads of torch."""

    def __init__(self, service: PredictorService) -> None:
        """Create a worker that runs from `start` until its queue is closed and empty."""
        super().__init__(name=f"regard-{service.name}", daemon=True)
        self.service = service
        self.busy_since: float | None = None
        """Start time of the current call; None while the worker waits for jobs."""

    def run(self) -> None:
        """Work until the queue is closed and empty."""
        service = self.service
        service.metrics.observe_queue(service.name, lambda: service.queue.waiting, lambda: service.queue.running)
        while (jobs := service.queue.take(0, MAX_TEXTS)) is not None:
            self.busy_since = monotonic()
            for job in jobs:
                waited = self.busy_since - job.response.created
                service.metrics.queue_seconds.labels(service.name).observe(waited)
            self._answer(jobs)
            service.queue.mark_done(len(jobs))
            self.busy_since = None

    def _answer(self, jobs: Sequence[QueuedJob]) -> None:
        """Predict the texts of all jobs that are still wanted, those with equal options together."""
        groups: dict[tuple[tuple[str, Any], ...], list[TextJob]] = {}
        for job in jobs:
            assert isinstance(job, TextJob), "handlers put nothing else into this queue"
            if not job.response.closed:
                groups.setdefault(job.options, []).append(job)
        for group in groups.values():
            self.service.metrics.batch.observe(len(group))
            for job, result in zip(group, self._predict(group), strict=True):
                self.service.metrics.sentences.labels(self.service.name).inc()
                job.response.deliver(job.index, result)

    def _predict(self, jobs: Sequence[TextJob]) -> Sequence[object]:
        """Return the prediction for each job, or the error of one that fails."""
        try:
            return self.service.predict([job.text for job in jobs], **dict(jobs[0].options))
        except BaseException as error:
            if len(jobs) > 1:
                return [result for job in jobs for result in self._predict([job])]
            if isinstance(error, ValueError):
                return [error]
            log.warning("a text could not be predicted: %s", type(error).__name__, exc_info=DEBUG)
            self.service.metrics.faults.labels(self.service.name).inc()
            return [ServerFaultError("this text could not be predicted")]


def start_worker(service: PredictorService) -> PredictorWorker:
    """Start the worker of a model."""
    worker = PredictorWorker(service)
    worker.start()
    return worker
