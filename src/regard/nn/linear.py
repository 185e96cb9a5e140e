"""Linear layers that serve several purposes at once."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


def projection(width: int, parts: Sequence[int]) -> nn.Linear:
    """One linear layer for several parts side by side, each initialised as if it stood alone (Glorot & Bengio 2010)."""
    linear = nn.Linear(width, sum(parts))
    with torch.no_grad():
        for part in torch.split_with_sizes(linear.weight, list(parts)):
            nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear


def applied(linear: nn.Linear, x: Float[Tensor, "*rest D"], bare: bool) -> Float[Tensor, "*rest D2"]:
    """What a linear layer makes of x; a `bare` product leaves its bias to whoever adds it."""
    if bare:
        return functional.linear(x, linear.weight)
    y: Tensor = linear(x)
    return y
