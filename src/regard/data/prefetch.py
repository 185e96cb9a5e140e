"""Run a generator in a thread, a bounded number of items ahead of its consumer.

The thread ends when the generator is exhausted, when it fails (the consumer gets the exception), when the consumer
closes or drops the iterator, and at the latest when the interpreter exits.
"""

import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class _Queue(Generic[T]):
    """State shared by thread and consumer: items produced but not yet consumed, and flags."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.changed = threading.Condition()
        self.items: deque[T] = deque()
        self.finished = False
        self.closed = False
        self.failure: BaseException | None = None

    def put(self, item: T) -> bool:
        """Wait until there is room, then add an item; return False once the consumer has closed the queue."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.items) < self.depth)
            if self.closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def finish(self, failure: BaseException | None) -> None:
        """Mark the end of the items, and the exception that caused it, if any."""
        with self.changed:
            self.finished, self.failure = True, failure
            self.changed.notify_all()

    def take(self) -> T:
        """Wait for an item; after the last one, raise the thread's exception or StopIteration."""
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
        """Discard all items; nothing more will be consumed."""
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


class Prefetch(Iterator[T]):
    """Iterate over a generator while a thread already produces the next items.

    Use it as a context manager, or call `close`; an instance that is garbage-collected closes itself.
    """

    def __init__(self, items: Generator[T, None, None], depth: int) -> None:
        """Start to produce up to `depth` items ahead."""
        self._queue: _Queue[T] = _Queue(depth)
        # The thread references the queue but not this object, which could otherwise never be collected.
        # A daemon thread cannot delay the interpreter's exit, at which the finaliser stops it.
        thread = threading.Thread(target=_produce, args=(items, self._queue), name="regard-prefetch", daemon=True)
        self._stop = weakref.finalize(self, _end, self._queue, thread)
        thread.start()

    def __next__(self) -> T:
        """Return the next item, in the order of the generator."""
        return self._queue.take()

    def close(self) -> None:
        """Stop the thread and wait for its end."""
        self._stop()

    def __enter__(self) -> "Prefetch[T]":
        """Return the iterator; the thread is already running."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the iterator."""
        self.close()


def _produce(items: Generator[T, None, None], queue: _Queue[T]) -> None:
    """Fill the queue until the generator ends or the queue is closed; runs in the thread."""
    failure: BaseException | None = None
    try:
        for item in items:
            if not queue.put(item):
                break
    except BaseException as error:
        failure = error
    finally:
        items.close()
        queue.finish(failure)


def _end(queue: _Queue[T], thread: threading.Thread) -> None:
    """Stop the thread and wait for it, unless the garbage collector runs this in that very thread."""
    queue.close()
    if thread is not threading.current_thread():
        thread.join()
