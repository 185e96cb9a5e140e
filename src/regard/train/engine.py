"""One update of the weights, on one device or many: forward, backward, gradient clipping, optimiser step.

The loss is summed over units (tokens, labels, …) and divided once by the units of the whole step, over all
micro-batches and processes. Gradient accumulation and more processes therefore change the speed and nothing else,
unless the loss of an example depends on the others of its batch (`Task.divisible`). Nothing here synchronises with the
device.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from regard.nn.dropout import private_rng
from regard.train.cpu_threads import CpuThreads, single_threaded_kernels
from regard.train.cuda_graphs import GraphRunner
from regard.train.device import autocast
from regard.train.distributed import WorkerGroup, full_tensor
from regard.train.muon import Muon
from regard.train.stream import MicroBatch


class Update(NamedTuple):
    """Metrics of one update; the tensors are on the device."""

    loss: Tensor
    """Loss of this process, summed over its units."""
    units: int
    """Units of this process."""
    norm: Tensor
    """Norm of the gradient over all processes, before clipping."""


@dataclass(frozen=True, eq=False)
class TrainingEngine:
    """Updates the weights of a model from the micro-batches of a step."""

    module: nn.Module
    """The model with its loss, wrapped with DDP or FSDP if there are several processes."""
    optimisers: Sequence[Optimizer]
    group: WorkerGroup
    precision: str
    """Precision of matrix products."""
    clip: float
    """Maximum norm of the gradient."""
    threads: CpuThreads | None = None
    """Threads that divide the micro-batches of a step among them, on a CPU."""
    graphs: GraphRunner | None = None
    """Runs micro-batches as CUDA graphs."""

    def update(self, micro_batches: Sequence[MicroBatch]) -> Update:
        """Update the weights from the micro-batches of one step."""
        units = sum(micro_batch.units for micro_batch in micro_batches)
        # DDP and FSDP average gradients over processes. Multiplied by the world size the average is a sum.
        scale = self.group.world_size / self.group.sum_number(units)
        with nullcontext() if self.threads is None else single_threaded_kernels():
            loss = self._backward(micro_batches, scale)
            norm = full_tensor(nn.utils.clip_grad_norm_(self.module.parameters(), self.clip, foreach=True))
            for optimiser in self.optimisers:
                if isinstance(optimiser, Muon):
                    optimiser.threads = self.threads
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
        return Update(loss, units, norm)

    def _backward(self, micro_batches: Sequence[MicroBatch], scale: float | Tensor) -> Tensor:
        """Return the summed loss, and leave the gradients of `scale` times the loss in the `.grad` of the weights."""
        if self.threads is None and self.graphs is None:
            return self._backward_eagerly(micro_batches, scale)
        assert self.group.world_size == 1, "neither CPU threads nor CUDA graphs synchronise with other processes"
        if self.threads is not None:
            return self._backward_in_threads(self.threads, micro_batches, float(scale))
        assert self.graphs is not None
        return _backward_in_graphs(self.graphs, micro_batches, float(scale))

    def _backward_eagerly(self, micro_batches: Sequence[MicroBatch], scale: float | Tensor) -> Tensor:
        """Run one micro-batch after the other; autograd accumulates the gradients."""
        total = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for number, micro_batch in enumerate(micro_batches, start=1):
            with _gradient_sync(self.module, number == len(micro_batches)):
                batch = micro_batch.batch.to(self.group.device, non_blocking=True)
                with autocast(self.group.device, self.precision):
                    loss = self.module(batch)
                (loss * scale).backward()
            total += loss.detach()
        return total

    def _backward_in_threads(self, threads: CpuThreads, micro_batches: Sequence[MicroBatch], scale: float) -> Tensor:
        """Run the micro-batches on CPU threads, every n-th on each, and add up the gradients in a fixed order."""
        weights = [weight for weight in self.module.parameters() if weight.requires_grad]
        # Each thread has its own random generator, so that dropout does not depend on how the threads are scheduled.
        seeds = torch.randint(2**62, (threads.count,)).tolist()

        def work(thread: int) -> tuple[Tensor, list[Tensor | None]]:
            total = torch.zeros((), dtype=torch.float64)
            gradients: list[Tensor | None] = [None] * len(weights)
            with private_rng(seeds[thread]):
                for micro_batch in micro_batches[thread :: threads.count]:
                    # Autocast's cache of bfloat16 weights is shared by threads, but the cached tensors belong to the
                    # autograd graph of the thread that cast them.
                    with autocast(torch.device("cpu"), self.precision, cached=False):
                        loss = self.module(micro_batch.batch)
                    gradients = _add(gradients, torch.autograd.grad(loss * scale, weights, allow_unused=True))
                    total += loss.detach()
            return total, gradients

        results = threads.run(work)
        gradients = results[0][1]
        for _, more in results[1:]:
            gradients = _add(gradients, more)
        _set_gradients(weights, gradients)
        return torch.stack([total for total, _ in results]).sum()


def _backward_in_graphs(graphs: GraphRunner, micro_batches: Sequence[MicroBatch], scale: float) -> Tensor:
    """Run the micro-batches as CUDA graphs, and accumulate their gradients."""
    total = torch.zeros((), dtype=torch.float64, device=graphs.device)
    accumulated: list[Tensor | None] = [None] * len(graphs.weights)
    for micro_batch in micro_batches:
        loss, gradients = graphs.run(micro_batch.batch, scale)
        if len(micro_batches) > 1:
            # The next replay overwrites the graph's gradients.
            gradients = [None if gradient is None else gradient.clone() for gradient in gradients]
        accumulated = _add(accumulated, gradients)
        total += loss
    _set_gradients(graphs.weights, accumulated)
    return total


def _add(left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Add gradients weight by weight; None counts as zero."""
    return [b if a is None else a if b is None else a + b for a, b in zip(left, right, strict=True)]


def _set_gradients(weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient


@contextmanager
def _gradient_sync(module: nn.Module, last: bool) -> Iterator[None]:
    """Let processes exchange gradients after the last micro-batch of a step only."""
    if isinstance(module, DistributedDataParallel) and not last:
        with module.no_sync():
            yield
        return
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
        module.set_is_last_backward(last)
    yield
