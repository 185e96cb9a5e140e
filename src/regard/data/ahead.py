"""An iterator worked on ahead of its consumer, by a thread, at most so many items ahead.

The thread ends when the iterator is exhausted, when it fails (the consumer then gets the very exception), when the
consumer closes or forgets it, and at the interpreter's exit at the latest.
"""

import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class _Shelf(Generic[T]):
    """What thread and consumer share: items made but not yet taken, and how things stand."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.changed = threading.Condition()
        self.items: deque[T] = deque()
        self.finished = False
        self.closed = False
        self.failure: BaseException | None = None

    def put(self, item: T) -> bool:
        """Wait for room, then add; false once nobody will take any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.items) < self.depth)
            if self.closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def finish(self, failure: BaseException | None) -> None:
        """Nothing more will come, and perhaps why."""
        with self.changed:
            self.finished, self.failure = True, failure
            self.changed.notify_all()

    def take(self) -> T:
        """Wait for an item; raise what the thread failed with once all it made before is taken."""
        with self.changed:
            self.changed.wait_for(lambda: bool(self.items) or self.finished or self.closed)
            if self.items and not self.closed:
                item = self.items.popleft()
                self.changed.notify_all()
                return item
            failure, self.failure = self.failure, None
        if failure is not None and not self.closed:
            raise failure
        raise StopIteration

    def close(self) -> None:
        """Nobody will take any more."""
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


class Ahead(Iterator[T]):
    """Iterate over what a generator yields while a thread already makes the next items.

    Use it as a context manager, or call `close`; one that is merely forgotten closes itself.
    """

    def __init__(self, items: Generator[T, None, None], depth: int) -> None:
        """Begin at once to make up to `depth` items."""
        self._shelf: _Shelf[T] = _Shelf(depth)
        # The thread knows the shelf but not this object, which could otherwise never be forgotten.
        # As a daemon it cannot hold up the interpreter's exit, at which the finaliser stops it in good order.
        thread = threading.Thread(target=_work, args=(items, self._shelf), name="regard-ahead", daemon=True)
        self._stop = weakref.finalize(self, _end, self._shelf, thread)
        thread.start()

    def __next__(self) -> T:
        """The next item, in the generator's order."""
        return self._shelf.take()

    def close(self) -> None:
        """Stop the thread, and wait until it has."""
        self._stop()

    def __enter__(self) -> "Ahead[T]":
        """Nothing more to set up: work has begun."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whatever happened."""
        self.close()


def _work(items: Generator[T, None, None], shelf: _Shelf[T]) -> None:
    """What the thread does: fill the shelf until told to stop."""
    failure: BaseException | None = None
    try:
        for item in items:
            if not shelf.put(item):
                break
    except BaseException as error:
        failure = error
    finally:
        items.close()
        shelf.finish(failure)


def _end(shelf: _Shelf[T], thread: threading.Thread) -> None:
    """Stop a thread and wait for it, unless it is the very thread that runs this, collecting garbage."""
    shelf.close()
    if thread is not threading.current_thread():
        thread.join()
