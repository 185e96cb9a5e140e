"""Kernels written for CUDA in Triton, where torch's own leave the device waiting; every one has a twin in plain torch.

Each is an operator of torch's library, so that it works eagerly, compiled and under autograd alike. Without Triton,
or on another device, nothing here is imported.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor

HAVE_TRITON = find_spec("triton") is not None


def serves(x: Tensor) -> bool:
    """Whether these kernels can work on a tensor."""
    return HAVE_TRITON and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16, torch.float32)


_RECORDED = False


@contextmanager
def recorded() -> Iterator[None]:
    """Let kernels be chosen for a recording, of which launching costs nothing."""
    global _RECORDED
    before, _RECORDED = _RECORDED, True
    try:
        yield
    finally:
        _RECORDED = before


def is_recorded() -> bool:
    """Whether kernels are chosen for a recording."""
    return _RECORDED
