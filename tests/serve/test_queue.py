"""The queue of jobs: bounded, fair, and no job in it is lost."""

from collections.abc import Callable
from itertools import pairwise
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.serve.queue import FunctionJob, JobQueue, PendingResponse, QueueFullError


class ImmediateLoop:
    """An event loop that calls at once, in the calling thread."""

    def call_soon_threadsafe(self, callback: Callable[[int, Any], Any], index: int, result: Any, /) -> None:
        callback(index, result)


def make_jobs(count: int, response: PendingResponse | None = None) -> list[FunctionJob]:
    response = response or PendingResponse(ImmediateLoop(), lambda index, result: None)
    return [FunctionJob(response, index, int) for index in range(count)]


@given(st.integers(1, 4), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_every_job_is_taken_once_in_the_order_of_its_request_and_shared_evenly(workers: int, sizes: list[int]) -> None:
    queue, jobs = JobQueue(1000, workers), list[FunctionJob]()
    for size in sizes:
        jobs += (new := make_jobs(size))
        queue.put(new)
    taken: list[list[Any]] = [[] for _ in range(workers)]
    for share in taken:
        if queue.waiting:
            share += queue.take(0, 1000) or []
    order = [job for share in taken for job in share]
    assert sorted(order, key=jobs.index) == jobs
    assert all(order.index(job) < order.index(after) for job, after in pairwise(jobs) if after.index)
    assert max(map(len, taken)) <= -(-len(jobs) // workers) + workers
    assert queue.running == len(jobs)


def test_a_closed_response_receives_no_result() -> None:
    received = list[int]()
    response = PendingResponse(ImmediateLoop(), lambda index, result: received.append(index))
    response.deliver(1, "result")
    response.closed = True
    response.deliver(2, "result")
    assert received == [1]


def test_a_full_queue_takes_all_jobs_of_a_request_or_none() -> None:
    queue = JobQueue(5, 1)
    queue.put(make_jobs(4))
    with pytest.raises(QueueFullError) as full:
        queue.put(make_jobs(2))
    assert 1 <= full.value.seconds <= 60
    assert queue.waiting == 4
    queue.put(make_jobs(1))
    assert queue.waiting == 5


def test_an_empty_queue_takes_a_request_of_any_size() -> None:
    queue = JobQueue(2, 1)
    queue.put(make_jobs(10))
    assert queue.waiting == 10


def test_jobs_of_a_closed_response_take_no_space_and_are_not_taken() -> None:
    queue, closed = JobQueue(3, 1), PendingResponse(ImmediateLoop(), lambda index, result: None)
    queue.put(make_jobs(3, closed))
    closed.closed = True
    jobs = make_jobs(3)
    queue.put(jobs)
    assert queue.take(0, 9) == jobs


def test_a_closed_queue_is_emptied_before_its_workers_end() -> None:
    queue = JobQueue(3, 1)
    queue.put(make_jobs(2))
    queue.close()
    assert len(queue.take(0, 9) or []) == 2
    queue.mark_done(2)
    assert queue.take(0, 9) is None


def test_a_new_job_wakes_an_idle_worker() -> None:
    queue, taken = JobQueue(3, 1), list[Any]()
    worker = Thread(target=lambda: taken.append(queue.take(0, 9)))
    worker.start()
    queue.put(make_jobs(1))
    worker.join(60)
    assert len(taken[0]) == 1
    assert taken[0][0].index == 0


def test_a_single_job_is_left_to_the_idle_worker_with_the_lowest_number() -> None:
    queue, taken = JobQueue(5, 3), dict[int, Any]()

    def work(number: int) -> None:
        taken[number] = queue.take(0, 9, number)

    workers = [Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    while len(queue._idle) < 3:
        pass
    (single,) = make_jobs(1)
    queue.put([single])
    workers[0].join()
    assert taken == {0: [single]}
    queue.put(make_jobs(2))
    workers[1].join()
    workers[2].join()
    assert [len(taken[number]) for number in (1, 2)] == [1, 1]


def test_any_worker_takes_what_is_left_in_a_closed_queue() -> None:
    queue = JobQueue(5, 2)
    queue._idle.add(0)
    queue.put(make_jobs(1))
    queue.close()
    assert len(queue.take(0, 9, 1) or []) == 1
    assert queue.take(0, 9, 1) is None
