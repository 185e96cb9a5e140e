"""Inference mode for functions that are called in every step of a search."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_inference_mode(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a function in inference mode, as `torch.inference_mode()` does, but enter it only where it is not on yet.

    To enter and leave it takes 3 µs, and a step of a small model calls four such functions inside each other.
    """

    @wraps(function)
    def inferring(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode():
            return function(*args, **kwargs)

    return inferring
