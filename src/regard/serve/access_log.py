"""An access log of JSON lines. It contains no text of requests or responses."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from queue import Full, Queue
from threading import Thread
from typing import TextIO

from regard.serve.metrics import Metrics

MAX_WAITING = 10_000
"""Lines that wait to be written. If the reader of the log is slower than that, lines are dropped and counted."""


class AccessLog:
    """Writes one JSON object per request in a thread, because a pipe that nobody reads would block the event loop."""

    def __init__(self, stream: TextIO, metrics: Metrics) -> None:
        """Write to a stream, from `start` until `close`, and count dropped lines in the metrics of a server."""
        self._stream, self._dropped = stream, metrics.log_lines_dropped
        self._lines: Queue[str | None] = Queue(MAX_WAITING)
        self._thread = Thread(target=self._run, name="regard-access-log", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def write(self, **fields: str | int | float | None) -> None:
        """Write the time and some fields; callable from the event loop, which it never blocks."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        with suppress(Full):
            self._lines.put_nowait(json.dumps({"time": time, **fields}))
            return
        self._dropped.inc()

    def close(self, seconds: float = 1.0) -> None:
        """Write what waits, for at most a number of seconds."""
        with suppress(Full):
            self._lines.put(None, timeout=seconds)
            self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                print(line, file=self._stream, flush=True)
            except (OSError, ValueError):  # a full disk, or a closed stream
                self._dropped.inc()
