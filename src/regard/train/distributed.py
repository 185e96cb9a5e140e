"""Distributed training with torchrun: the process group, and DDP or FSDP2 around the model.

Without torchrun there is one process, and every collective operation here returns its argument.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from regard.bundle import find_device
from regard.data.batch import Batch
from regard.nn.block import TransformerBlock
from regard.tasks import Task


@dataclass(frozen=True)
class WorkerGroup:
    """This process and its device among the processes that train together."""

    device: torch.device
    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process has rank 0, which writes files and messages."""
        return self.rank == 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place. Does not synchronise with the device."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_number(self, number: int) -> float | Tensor:
        """Return the sum of a number over all processes.

        With several processes the result is a tensor on the device, so that nothing waits for the device.
        """
        if self.world_size == 1:
            return number
        return self.all_reduce(torch.full((), number, dtype=torch.get_default_dtype(), device=self.device))

    def minimum(self, number: int) -> int:
        """Return the smallest of the numbers of all processes."""
        if self.world_size == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        return int(tensor)

    def broadcast(self, number: float) -> float:
        """Return the number of rank 0 on every process."""
        if self.world_size == 1:
            return number
        tensor = torch.tensor(number, dtype=torch.float64)
        dist.broadcast(tensor, 0)
        return float(tensor)

    def check_equal(self, value: str, name: str) -> None:
        """Raise a ValueError if `value` differs between processes."""
        if self.world_size == 1:
            return
        values: list[str] = [""] * self.world_size
        dist.all_gather_object(values, value)
        if len(set(values)) > 1:
            raise ValueError(f"{name} differs between processes: {sorted(set(values))}; give every node the same files")

    def gather_strided(self, part: list[str]) -> list[str]:
        """Collect the results of items that were divided as `items[rank::world_size]`, in their original order."""
        if self.world_size == 1:
            return part
        parts: list[list[str]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(parts, part)
        results = [""] * sum(map(len, parts))
        for rank, results_of_rank in enumerate(parts):
            results[rank :: self.world_size] = results_of_rank
        return results

    def is_connection_error(self, error: RuntimeError) -> bool:
        """Return whether an error means that the connection to another process is lost."""
        signs = ("gloo", "nccl", "connection reset", "connection closed")
        return self.world_size > 1 and any(sign in str(error).lower() for sign in signs)

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.world_size > 1:
            dist.barrier()


def is_main_process() -> bool:
    """Return whether this process has rank 0, from the environment; works before the process group exists."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_worker_group(device: str = "auto") -> Iterator[WorkerGroup]:
    """Join the processes that torchrun started, as its environment variables say, and leave them at the end."""
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield WorkerGroup(find_device(device))
        return
    local = find_device(device)
    if local.type == "cuda":
        local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(local)
    owned = not dist.is_initialized()  # a group that the caller created is the caller's to destroy
    if owned:
        _init_process_group("cpu:gloo,cuda:nccl" if local.type == "cuda" else "gloo")
    try:
        yield WorkerGroup(local, dist.get_rank(), dist.get_world_size())
    finally:
        if owned:
            dist.destroy_process_group()


def _init_process_group(backend: str) -> None:
    """Initialise torch's process group over torchrun's store, with a prefix for this attempt.

    After a restart torchrun passes on the same store, which still has the addresses of the dead processes. The prefix
    keeps the new processes from reading them.
    """
    store, rank, world_size = next(iter(rendezvous("env://")))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefixed = distributed_c10d.PrefixStore(f"regard/{attempt}", store)
    dist.init_process_group(backend, store=prefixed, rank=rank, world_size=world_size)


class LossModule(nn.Module):
    """A model and the loss of its task as one module, so that DDP, FSDP and the compiler see a single call."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        """Train `model` with the loss of `task`."""
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, summed over its units."""
        return self.task.loss(self.model, batch)


def wrap_distributed(module: LossModule, group: WorkerGroup, sharding: str) -> nn.Module:
    """Wrap a module with DDP (a replica in each process) or FSDP2 (a shard of each layer in each process).

    Args:
        module: The model with its loss, built from the same seed in every process.
        group: The processes; a single one gets the module itself.
        sharding: `ddp` or `fsdp`.
    """
    if group.world_size == 1:
        return module
    if sharding == "ddp":
        # Every process built its model from one seed, so there is nothing to synchronise at the start.
        return DistributedDataParallel(module, init_sync=False, gradient_as_bucket_view=True)
    mesh = init_device_mesh(group.device.type, (group.world_size,))
    for block in [block for block in module.modules() if isinstance(block, TransformerBlock)]:
        # The norms of a block are also used at the end of the block before it, where its own weights would not be
        # gathered. They stay in the root group, as do the embeddings, which share weights with the output layer.
        parts: list[nn.Module] = [block.self, block.feedforward]
        fully_shard(parts if block.cross is None else [*parts, block.cross], mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def unwrap(module: nn.Module) -> nn.Module:
    """Return a module without its DDP wrapper."""
    return module.module if isinstance(module, DistributedDataParallel) else module


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor; a plain tensor is returned as it is. Every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
