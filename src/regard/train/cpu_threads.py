"""Data-parallel threads for training on a CPU: each thread runs the whole model on its part of every batch.

Batches on a CPU are small, so threads that share one kernel spend much of their time waiting for each other. Threads
that each run the whole forward and backward pass on a part of the batch meet only once per update. PyTorch releases the
interpreter lock while its kernels run, so they can be threads of one process and share the weights.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")

MIN_TOKENS = 256  # tokens of each sequence attribute that make a thread worthwhile
MAX_THREADS = 8  # more would wait for the interpreter lock


class CpuThreads(ThreadPoolExecutor):
    """A fixed number of threads that run the same function on different parts of the data."""

    def __init__(self, count: int, kernel_threads: int = 1) -> None:
        """Start `count` threads, whose kernels may use `kernel_threads` threads each."""
        super().__init__(count, "regard-train", torch.set_num_threads, (kernel_threads,))
        self.count = count

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Call `function(thread)` on every thread, and return the results by the number of the thread."""
        futures = [self.submit(function, thread) for thread in range(self.count)]
        wait(futures)  # for all of them, even if one fails, because they work on the same weights
        return [future.result() for future in futures]


def make_cpu_threads(tokens: int) -> CpuThreads | None:
    """Return threads for batches of `tokens` tokens, or None if there would be only one.

    Their number is limited by torch's own number of threads and by the tokens that each needs to be worthwhile.
    """
    available = torch.get_num_threads()
    count = min(available, tokens // MIN_TOKENS, MAX_THREADS)
    return CpuThreads(count, available // count) if count > 1 else None


@contextmanager
def single_threaded_kernels() -> Iterator[None]:
    """Run the kernels of this thread on one thread, whose OpenMP threads would otherwise spin beside `CpuThreads`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
