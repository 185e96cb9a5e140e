"""The threads that learn together on a CPU: each takes a part of every batch, with kernels of its own.

Batches on a CPU are small, so threads that share one kernel spend much of their time waiting for each other. Hands do
not: they go through the whole model side by side, each with a part of the batch, and meet once an update. Torch lets
Python go on while its kernels run, so they are threads of this process, and the weights are the same for all.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

import torch

Made = TypeVar("Made")

FEWEST = 256  # tokens of either side that are worth a hand
MOST = 8  # hands, beyond which they would wait for the interpreter


class Hands:
    """So many threads that do the same work on different parts; close them when done."""

    def __init__(self, count: int, threads: int = 1) -> None:
        """Each hand's kernels may use `threads` threads."""
        self.count = count
        self._pool = ThreadPoolExecutor(count, "regard-hand", torch.set_num_threads, (threads,))

    def do(self, work: Callable[[int], Made]) -> list[Made]:
        """What each hand makes of the work, which is told the hand's number."""
        begun = [self._pool.submit(work, number) for number in range(self.count)]
        wait(begun)  # all of them, whatever becomes of one: they work on the same weights
        return [each.result() for each in begun]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def __enter__(self) -> "Hands":
        """Nothing more to set up."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whatever happened."""
        self.close()


def hands_for(tokens: int) -> Hands | None:
    """As many hands as this process has threads for and batches of so many tokens can use; none for one alone."""
    threads = torch.get_num_threads()
    count = min(threads, tokens // FEWEST, MOST)
    return Hands(count, threads // count) if count > 1 else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Kernels of this thread use no other for a while, whose threads would keep turning beside those of the hands."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
