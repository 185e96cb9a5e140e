"""What leaves Python out: layers compiled by TorchScript, in which a step's kernels follow each other unasked.

A step is hundreds of small kernels. Called one by one from Python each costs nearly as much again before it begins, and
workers that are threads wait for each other's Python. Compiled, a layer is one call, and waits for nobody.

What is compiled has plain tensors in its signatures and no checks of shapes; it runs as Python just as well.
"""

import warnings
from typing import Any, TypeVar

import torch

Part = TypeVar("Part")


def compiled(part: Part) -> Part:
    """A module or function compiled; itself, where this torch has no TorchScript any more."""
    if not hasattr(torch.jit, "script"):
        return part
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather see what needs a compiler on every user's machine
        made: Any = torch.jit.script(part)
    found: Part = made
    return found
