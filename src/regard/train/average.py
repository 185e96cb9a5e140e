"""Weights averaged over time: a moving average while training, and the mean of the last checkpoints after it."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.bundle import load_weights

_WARM = 10  # updates after which the moving average begins to be slow


class MovingAverage:
    """Weights that follow the model's slowly (Polyak & Juditsky 1992)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begin with the weights as they are."""
        self.decay = decay
        self.parameters = [each.detach() for each in model.parameters()]
        self.names = [name for name, _ in model.named_parameters()]
        self.weights = [each.clone() for each in self.parameters]

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move towards the weights after an update; quickly at first, when what was before is worth little."""
        kept = min(self.decay, (1 + step) / (_WARM + step))
        torch._foreach_lerp_(self.weights, self.parameters, 1 - kept)

    def tensors(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        return dict(zip(self.names, self.weights, strict=True))


@torch.no_grad()
def load_mean(model: nn.Module, files: Sequence[Path]) -> None:
    """Give the model the mean of the weights in several files (§6.1)."""
    sums = [torch.zeros_like(each, dtype=torch.float64) for each in model.parameters()]
    for file in files:
        load_weights(model, file)
        for total, each in zip(sums, model.parameters(), strict=True):
            total += each
    for total, each in zip(sums, model.parameters(), strict=True):
        each.copy_(total / len(files))
