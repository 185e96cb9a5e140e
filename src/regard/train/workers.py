"""The processes that learn together, as torchrun starts them; without it, one process alone.

Everything that must be the same everywhere goes through here: sums, the first process's decisions, who writes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import rendezvous

from regard.bundle import find_device


@dataclass(frozen=True)
class Workers:
    """This process among those that learn together."""

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of everybody's tensor, left in it; nobody waits for a device."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def everybodys(self, number: int) -> float | Tensor:
        """The sum of everybody's numbers; where there are several it stays on the device, which is not waited for."""
        if self.count == 1:
            return number
        return self.total(torch.full((), number, dtype=torch.get_default_dtype(), device=self.device))

    def least(self, number: int) -> int:
        """The smallest of everybody's numbers."""
        if self.count == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        return int(tensor)

    def decided(self, number: float) -> float:
        """The first process's number, everywhere."""
        if self.count == 1:
            return number
        tensor = torch.tensor(number, dtype=torch.float64)
        dist.broadcast(tensor, 0)
        return float(tensor)

    def same(self, word: str, what: str) -> None:
        """Refuse to go on where somebody has another word."""
        if self.count == 1:
            return
        words: list[str] = [""] * self.count
        dist.all_gather_object(words, word)
        if len(set(words)) > 1:
            raise ValueError(f"{what} differs between processes: {sorted(set(words))}; give every node the same files")

    def dealt(self, mine: list[str]) -> list[str]:
        """Everybody's words in one list, where each process had every n-th of them."""
        if self.count == 1:
            return mine
        parts: list[list[str]] = [[] for _ in range(self.count)]
        dist.all_gather_object(parts, mine)
        everything = [""] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            everything[rank :: self.count] = part
        return everything

    def lost(self, error: RuntimeError) -> bool:
        """Whether an error says that another process is gone."""
        words = ("gloo", "nccl", "connection reset", "connection closed")
        return self.count > 1 and any(word in str(error).lower() for word in words)

    def wait(self) -> None:
        """Until everybody is here."""
        if self.count > 1:
            dist.barrier()


def speaks() -> bool:
    """Whether this is the process that writes and speaks, known before any other is met."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str = "auto") -> Iterator[Workers]:
    """Join the others that torchrun has started, as its environment tells, and leave them at the end."""
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Workers(find_device(device))
        return
    place = find_device(device)
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    ours = not dist.is_initialized()  # who has already brought the processes together will part them too
    if ours:
        _meet("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
    try:
        yield Workers(place, dist.get_rank(), dist.get_world_size())
    finally:
        if ours:
            dist.destroy_process_group()


def _meet(backend: str) -> None:
    """Find the others through torchrun's store, under a name of this attempt's own.

    After a restart torchrun hands out the same store again, in which the addresses of dead processes still stand.
    """
    store, rank, count = next(iter(rendezvous("env://")))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own = distributed_c10d.PrefixStore(f"regard/{attempt}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=count)
