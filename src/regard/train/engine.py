"""One update of the weights, on one device or many: forward, backward, clip, step.

The loss is summed over target tokens and divided once by the tokens of the whole step, over micro-batches and
processes alike, so that accumulating gradients or adding processes changes nothing but speed. Nothing here waits for
a device.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from regard.nn.block import Block
from regard.nn.dropout import own_dice
from regard.train.hands import Hands, one_thread
from regard.train.loss import Learner
from regard.train.muon import Muon
from regard.train.precision import autocast
from regard.train.recording import Recorder
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


@dataclass(frozen=True, eq=False)
class Engine:
    """A learner and those who move its weights."""

    learner: nn.Module
    """As the processes share it."""
    optimisers: Sequence[Optimizer]
    workers: Workers
    precision: str
    """Of matrix products."""
    clip: float
    """The norm that a gradient may have."""
    hands: Hands | None = None
    """Who share the batches out among themselves, if anybody does."""
    recorder: Recorder | None = None
    """Who takes batches through the learner, where that is not done one kernel at a time."""

    def update(self, loads: Sequence[Load]) -> Update:
        """Learn from the batches of one step."""
        tokens = sum(load.tokens for load in loads)
        # Engines divide a gradient by the number of processes; the loss takes that back.
        share = self.workers.count / self.workers.everybodys(tokens)
        with nullcontext() if self.hands is None else one_thread():
            total = self._pass(loads, share)
            norm = _clipped(self.learner.parameters(), self.clip)
            for optimiser in self.optimisers:
                if isinstance(optimiser, Muon):
                    optimiser.hands = self.hands
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
        return Update(total, tokens, norm)

    def _pass(self, loads: Sequence[Load], share: float | Tensor) -> Tensor:
        """The summed loss of the batches; the gradients of `share` times it are left at the weights."""
        if self.hands is None and self.recorder is None:
            return _one_by_one(self.learner, loads, self.workers, self.precision, share)
        assert self.workers.count == 1, "neither hands nor recordings wait for other processes"
        if self.hands is not None:
            return _by_hands(self.learner, loads, self.hands, self.precision, float(share))
        assert self.recorder is not None
        return _recorded(self.recorder, loads, float(share))


def _one_by_one(
    learner: nn.Module, loads: Sequence[Load], workers: Workers, precision: str, share: float | Tensor
) -> Tensor:
    """The loss of one batch after the other, whose gradients add up."""
    total = torch.zeros((), dtype=torch.float64, device=workers.device)
    for number, load in enumerate(loads, start=1):
        with _exchanging(learner, number == len(loads)):
            placed = load.batch.to(workers.device, non_blocking=True)
            with autocast(workers.device, precision):
                loss = learner(placed.source, placed.target, placed.labels_N)
            (loss * share).backward()
        total += loss.detach()
    return total


def _by_hands(learner: nn.Module, loads: Sequence[Load], hands: Hands, precision: str, share: float) -> Tensor:
    """The same on a CPU, every hand with some of the batches, and dice of its own."""
    weights = [each for each in learner.parameters() if each.requires_grad]
    seeds = torch.randint(2**62, (hands.count,)).tolist()

    def work(hand: int) -> tuple[Tensor, list[Tensor | None]]:
        total = torch.zeros((), dtype=torch.float64)
        sums: list[Tensor | None] = [None] * len(weights)
        with own_dice(seeds[hand]):
            for load in loads[hand :: hands.count]:
                # What one thread has cast to half precision belongs to its graph: another must not find it.
                with autocast(torch.device("cpu"), precision, cached=False):
                    loss = learner(load.batch.source, load.batch.target, load.batch.labels_N)
                sums = _added(sums, torch.autograd.grad(loss * share, weights, allow_unused=True))
                total += loss.detach()
        return total, sums

    made = hands.do(work)
    gradients = made[0][1]
    for _, sums in made[1:]:
        gradients = _added(gradients, sums)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    return torch.stack([total for total, _ in made]).sum()


def _recorded(recorder: Recorder, loads: Sequence[Load], share: float) -> Tensor:
    """The same by a recording, which leaves its gradients where the next batch's will be."""
    total = torch.zeros((), dtype=torch.float64, device=recorder.device)
    sums: list[Tensor | None] = [None] * len(recorder.weights)
    for load in loads:
        loss, gradients = recorder.passes(load.batch, share)
        if len(loads) > 1:
            gradients = [None if each is None else each.clone() for each in gradients]
        sums = _added(sums, gradients)
        total += loss
    for weight, gradient in zip(recorder.weights, sums, strict=True):
        weight.grad = gradient
    return total


def _added(some: Sequence[Tensor | None], more: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of the same weights added up; None is nothing."""
    pairs = zip(some, more, strict=True)
    return [other if one is None else one if other is None else one + other for one, other in pairs]


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
