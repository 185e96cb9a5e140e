"""Share the steps of a lone sentence among threads, but only while no other thread of the machine computes.

A step of one row reads every weight once, and two cores read faster than one. But threads that share a step wait for
each other at every product: when one core is busy otherwise, a step of 8 ms takes 300 ms. So the number of runnable
threads is read from the kernel before each step, which takes some µs. When sharing does not pay, it is paused, longer
each time: at once after a step that took far too long, after several slightly slow ones in a row otherwise, because
the first shared step has threads to wake.

Where the kernel does not say how many threads are runnable, steps stay on one thread.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

LOAD = Path("/proc/loadavg")
QUIET, LONG = 3, 9
"""Quiet steps before a shared one, so that a short pause is not taken for an idle machine; and the most that count, so
that after long quiet one busy reading does not stop sharing."""
PAUSE, LONGEST = 0.5, 60.0
"""Seconds without sharing after it did not pay: the first time, and at most."""
TRIES, FAR = 3, 4.0
"""Slow shared steps in a row after which sharing is paused, and how many times slower than alone is far too slow."""
AWAKE = 0.05
"""Seconds after a shared step in which its threads may still spin, waiting for more work."""


class _ThreadLimit(threading.local):
    """The number of threads that the steps of this thread may use."""

    step_threads = 1


_limit = _ThreadLimit()


@contextmanager
def single_threaded(step_threads: int) -> Iterator[None]:
    """Run torch on one thread in this context, but let the steps of engines use up to `step_threads`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    _limit.step_threads = step_threads
    try:
        yield
    finally:
        _limit.step_threads = 1
        torch.set_num_threads(before)


def runnable_threads() -> float:
    """Return how many threads of the whole machine run or wait for a core, this one included; infinity if unknown."""
    try:
        return float(LOAD.read_bytes().split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return math.inf


class ThreadSharing:
    """Decides before each step of a lone sentence whether threads share it."""

    def __init__(
        self, runnable: Callable[[], float] = runnable_threads, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Use these functions to count runnable threads and to read the time in seconds."""
        self.runnable, self.clock = runnable, clock
        self.usual: dict[int, float] = {}
        """Seconds that a step on one thread takes, by number of rows."""
        self.quiet = self.tried = 0
        self.pause, self.paused_until, self.shared_until = PAUSE, -math.inf, -math.inf

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """Run a step of so many rows on as many threads as pay."""
        most = _limit.step_threads
        if most == 1:
            yield
            return
        begin = self.clock()
        shared = self._should_share(rows, most, begin)
        torch.set_num_threads(most if shared else 1)
        try:
            yield
        finally:
            torch.set_num_threads(1)
            self._learn(rows, shared, begin)

    def _should_share(self, rows: int, most: int, now: float) -> bool:
        """Return whether threads share the step that begins."""
        own = most if now < self.shared_until + AWAKE else 1
        is_quiet = self.runnable() <= own
        self.quiet = min(LONG, self.quiet + 1) if is_quiet else max(0, self.quiet - QUIET)
        return is_quiet and self.quiet > QUIET and now >= self.paused_until and rows in self.usual

    def _learn(self, rows: int, shared: bool, begin: float) -> None:
        """Note how long a step took."""
        now = self.clock()
        took = now - begin
        if not shared:
            # Forget old measurements slowly: the machine may have become slower.
            self.usual[rows] = min(took, 1.02 * self.usual.get(rows, took))
            return
        self.shared_until = now
        if took < self.usual[rows]:
            self.pause, self.tried = max(PAUSE, 0.9 * self.pause), 0
            return
        self.tried += 1
        if self.tried == TRIES or took > FAR * self.usual[rows]:
            self.paused_until, self.quiet, self.tried = now + self.pause, 0, 0
            self.pause = min(LONGEST, 2 * self.pause)
