"""Triton kernels for CUDA, used where torch's own kernels leave the device idle.

Each kernel is an operator of `torch.library`, so that it works in eager mode, compiled and under autograd, and each has
an equivalent in plain torch. The modules with kernels are imported only if Triton is installed.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

HAVE_TRITON = find_spec("triton") is not None


def supports(x: Tensor) -> bool:
    """Return whether the Triton kernels can process a tensor: on CUDA, in a floating-point type they know."""
    return HAVE_TRITON and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
