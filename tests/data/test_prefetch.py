"""`Prefetch` runs a generator in a thread, at most `depth` items ahead, and never leaves the thread behind."""

import gc
import subprocess
import sys
import threading
from collections.abc import Generator

import pytest

from regard.data.prefetch import Prefetch


def counting(stop: int, made: list[int], closed: threading.Event) -> Generator[int, None, None]:
    try:
        for number in range(stop):
            made.append(number)
            yield number
    finally:
        closed.set()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "regard-prefetch"]


def test_items_come_in_order_and_end() -> None:
    closed = threading.Event()
    with Prefetch(counting(100, [], closed), depth=3) as numbers:
        assert list(numbers) == list(range(100))
        assert list(numbers) == []
    assert threads() == []


def test_the_thread_works_ahead_up_to_the_depth() -> None:
    made: list[int] = []
    closed = threading.Event()
    with Prefetch(counting(100, made, closed), depth=4) as numbers:
        taken = [next(numbers) for _ in range(10)]
    # Ten were taken, four are in the queue, and one may be waiting until the queue has space.
    assert taken == list(range(10))
    assert 10 <= len(made) <= 15


def test_closing_stops_the_thread_and_closes_the_generator() -> None:
    closed = threading.Event()
    numbers = Prefetch(counting(10**9, [], closed), depth=2)
    next(numbers)
    numbers.close()
    assert closed.is_set()
    assert threads() == []
    with pytest.raises(StopIteration):
        next(numbers)


def test_closing_twice_is_allowed() -> None:
    numbers = Prefetch(counting(10, [], threading.Event()), depth=2)
    numbers.close()
    numbers.close()


def test_garbage_collection_stops_the_thread() -> None:
    closed = threading.Event()
    numbers = Prefetch(counting(10**9, [], closed), depth=2)
    next(numbers)
    del numbers
    gc.collect()
    assert closed.is_set()
    assert threads() == []


def failing() -> Generator[int, None, None]:
    yield 1
    yield 2
    raise ValueError("the third is broken: fix line 3")


def test_an_exception_reaches_the_consumer_after_the_items_before_it() -> None:
    with Prefetch(failing(), depth=5) as numbers:
        assert [next(numbers), next(numbers)] == [1, 2]
        with pytest.raises(ValueError, match="the third is broken: fix line 3"):
            next(numbers)
        with pytest.raises(StopIteration):
            next(numbers)
    assert threads() == []


def nested() -> Generator[int, None, None]:
    with Prefetch(failing(), depth=1) as inner:
        yield from inner


def test_an_exception_passes_through_two_threads() -> None:
    with Prefetch(nested(), depth=1) as numbers, pytest.raises(ValueError, match="fix line 3"):
        list(numbers)
    assert threads() == []


def test_closing_the_outer_of_two_iterators_closes_both() -> None:
    closed = threading.Event()

    def outer() -> Generator[int, None, None]:
        with Prefetch(counting(10**9, [], closed), depth=1) as inner:
            yield from inner

    numbers = Prefetch(outer(), depth=1)
    next(numbers)
    numbers.close()
    assert closed.is_set()
    assert threads() == []


def test_leaving_the_block_by_an_exception_stops_the_thread() -> None:
    closed = threading.Event()
    with pytest.raises(ZeroDivisionError), Prefetch(counting(10**9, [], closed), depth=2) as numbers:
        _ = 1 // next(numbers)
    assert closed.is_set()
    assert threads() == []


def test_the_interpreter_exits_while_an_iterator_is_open() -> None:
    code = (
        "import itertools, numpy\n"
        "from regard.data.prefetch import Prefetch\n"
        "numbers = Prefetch((numpy.arange(1000).sum() for _ in itertools.count()), 4)\n"
        "print(next(numbers))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "499500", "")
