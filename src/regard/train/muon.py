"""Muon (Jordan et al. 2024): momentum whose singular values are all made about 1, for matrices.

M ← μ M + (1 - μ) G, and W ← W - η 0.2 √max(m, n) · orthogonalise(μ M + (1 - μ) G): Nesterov momentum, scaled so that
updates are as large as those of AdamW and one learning rate serves both (Liu et al. 2025, §2.2).

It differs from `torch.optim.Muon` in two ways. Matrices of equal shape are orthogonalised as one batch of matrices. The
projections that one weight has merged, such as queries, keys and values, are orthogonalised separately.

With FSDP2 each process keeps its shard of the momentum. The update of a matrix is gathered and orthogonalised as a
whole in every process, and each process applies the rows of its own shard.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from regard.train.cpu_threads import CpuThreads

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the quintic iteration; chosen to lift small singular values quickly
ITERATIONS = 5
SCALE = 0.2  # root mean square of AdamW's updates (Liu et al. 2025, eq. 4)


_MatrixUpdate = tuple[Tensor, Tensor]
"""A matrix (a weight, or one of the projections merged in it) and the momentum to orthogonalise for it."""


class Muon(Optimizer):
    """Muon for two-dimensional weights."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        rate: float,
        decay: float = 0.0,
        merged_rows: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Optimise `weights`.

        Args:
            weights: Matrices.
            rate: Learning rate.
            decay: Decoupled weight decay, as in AdamW.
            merged_rows: By the `id` of a weight, the numbers of rows of the projections that are merged in it.
        """
        super().__init__(weights, {"lr": rate, "weight_decay": decay})
        self.merged_rows = merged_rows or {}
        self.threads: CpuThreads | None = None
        """Threads to divide the matrices among, on a CPU."""

    @overload
    def step(self, closure: None = None) -> None:
        """Update the weights that have a gradient."""

    @overload
    def step(self, closure: Callable[[], float]) -> float:
        """Compute the gradients with `closure`, update the weights, and return the loss."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the weights that have a gradient; `closure` computes the gradients first and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(weights, group)
        return loss

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Update the weights of a parameter group."""
        gradients = [_local(weight.grad) for weight in weights if weight.grad is not None]
        momenta = [_local(self._momentum(weight)) for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        shards = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        if group["weight_decay"]:
            torch._foreach_mul_([_local(weight) for weight in weights], 1 - group["lr"] * group["weight_decay"])
        updates = [_gather(shard, weight) for shard, weight in zip(shards, weights, strict=True)]
        # The change of a sharded weight is computed for the whole matrix in a temporary tensor. Each process then adds
        # the rows of its shard. Other weights are changed in place.
        changed = [
            torch.zeros_like(update) if isinstance(weight, DTensor) else weight
            for update, weight in zip(updates, weights, strict=True)
        ]
        self._apply(weights, changed, updates, group["lr"])
        for weight, change in zip(weights, changed, strict=True):
            if isinstance(weight, DTensor):
                _local(weight).add_(_local_shard(change, weight))

    def _apply(self, weights: list[Tensor], changed: list[Tensor], updates: list[Tensor], rate: float) -> None:
        """Orthogonalise the updates and add them to the tensors `changed`, which have the shapes of the weights."""
        matrices = [
            matrix
            for weight, tensor, update in zip(weights, changed, updates, strict=True)
            for matrix in zip(self._split(tensor, weight), self._split(update, weight), strict=True)
        ]
        if self.threads is None:
            _apply_updates(matrices, rate)
            return
        # Sorted by shape, so that each thread gets about as many matrices of each shape as the others.
        matrices.sort(key=lambda matrix: sorted(matrix[0].shape))
        count = self.threads.count
        self.threads.run(lambda thread: _apply_updates(matrices[thread::count], rate))

    def _momentum(self, weight: Tensor) -> Tensor:
        """Return the momentum of a weight; zero at first."""
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum: Tensor = state["momentum_buffer"]
        return momentum

    def _split(self, tensor: Tensor, weight: Tensor) -> Sequence[Tensor]:
        """Split a tensor with the shape of a weight into the projections that are merged in the weight."""
        return torch.split(tensor, list(self.merged_rows.get(id(weight), (weight.shape[0],))))


def _local(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor, to change in place; a plain tensor is returned as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _gather(shard: Tensor, weight: Tensor) -> Tensor:
    """Gather a tensor that is sharded like a weight. Every process must call this."""
    if not isinstance(weight, DTensor):
        return shard
    mesh, placements = weight.device_mesh, weight.placements
    return DTensor.from_local(shard, mesh, placements, shape=weight.shape, stride=weight.stride()).full_tensor()


def _local_shard(tensor: Tensor, weight: DTensor) -> Tensor:
    """Return the part of a full tensor that belongs to this process's shard of a weight, without communication."""
    return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None).to_local()


@torch.no_grad()
def _apply_updates(matrices: Sequence[_MatrixUpdate], rate: float) -> None:
    """Add the orthogonalised update to each matrix, those of one shape (or its transpose) as one batch."""
    by_shape: dict[tuple[int, int], list[_MatrixUpdate]] = {}
    for weight, update in matrices:
        by_shape.setdefault((min(weight.shape), max(weight.shape)), []).append((weight, update))
    for (_, longer), members in by_shape.items():
        stacked = torch.stack([_wide(update) for _, update in members])
        changes = (orthogonalise(stacked) * (-rate * SCALE * math.sqrt(longer))).to(members[0][0].dtype)
        torch._foreach_add_([_wide(weight) for weight, _ in members], list(changes))


def orthogonalise(matrices: Tensor) -> Tensor:
    """Approximate U V' of each matrix U S V' by a Newton-Schulz iteration in bfloat16.

    Each iteration maps a singular value s to a·s + b·s³ + c·s⁵, which drives values in (0, 1] towards 1.

    Args:
        matrices: A batch of matrices with no more rows than columns, so that X X' is the smaller Gram matrix.
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(torch.bfloat16)
    # The Frobenius norm bounds the largest singular value, so all of them are in [0, 1] afterwards.
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        # a X + (b A + c A²) X with A = X X', each sum fused with its product.
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _wide(matrix: Tensor) -> Tensor:
    """Return a view of a matrix with no more rows than columns: itself or its transpose."""
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
