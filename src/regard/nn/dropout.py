"""Dropout: numbers set to zero at random while training, the others scaled up (Srivastava et al. 2014)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 2**16  # the dice thrown on a CPU: sixteen bits a number


class _Dice(threading.local):
    """A thread's own dice; those of torch, which all threads share, where it has none."""

    generator: torch.Generator | None = None


_DICE = _Dice()


class Dropout(nn.Dropout):
    """torch's dropout, with quicker dice on a CPU: torch throws one for each number there, on one core only."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Drop while training; otherwise hand the tensor on."""
        return dropout(input, self.p) if self.training else input


def dropout(x: Tensor, share: float) -> Tensor:
    """Set this share of the numbers to zero and scale the others."""
    dropped = round(share * STEPS)
    if x.device.type != "cpu" or dropped == STEPS or torch.compiler.is_compiling():
        return functional.dropout(x, share)
    if dropped == 0:
        return x
    words = torch.empty(x.numel() // 4 + 1, dtype=torch.int64).random_(-(2**63), None, generator=dice(x.device))
    kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - STEPS // 2
    # Scaled by the share that really stays, which sixteen bits may round, the mean is kept exactly.
    return x * kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


@contextmanager
def own_dice(seed: int) -> Iterator[None]:
    """Let this thread throw dice of its own on a CPU: of threads side by side, none depends on who comes first."""
    before, _DICE.generator = _DICE.generator, torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _DICE.generator = before


def dice(device: torch.device) -> torch.Generator | None:
    """What this thread throws on a device; None stands for torch's own."""
    return None if torch.compiler.is_compiling() or device.type != "cpu" else _DICE.generator
