"""What is counted, in Prometheus' text format; metrics and labels are few, so that they stay few."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

TEXT = CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Meter:
    """The figures of one server."""

    def __init__(self) -> None:
        """All at zero; they belong to this server, not to the process."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own = self.registry
        self.requests = Counter("regard_requests", "Requests answered.", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "regard_request_seconds", "From request to answer.", ["route"], buckets=_SECONDS, registry=own
        )
        self.sentences = Counter("regard_sentences", "Lines and pairs dealt with.", ["model"], registry=own)
        self.tokens = Counter("regard_tokens", "Target tokens given.", ["model"], registry=own)
        self.batch = Histogram(
            "regard_batch_sentences", "Lines searched side by side.", buckets=_SENTENCES, registry=own
        )
        self.refused = Counter("regard_refused", "Requests the queue had no room for.", ["model"], registry=own)
        self.left = Counter("regard_clients_left", "Requests whose client went before its answer.", registry=own)
        self._waiting = Gauge("regard_waiting_sentences", "Lines in the queue.", ["model"], registry=own)
        self._running = Gauge("regard_running_sentences", "Lines being worked on.", ["model"], registry=own)
        self.faults = Counter("regard_worker_faults", "Times a worker failed and began anew.", ["model"], registry=own)

    def watch(self, model: str, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        """Show how many lines of a model wait and run, whenever somebody looks."""
        for gauge, count in ((self._waiting, waiting), (self._running, running)):
            gauge.labels(model).set_function(count)

    def text(self) -> bytes:
        """All figures as they are now."""
        return generate_latest(self.registry)
