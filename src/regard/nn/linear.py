"""Linear layers that serve several purposes at once."""

from collections.abc import Sequence

import torch
from torch import nn


def projection(width: int, parts: Sequence[int]) -> nn.Linear:
    """One linear layer for several parts side by side, each initialised as if it stood alone (Glorot & Bengio 2010)."""
    linear = nn.Linear(width, sum(parts))
    with torch.no_grad():
        for part in torch.split_with_sizes(linear.weight, list(parts)):
            nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear
