"""One update of the weights, on one device or many: forward, backward, clip, step.

The loss is summed over target tokens and divided once by the tokens of the whole step, over micro-batches and
processes alike, so that accumulating gradients or adding processes changes nothing but speed. Nothing here waits for
a device.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from regard.nn.block import Block
from regard.train.loss import Learner
from regard.train.stream import Load
from regard.train.workers import Workers


class Update(NamedTuple):
    """What an update was made of, on its device."""

    loss: Tensor
    """Summed over the target tokens of this process."""
    tokens: int
    """Target tokens of this process."""
    norm: Tensor
    """Norm of the whole gradient before it was clipped."""


def spread(learner: Learner, workers: Workers, sharding: str) -> nn.Module:
    """The learner as the processes share it: a whole one in each, or a part of each layer in each."""
    if workers.count == 1:
        return learner
    if sharding == "ddp":
        # The processes' models were built alike, from one seed.
        return DistributedDataParallel(learner, init_sync=False, gradient_as_bucket_view=True)
    mesh = init_device_mesh(workers.device.type, (workers.count,))
    for layer in [each for each in learner.modules() if isinstance(each, Block)]:
        # A layer's norms are at work in the layer before it too, so they stay in the outermost group.
        parts: list[nn.Module] = [layer.self, layer.feedforward]
        fully_shard(parts if layer.cross is None else [*parts, layer.cross], mesh=mesh)
    # So must what embeddings and output share.
    fully_shard(learner, mesh=mesh)
    return learner


def update(
    learner: nn.Module,
    optimisers: Sequence[Optimizer],
    loads: Sequence[Load],
    workers: Workers,
    precision: str,
    clip: float,
) -> Update:
    """Learn from the batches of one step."""
    tokens = sum(load.tokens for load in loads)
    # Engines divide a gradient by the number of processes; the loss takes that back.
    share = workers.count / workers.everybodys(tokens)
    total = torch.zeros((), dtype=torch.float64, device=workers.device)
    for number, load in enumerate(loads, start=1):
        with _exchanging(learner, number == len(loads)):
            placed = load.batch.to(workers.device, non_blocking=True)
            with autocast(workers.device, precision):
                loss = learner(placed.source, placed.target, placed.labels_N)
            (loss * share).backward()
        total += loss.detach()
    norm = _clipped(learner.parameters(), clip)
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return Update(total, tokens, norm)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Matrix products in half precision, or nothing of the kind."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def whole(tensor: Tensor) -> Tensor:
    """A tensor put together from the parts that processes hold; everybody must ask at once."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _clipped(parameters: Iterable[nn.Parameter], clip: float) -> Tensor:
    """Scale the gradient down to the norm `clip` if it is larger; the norm it had."""
    return whole(nn.utils.clip_grad_norm_(parameters, clip, foreach=True))


@contextmanager
def _exchanging(learner: nn.Module, last: bool) -> Iterator[None]:
    """Processes exchange gradients after the last batch of a step only."""
    if isinstance(learner, DistributedDataParallel) and not last:
        with learner.no_sync():
            yield
        return
    if isinstance(learner, FSDPModule):
        learner.set_requires_gradient_sync(last)
        learner.set_is_last_backward(last)
    yield
