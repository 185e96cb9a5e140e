"""Metrics of a server in the Prometheus text format."""

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

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters, gauges and histograms of one server, in a registry of its own."""

    def __init__(self) -> None:
        """Create all metrics with the value zero."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own = self.registry
        self.requests = Counter("regard_requests", "Requests answered.", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "regard_request_seconds", "Latency of requests.", ["route"], buckets=_SECONDS, registry=own
        )
        self.sentences = Counter("regard_sentences", "Lines and sentence pairs processed.", ["model"], registry=own)
        self.tokens = Counter("regard_tokens", "Target tokens generated.", ["model"], registry=own)
        self.batch = Histogram("regard_batch_sentences", "Lines per search step.", buckets=_SENTENCES, registry=own)
        self.refused = Counter("regard_refused", "Requests refused with a full queue.", ["model"], registry=own)
        self.left = Counter("regard_clients_left", "Requests whose client disconnected early.", registry=own)
        self._waiting = Gauge("regard_waiting_sentences", "Lines in the queue.", ["model"], registry=own)
        self._running = Gauge("regard_running_sentences", "Lines in progress.", ["model"], registry=own)
        self.queue_seconds = Histogram(
            "regard_queue_seconds",
            "Time from the arrival of a request until a worker takes one of its jobs.",
            ["model"],
            buckets=_SECONDS,
            registry=own,
        )
        self.first_token_seconds = Histogram(
            "regard_first_token_seconds",
            "Time from the arrival of a request to the first decoding step of one of its lines.",
            ["model"],
            buckets=_SECONDS,
            registry=own,
        )
        self.log_lines_dropped = Counter(
            "regard_access_log_dropped", "Lines of the access log that could not be written.", registry=own
        )
        self.faults = Counter("regard_worker_faults", "Failed searches and worker restarts.", ["model"], registry=own)

    def observe_queue(self, model: str, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        """Read the queue gauges of a model from two functions whenever metrics are exported."""
        for gauge, count in ((self._waiting, waiting), (self._running, running)):
            gauge.labels(model).set_function(count)

    def export(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def answered_requests(self) -> int:
        """Return the number of requests answered so far, over all routes and statuses."""
        samples = (sample for metric in self.requests.collect() for sample in metric.samples)
        return round(sum(sample.value for sample in samples if sample.name == "regard_requests_total"))
