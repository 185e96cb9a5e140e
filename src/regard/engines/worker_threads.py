"""Run tasks on several worker threads of one torch thread each.

On a CPU this does more work than one worker with several torch threads: the batches of a search are small, and threads
that share one batch spend much of their time waiting for each other, on a busy machine nearly all of it. Workers are
threads of this process, because torch releases the interpreter lock while its kernels run: weights need no copy and
results no transfer. Processes were measured to be no faster.

    batches = (requests[i : i + 32] for i in range(0, len(requests), 32))
    for hypotheses in parallel(lambda batch: translate(engine, batch), batches, workers=2):
        ...
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import torch

from regard.engines.thread_sharing import single_threaded

Task = TypeVar("Task")
Result = TypeVar("Result")

AHEAD = 2  # tasks waiting for each worker, so that no worker waits for a task


def parallel(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield what `work` returns for each task, in the order of the tasks, computed by several workers.

    A single task runs in the calling thread, on one torch thread; an engine's heavy steps use all threads while the
    machine is otherwise idle: see `regard.engines.thread_sharing`.

    Tasks are taken only as they are needed, so there may be infinitely many. What `work` raises is raised here, in the
    task's turn. Then, and when the caller stops iterating, workers finish the tasks they have begun and end.

    Raises:
        ValueError: `workers` is less than 1.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if workers == 1:
        yield from map(work, tasks)
        return
    coming = iter(tasks)
    first = list(islice(coming, 2))
    if len(first) < 2:
        for task in first:
            with single_threaded(torch.get_num_threads()):
                result = work(task)
            yield result
        return
    waiting: deque[Future[Result]] = deque()
    # The number of torch threads is each thread's own setting.
    pool = ThreadPoolExecutor(workers, "regard-worker", initializer=torch.set_num_threads, initargs=(1,))
    try:
        for task in chain(first, coming):
            waiting.append(pool.submit(work, task))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
