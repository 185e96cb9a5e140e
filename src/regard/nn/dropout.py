"""Dropout (Srivastava et al. 2014) with a fast CPU implementation and a random generator per thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 2**16  # on a CPU, each value is dropped by a 16-bit random number


class _ThreadRandom(threading.local):
    """The random generator of a thread; None is torch's global one, which all threads share."""

    generator: torch.Generator | None = None


_RANDOM = _ThreadRandom()


class Dropout(nn.Dropout):
    """`nn.Dropout` with faster random numbers on a CPU, where torch draws one per value on a single core."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Drop values in training mode; otherwise return the input."""
        return dropout(input, self.p) if self.training else input


def dropout(x: Tensor, p: float) -> Tensor:
    """Set each value to zero with probability `p` and scale the others, so that the mean stays."""
    dropped = round(p * LEVELS)
    if x.device.type != "cpu" or dropped == LEVELS or torch.compiler.is_compiling():
        return functional.dropout(x, p)
    if dropped == 0:
        return x
    # One 64-bit draw serves four values.
    draws = torch.empty(x.numel() // 4 + 1, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=thread_generator(x.device))
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
    # Sixteen bits round `p`: scaling by the rounded probability keeps the mean exact.
    return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - dropped))


@contextmanager
def private_rng(seed: int) -> Iterator[None]:
    """Give this thread a CPU generator of its own, so that its random numbers do not depend on other threads."""
    before, _RANDOM.generator = _RANDOM.generator, torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _RANDOM.generator = before


def thread_generator(device: torch.device) -> torch.Generator | None:
    """Return the generator that this thread uses on a device; None is torch's global one."""
    return None if torch.compiler.is_compiling() or device.type != "cpu" else _RANDOM.generator
