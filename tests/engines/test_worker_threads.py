"""Parallel workers return results in order, raise errors in their turn, and end."""

import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch

from regard.engines import parallel


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(workers: int) -> None:
    assert list(parallel(lambda n: n * n, range(50), workers)) == [n * n for n in range(50)]


def test_infinitely_many_tasks_are_taken_as_they_are_needed() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for n in count():
            taken.append(n)
            yield n

    results = parallel(lambda n: -n, tasks(), 2)
    assert list(islice(results, 5)) == [0, -1, -2, -3, -4]
    assert len(taken) < 15


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_raised_in_its_tasks_turn_and_the_workers_end(workers: int) -> None:
    results = parallel(lambda n: 10 // n, [5, 2, 0, 1], workers)
    assert [next(results), next(results)] == [2, 5]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("regard-worker")] == []


def test_workers_run_in_parallel_on_one_torch_thread_each() -> None:
    meeting = threading.Barrier(2, timeout=60)
    before = torch.get_num_threads()

    def meet(_: int) -> int:
        meeting.wait()  # passes only when both workers have come
        return torch.get_num_threads()

    assert list(parallel(meet, range(4), 2)) == [1, 1, 1, 1]
    assert torch.get_num_threads() == before


def test_zero_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, not 0"):
        list(parallel(abs, [1], 0))


def test_a_single_task_runs_in_the_calling_thread_on_one_torch_thread() -> None:
    before = torch.get_num_threads()

    def where(_: int) -> tuple[threading.Thread, int]:
        return threading.current_thread(), torch.get_num_threads()

    torch.set_num_threads(2)
    try:
        assert list(parallel(where, [0], 2)) == [(threading.current_thread(), 1)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert list(parallel(where, list[int](), 2)) == []


def test_an_error_in_a_single_task_restores_the_torch_threads() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        list(parallel(lambda n: 1 // n, [0], 2))
    assert torch.get_num_threads() == before
