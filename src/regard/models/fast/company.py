"""How many threads share the steps of a lone sentence: all, but only while nobody else computes.

A step of one row reads every weight once, and two cores read sooner than one. But threads that share a step wait for
each other at every product: as soon as one core is another's, a step of 8 ms takes 300. So the kernel is asked before
each step how many threads want to run, which takes some µs, and when sharing does not pay it is not tried again for a
while, longer each time: after a step that took far too long at once, after some that took a little too long in a row,
because the first one has threads to wake.

Where the kernel does not say, one thread does it all.
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
"""Steps before which nobody else may have been at work, so that a short silence is not taken for an idle machine; after
a long one somebody who is seen once, and gone at the next step, was only passing."""
PAUSE, LONGEST = 0.5, 60.0
"""Seconds without sharing after it did not pay: the first time, and after many times."""
TRIES, FAR = 3, 4.0
"""Shared steps in a row, none quicker than one by itself, until that is given up; and how much longer is too long."""
AWAKE = 0.05
"""Seconds after a shared step in which threads that shared it may still be awake, waiting for more."""


class _Here(threading.local):
    """What each thread may do by itself."""

    threads = 1


_here = _Here()


@contextmanager
def alone(threads: int) -> Iterator[None]:
    """Let this thread do a task that has no company on one thread, steps of engines on up to so many."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    _here.threads = threads
    try:
        yield
    finally:
        _here.threads = 1
        torch.set_num_threads(before)


def running() -> float:
    """Threads of the whole machine that compute or wait for a core, this one among them."""
    try:
        return float(LOAD.read_bytes().split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return math.inf


class Company:
    """Decides before each step of a lone sentence whether threads share it."""

    def __init__(self, running: Callable[[], float] = running, clock: Callable[[], float] = time.perf_counter) -> None:
        """Ask these how many threads want to run, and what time it is."""
        self.running, self.clock = running, clock
        self.usual: dict[int, float] = {}
        """Seconds that a step of so many rows takes by itself."""
        self.quiet = self.tried = 0
        self.pause, self.rest, self.shared_until = PAUSE, -math.inf, -math.inf

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """A step of so many rows, on as many threads as are good for it."""
        most = _here.threads
        if most == 1:
            yield
            return
        begin = self.clock()
        shared = self._is_good(rows, most, begin)
        torch.set_num_threads(most if shared else 1)
        try:
            yield
        finally:
            torch.set_num_threads(1)
            self._learn(rows, shared, begin)

    def _is_good(self, rows: int, most: int, now: float) -> bool:
        """Whether all may share the step that begins."""
        mine = most if now < self.shared_until + AWAKE else 1
        nobody = self.running() <= mine
        self.quiet = min(LONG, self.quiet + 1) if nobody else max(0, self.quiet - QUIET)
        return nobody and self.quiet > QUIET and now >= self.rest and rows in self.usual

    def _learn(self, rows: int, shared: bool, begin: float) -> None:
        """Note what a step took."""
        now = self.clock()
        took = now - begin
        if not shared:
            # What was found once need not hold for ever.
            self.usual[rows] = min(took, 1.02 * self.usual.get(rows, took))
            return
        self.shared_until = now
        if took < self.usual[rows]:
            self.pause, self.tried = max(PAUSE, 0.9 * self.pause), 0
            return
        self.tried += 1
        if self.tried == TRIES or took > FAR * self.usual[rows]:
            self.rest, self.quiet, self.tried = now + self.pause, 0, 0
            self.pause = min(LONGEST, 2 * self.pause)
