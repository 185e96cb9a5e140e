"""Several workers of one thread each, which on a CPU do more than one worker of several threads.

Batches of a search are small: threads that share one batch spend much of their time waiting for each other, and on a
busy machine nearly all of it. Workers are threads of this process: torch lets Python go on while its kernels
run, so weights need no copy and results no way back. Processes were measured to be no faster.

    batches = (jobs[i : i + 32] for i in range(0, len(jobs), 32))
    for found in parallel(lambda batch: search_for(engine, batch), batches, workers=2):
        ...
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import torch

from regard.models.fast.company import alone

Task = TypeVar("Task")
Result = TypeVar("Result")

AHEAD = 2  # tasks waiting for each worker, so that none waits for a task


def parallel(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """What `work` makes of each task, in the order of the tasks, by so many workers side by side.

    A task without company is done here, on one thread too; an engine's heavy steps are shared by all threads, while
    nobody else computes: see `regard.models.fast.company`.

    Tasks are taken only as they are needed, so there may be no end of them. What `work` raises is raised here, at its
    task's turn; then, and when nobody asks for more, the workers finish what they have begun and end.
    """
    if workers < 1:
        raise ValueError(f"there is at least 1 worker, not {workers}")
    if workers == 1:
        yield from map(work, tasks)
        return
    coming = iter(tasks)
    first = list(islice(coming, 2))
    if len(first) < 2:
        yield from (_by_itself(work, task) for task in first)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(workers, "regard-worker", initializer=_alone)
    try:
        for task in chain(first, coming):
            waiting.append(pool.submit(work, task))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _by_itself(work: Callable[[Task], Result], task: Task) -> Result:
    """Do a task here, with as many threads at most as the caller has."""
    with alone(torch.get_num_threads()):
        return work(task)


def _alone() -> None:
    """Let this worker's kernels run on its own thread; the number is each thread's own."""
    torch.set_num_threads(1)
