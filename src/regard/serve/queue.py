"""Requests waiting for a model: bounded in number, first come first served, shared out among its workers.

Nobody waits for company: a worker that is free takes what there is at once, and what comes later joins it on its way.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition
from time import monotonic
from typing import Any, Protocol

from regard.translator import Options, Request

_MEMORY = 10.0  # seconds over which the pace is measured
_LONGEST_WAIT = 60  # seconds a client is told to stay away, at most


class FullError(Exception):
    """There is no room; come back in so many seconds."""

    def __init__(self, seconds: int) -> None:
        """After so many seconds there may be room."""
        super().__init__(f"too many lines are waiting; come back in {seconds} s")
        self.seconds = seconds


class Loop(Protocol):
    """What an order needs of an event loop."""

    def call_soon_threadsafe(self, callback: Callable[[int, Any], Any], place: int, found: Any, /) -> Any:
        """Call in the loop's own thread, soon."""


class Order:
    """One request on its way: who is told what was found, and whether anybody still wants it."""

    def __init__(self, loop: Loop, tell: Callable[[int, Any], None], streamed: bool = False) -> None:
        """`tell` is called in the event loop, with the place of a line and what became of it."""
        self._loop, self._tell, self.streamed = loop, tell, streamed
        self.gone = False
        """Set when its client has left or its time is over: what is left of it is not done any more."""

    def answer(self, place: int, found: Any) -> None:
        """Say what became of a line, from any thread."""
        if not self.gone:
            with suppress(RuntimeError):  # the loop has ended, and with it whoever asked
                self._loop.call_soon_threadsafe(self._told, place, found)

    def _told(self, place: int, found: Any) -> None:
        if not self.gone:
            self._tell(place, found)


@dataclass(frozen=True, eq=False)
class Line:
    """A line to search a translation for."""

    order: Order
    place: int
    request: Request
    options: Options


@dataclass(frozen=True, eq=False)
class Chore:
    """Something else to do with the model, by the one worker that takes it."""

    order: Order
    place: int
    work: Callable[[], Any]


Ticket = Line | Chore


class Queue:
    """Lines of all clients for one model."""

    def __init__(self, most: int, workers: int) -> None:
        """At most so many wait; so many workers take."""
        self.most, self.workers = most, workers
        self.running = 0
        self._waiting: deque[Ticket] = deque()
        self._changed = Condition()
        self._closed = False
        self._idle: set[int] = set()
        self._done: deque[float] = deque(maxlen=1024)

    @property
    def waiting(self) -> int:
        """Lines nobody has taken yet."""
        return len(self._waiting)

    def put(self, tickets: Sequence[Ticket]) -> None:
        """Let them all wait, or none: `FullError` says when to come back. An empty queue takes any request."""
        with self._changed:
            if len(self._waiting) + len(tickets) > self.most:
                # Whoever has left takes nobody's place.
                self._waiting = deque(each for each in self._waiting if not each.order.gone)
                if self._waiting and len(self._waiting) + len(tickets) > self.most:
                    raise FullError(self._seconds())
            self._waiting.extend(tickets)
            self._changed.notify_all()

    def take(self, mine: int, most: int, number: int = 0) -> list[Ticket] | None:
        """What a worker that has so many under way takes on: its share, at most so many; None if all is over.

        A worker with nothing to do waits here; a lone line is left to the idle one with the lowest number. Whoever
        has left the queue in the meantime is not taken.
        """
        with self._changed:
            while True:
                while self._waiting and self._waiting[0].order.gone:
                    self._waiting.popleft()
                if mine or (self._waiting and not self._is_for_another(number)):
                    break
                if self._closed:
                    return None
                self._idle.add(number)
                self._changed.wait()
                self._idle.discard(number)
            share = -(-(len(self._waiting) + self.running) // self.workers) - mine
            count = max(0, min(len(self._waiting), max(share, int(mine == 0)), most))
            self.running += count
            return [self._waiting.popleft() for _ in range(count)]

    def _is_for_another(self, number: int) -> bool:
        """Whether the one line that waits is left to a worker with a lower number, who waits too."""
        return len(self._waiting) == 1 and not self._closed and any(each < number for each in self._idle)

    def done(self, count: int) -> None:
        """So many that were taken are over."""
        with self._changed:
            self.running -= count
            self._done.extend([monotonic()] * count)

    def close(self) -> None:
        """What waits is still done; then workers may go home."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _seconds(self) -> int:
        """How long the queue will take at its present pace."""
        now = monotonic()
        recent = sum(now - each < _MEMORY for each in self._done)
        return min(_LONGEST_WAIT, max(1, math.ceil(len(self._waiting) * _MEMORY / max(1, recent))))
