"""Estimate how long a queue of jobs takes, from the jobs that were finished lately."""

import math
from collections import deque

WINDOW = 10.0
"""Seconds over which throughput is measured."""
MAX_SECONDS = 60
"""Longest estimate."""


class Throughput:
    """Jobs finished per second while there were any; the time without jobs does not count."""

    def __init__(self) -> None:
        """Start without jobs."""
        self._finished_at: deque[float] = deque(maxlen=1024)
        self._busy_since = 0.0

    def start(self, now: float) -> None:
        """Record that the first job after a time without jobs has arrived."""
        self._busy_since = now

    def finish(self, count: int, now: float) -> None:
        """Record that some jobs are finished."""
        self._finished_at.extend([now] * count)

    def seconds_for(self, jobs: int, now: float) -> int:
        """Estimate how many seconds some jobs take: at least 1, and as long as none has been finished yet."""
        since = max(self._busy_since, now - WINDOW)
        if len(self._finished_at) == self._finished_at.maxlen:
            since = max(since, self._finished_at[0])
        finished = sum(time >= since for time in self._finished_at)
        seconds = (now - since) * (jobs / finished if finished else 1)
        return min(MAX_SECONDS, max(1, math.ceil(seconds)))
