"""Linear layers: several projections merged into one matrix, products without their bias, and logits of classes."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.tap import Tap


class ClassProjection(nn.Linear):
    """Logits of classes: a linear layer whose output passes the tap `logits`.

    Each row is the vector of a class, as in an output layer over a vocabulary, so optimisers treat it as such.
    """

    def __init__(self, width: int, classes: int) -> None:
        """Create the layer for vectors of `width`."""
        super().__init__(width, classes)
        self.logits = Tap()

    def forward(self, x: Float[Tensor, "*rest D"]) -> Float[Tensor, "*rest V"]:
        """Return the logits of each class."""
        logits: Tensor = self.logits(super().forward(x))
        return logits


def make_projection(width: int, parts: Sequence[int]) -> nn.Linear:
    """Create one linear layer whose output holds several projections side by side.

    Each part is initialised as if it were a matrix of its own (Glorot & Bengio 2010), so that merging projections does
    not change the scale of their weights. Biases start at zero.

    Args:
        width: Size of the input.
        parts: Output size of each projection.
    """
    linear = nn.Linear(width, sum(parts))
    with torch.no_grad():
        for part in torch.split_with_sizes(linear.weight, list(parts)):
            nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear


def apply_linear(linear: nn.Linear, x: Float[Tensor, "*rest D"], skip_bias: bool) -> Float[Tensor, "*rest D2"]:
    """Apply a linear layer; with `skip_bias`, leave its bias to the caller, which adds it in a fused kernel."""
    if skip_bias:
        return functional.linear(x, linear.weight)
    y: Tensor = linear(x)
    return y
