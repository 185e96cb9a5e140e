"""The feed-forward layer: every token by itself, the same way at every position (Vaswani et al. 2017, §3.3).

FFN(x) = max(0, x W₁ + b₁) W₂ + b₂ with ReLU; GELU or SiLU (Hendrycks & Gimpel 2016); or gated, SwiGLU:
(SiLU(x W) ∘ x V) W₂ (Shazeer 2020, eq. 6), whose two inner matrices are one merged projection.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.cuda import HAVE_TRITON, serves
from regard.nn.dropout import Dropout
from regard.nn.linear import applied, projection
from regard.nn.tap import Tap

if HAVE_TRITON:
    from regard.nn.cuda import bias


class FeedForward(nn.Module):
    """Widen to `inner`, bend, and narrow again."""

    def __init__(self, width: int, inner: int, activation: str = "relu", dropout: float = 0.0) -> None:
        """Dropout falls on the bent inner values."""
        super().__init__()
        self.bend, parts = make_activation(activation)
        self.widen = projection(width, [inner] * parts)
        self.narrow = projection(inner, [width])
        self.drop = Dropout(dropout)
        self.inner = Tap()

    @property
    def last_bias(self) -> Float[Tensor, " D"]:
        """What `forward` adds last, and leaves out when `bare`."""
        return self.narrow.bias

    def forward(self, x_ND: Float[Tensor, "N D"], bare: bool = False) -> Float[Tensor, "N D"]:
        """Transform each token by itself."""
        if self.bend is functional.relu and serves(x_ND):
            inner_NF = self.inner(bias.bias_relu(applied(self.widen, x_ND, bare=True), self.widen.bias))
        else:
            inner_NF = self.inner(self.bend(self.widen(x_ND)))
        return applied(self.narrow, self.drop(inner_NF), bare)


def swiglu(x_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N half"]:
    """SiLU of the first half gates the second."""
    gate, value = x_NF.chunk(2, -1)
    return functional.silu(gate) * value


def make_activation(kind: str) -> tuple[Callable[[Tensor], Tensor], int]:
    """The non-linearity of this name, and how many inner vectors it takes to make one."""
    match kind:
        case "relu":
            return functional.relu, 1
        case "gelu":
            return functional.gelu, 1
        case "silu":
            return functional.silu, 1
        case "swiglu":
            return swiglu, 2
    raise ValueError(f"there is no activation '{kind}'; it may be relu, gelu, silu or swiglu")
