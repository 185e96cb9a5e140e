import gc
import subprocess
import sys
import threading
from collections.abc import Generator

import pytest

from regard.data.ahead import Ahead


def counting(stop: int, made: list[int], closed: threading.Event) -> Generator[int, None, None]:
    try:
        for number in range(stop):
            made.append(number)
            yield number
    finally:
        closed.set()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "regard-ahead"]


def test_items_come_in_order_and_end() -> None:
    closed = threading.Event()
    with Ahead(counting(100, [], closed), depth=3) as numbers:
        assert list(numbers) == list(range(100))
        assert list(numbers) == []
    assert threads() == []


def test_the_thread_works_ahead_but_only_so_far() -> None:
    made: list[int] = []
    closed = threading.Event()
    with Ahead(counting(100, made, closed), depth=4) as numbers:
        taken = [next(numbers) for _ in range(10)]
    # Ten taken, four on the shelf, and one in hand that found no room.
    assert taken == list(range(10))
    assert 10 <= len(made) <= 15


def test_closing_stops_the_thread_and_closes_the_generator() -> None:
    closed = threading.Event()
    numbers = Ahead(counting(10**9, [], closed), depth=2)
    next(numbers)
    numbers.close()
    assert closed.is_set()
    assert threads() == []
    with pytest.raises(StopIteration):
        next(numbers)


def test_closing_twice_is_closing_once() -> None:
    numbers = Ahead(counting(10, [], threading.Event()), depth=2)
    numbers.close()
    numbers.close()


def test_one_that_is_forgotten_stops_its_thread() -> None:
    closed = threading.Event()
    numbers = Ahead(counting(10**9, [], closed), depth=2)
    next(numbers)
    del numbers
    gc.collect()
    assert closed.is_set()
    assert threads() == []


def failing() -> Generator[int, None, None]:
    yield 1
    yield 2
    raise ValueError("the third is broken: mend line 3")


def test_a_failure_reaches_the_consumer_after_what_came_before_it() -> None:
    with Ahead(failing(), depth=5) as numbers:
        assert [next(numbers), next(numbers)] == [1, 2]
        with pytest.raises(ValueError, match="the third is broken: mend line 3"):
            next(numbers)
        with pytest.raises(StopIteration):
            next(numbers)
    assert threads() == []


def nested() -> Generator[int, None, None]:
    with Ahead(failing(), depth=1) as inner:
        yield from inner


def test_a_failure_passes_through_two_threads() -> None:
    with Ahead(nested(), depth=1) as numbers, pytest.raises(ValueError, match="mend line 3"):
        list(numbers)
    assert threads() == []


def test_closing_the_outer_of_two_closes_both() -> None:
    closed = threading.Event()

    def outer() -> Generator[int, None, None]:
        with Ahead(counting(10**9, [], closed), depth=1) as inner:
            yield from inner

    numbers = Ahead(outer(), depth=1)
    next(numbers)
    numbers.close()
    assert closed.is_set()
    assert threads() == []


def test_leaving_the_block_by_an_exception_stops_the_thread() -> None:
    closed = threading.Event()
    with pytest.raises(ZeroDivisionError), Ahead(counting(10**9, [], closed), depth=2) as numbers:
        _ = 1 // next(numbers)
    assert closed.is_set()
    assert threads() == []


def test_the_interpreter_exits_while_one_is_still_open() -> None:
    code = (
        "import itertools, numpy\n"
        "from regard.data.ahead import Ahead\n"
        "numbers = Ahead((numpy.arange(1000).sum() for _ in itertools.count()), 4)\n"
        "print(next(numbers))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "499500", "")
