"""The queue: bounded, fair, and nobody in it is forgotten."""

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.serve.queue import Chore, FullError, Order, Queue


class AtOnce:
    """A loop that calls where it stands."""

    def call_soon_threadsafe(self, callback: Callable[[int, Any], Any], place: int, found: Any, /) -> None:
        callback(place, found)


def tickets(count: int, order: Order | None = None) -> list[Chore]:
    mine = order or Order(AtOnce(), lambda place, found: None)
    return [Chore(mine, place, int) for place in range(count)]


@given(st.integers(1, 4), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_everything_is_taken_once_in_order_and_shared_out_evenly(workers: int, sizes: list[int]) -> None:
    queue, put = Queue(1000, workers), list[Chore]()
    for size in sizes:
        put += (some := tickets(size))
        queue.put(some)
    taken: list[list[Any]] = [[] for _ in range(workers)]
    for mine in taken:
        if queue.waiting:
            mine += queue.take(0, 1000) or []
    assert [each for mine in taken for each in mine] == put
    assert max(map(len, taken)) <= -(-len(put) // workers) + workers
    assert queue.running == len(put)


def test_who_has_left_is_told_nothing() -> None:
    told = list[int]()
    order = Order(AtOnce(), lambda place, found: told.append(place))
    order.answer(1, "found")
    order.gone = True
    order.answer(2, "found")
    assert told == [1]


def test_a_full_queue_takes_all_of_a_request_or_nothing() -> None:
    queue = Queue(5, 1)
    queue.put(tickets(4))
    with pytest.raises(FullError) as full:
        queue.put(tickets(2))
    assert 1 <= full.value.seconds <= 60
    assert queue.waiting == 4
    queue.put(tickets(1))
    assert queue.waiting == 5


def test_an_empty_queue_takes_any_request_that_is_allowed_at_all() -> None:
    queue = Queue(2, 1)
    queue.put(tickets(10))
    assert queue.waiting == 10


def test_who_has_left_takes_nobodys_place_and_is_not_taken() -> None:
    queue, left = Queue(3, 1), Order(AtOnce(), lambda place, found: None)
    queue.put(tickets(3, left))
    left.gone = True
    stays = tickets(3)
    queue.put(stays)
    assert queue.take(0, 9) == stays


def test_a_closed_queue_is_emptied_before_its_workers_go_home() -> None:
    queue = Queue(3, 1)
    queue.put(tickets(2))
    queue.close()
    assert len(queue.take(0, 9) or []) == 2
    queue.done(2)
    assert queue.take(0, 9) is None


def test_a_worker_that_waits_is_woken_by_what_comes() -> None:
    queue, found = Queue(3, 1), list[Any]()
    worker = Thread(target=lambda: found.append(queue.take(0, 9)))
    worker.start()
    queue.put(tickets(1))
    worker.join(60)
    assert len(found[0]) == 1
    assert found[0][0].place == 0


def test_a_lone_line_is_left_to_the_first_of_those_who_wait() -> None:
    queue, found = Queue(5, 3), dict[int, Any]()

    def work(number: int) -> None:
        found[number] = queue.take(0, 9, number)

    staff = [Thread(target=work, args=(number,)) for number in range(3)]
    for worker in staff:
        worker.start()
    while len(queue._idle) < 3:
        pass
    (alone,) = tickets(1)
    queue.put([alone])
    staff[0].join()
    assert found == {0: [alone]}
    queue.put(tickets(2))
    staff[1].join()
    staff[2].join()
    assert [len(found[number]) for number in (1, 2)] == [1, 1]


def test_what_is_left_when_the_queue_closes_is_taken_by_anybody() -> None:
    queue = Queue(5, 2)
    queue._idle.add(0)
    queue.put(tickets(1))
    queue.close()
    assert len(queue.take(0, 9, 1) or []) == 1
    assert queue.take(0, 9, 1) is None
