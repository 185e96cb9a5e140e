"""Kernels written for CUDA in Triton, where torch's own leave the device waiting; every one has a twin in plain torch.

Each is an operator of torch's library, so that it works eagerly, compiled and under autograd alike. Without Triton,
or on another device, nothing here is imported.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

HAVE_TRITON = find_spec("triton") is not None


def serves(x: Tensor) -> bool:
    """Whether these kernels can work on a tensor."""
    return HAVE_TRITON and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
