"""Muon (Jordan et al. 2024): momentum whose singular values are all made about 1, for matrices.

M ← μ M + (1 - μ) G, and W ← W - η 0.2 √max(m, n) · orthogonalised(μ M + (1 - μ) G): Nesterov's momentum, scaled so that
updates are as large as AdamW's and one rate serves both (Liu et al. 2025, §2.2). As torch's own, with two differences:
matrices of one shape go through the products together, and what one projection has merged, such as queries, keys and
values, is orthogonalised each by itself. Of a weight that processes share in parts (FSDP2), each process keeps its
part of the momentum, puts the whole update together, and moves its own rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from regard.train.hands import Hands

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the quintic iteration: quickest for small singular values (Jordan et al.)
ITERATIONS = 5
SCALE = 0.2  # root mean square of AdamW's updates (Liu et al. 2025, eq. 4)


class _Piece(NamedTuple):
    """A matrix, or one of several that were merged, and where its update comes from."""

    weight: Tensor
    update: Tensor


class Muon(Optimizer):
    """For weights with two dimensions; `parts` tells, by a weight's id, how many rows each of its merged parts has."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        rate: float,
        decay: float = 0.0,
        parts: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """`decay` is decoupled, as in AdamW."""
        super().__init__(weights, {"lr": rate, "weight_decay": decay})
        self.parts = parts or {}
        self.hands: Hands | None = None
        """Who shares the work, if anybody does."""

    @overload
    def step(self, closure: None = None) -> None:
        """Move by the gradients that are there."""

    @overload
    def step(self, closure: Callable[[], float]) -> float:
        """Have the gradients made first; the loss that was said then."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move every weight that has a gradient; `closure`, where given, makes the gradients and says the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [each for each in group["params"] if each.grad is not None]
            if weights:
                self._move(weights, group)
        return loss

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """One update of all weights of a group."""
        gradients = [_mine(each.grad) for each in weights if each.grad is not None]
        momenta = [_mine(self.momentum(each)) for each in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        if group["weight_decay"]:
            torch._foreach_mul_([_mine(each) for each in weights], 1 - group["lr"] * group["weight_decay"])
        wholes = [_whole(update, weight) for update, weight in zip(updates, weights, strict=True)]
        # A shared weight is moved as a whole beside its place, and each process then takes its part of the way.
        moved = [
            torch.zeros_like(whole) if isinstance(weight, DTensor) else weight
            for whole, weight in zip(wholes, weights, strict=True)
        ]
        self._orthogonalise(weights, moved, wholes, group["lr"])
        for weight, way in zip(weights, moved, strict=True):
            if isinstance(weight, DTensor):
                _mine(weight).add_(_part(way, weight))

    def _orthogonalise(self, weights: list[Tensor], moved: list[Tensor], updates: list[Tensor], rate: float) -> None:
        """Move by the updates, all of them together, merged parts each by itself, hands side by side."""
        pieces = [
            _Piece(*both)
            for weight, target, update in zip(weights, moved, updates, strict=True)
            for both in zip(self._cut(target, weight), self._cut(update, weight), strict=True)
        ]
        if self.hands is None:
            _apply(pieces, rate)
            return
        # Sorted by size, so that each hand gets as much of every shape as the others.
        pieces.sort(key=lambda piece: sorted(piece.weight.shape))
        count = self.hands.count
        self.hands.do(lambda hand: _apply(pieces[hand::count], rate))

    def momentum(self, weight: Tensor) -> Tensor:
        """What is remembered of a weight's gradients; nothing at first."""
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        kept: Tensor = state["momentum_buffer"]
        return kept

    def _cut(self, tensor: Tensor, weight: Tensor) -> Sequence[Tensor]:
        """A weight, or something of its shape, in its merged parts."""
        return torch.split(tensor, list(self.parts.get(id(weight), (weight.shape[0],))))


def _mine(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, to be changed in place."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _whole(mine: Tensor, weight: Tensor) -> Tensor:
    """Everybody's part of something that is shared as a weight is; all processes must ask at once."""
    if not isinstance(weight, DTensor):
        return mine
    mesh, places = weight.device_mesh, weight.placements
    return DTensor.from_local(mine, mesh, places, shape=weight.shape, stride=weight.stride()).full_tensor()


def _part(whole: Tensor, weight: DTensor) -> Tensor:
    """What of a whole tensor belongs to this process's part of a weight; nothing is sent."""
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None).to_local()


@torch.no_grad()
def _apply(pieces: Sequence[_Piece], rate: float) -> None:
    """Move each piece along its orthogonalised update, those of one shape together."""
    alike: dict[tuple[int, int], list[_Piece]] = {}
    for piece in pieces:
        alike.setdefault((min(piece.weight.shape), max(piece.weight.shape)), []).append(piece)
    for (_, longer), members in alike.items():
        stacked = torch.stack([_lying(piece.update) for piece in members])
        moves = (orthogonalised(stacked) * (-rate * SCALE * math.sqrt(longer))).to(members[0].weight.dtype)
        torch._foreach_add_([_lying(piece.weight) for piece in members], list(moves))


def orthogonalised(matrices: Tensor) -> Tensor:
    """U V' of each matrix U S V', about: a stack of matrices no higher than wide, by a few products in bfloat16."""
    a, b, c = COEFFICIENTS
    x = matrices.to(torch.bfloat16)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _lying(matrix: Tensor) -> Tensor:
    """A matrix, turned where it is higher than wide."""
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
