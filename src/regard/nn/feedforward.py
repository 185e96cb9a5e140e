"""Position-wise feed-forward layers (Vaswani et al. 2017, §3.3) with a choice of activation.

ReLU: FFN(x) = max(0, x W₁ + b₁) W₂ + b₂ (eq. 2).
GELU and its tanh approximation, SiLU (Hendrycks & Gimpel 2016) take the place of the maximum.
SwiGLU: FFN(x) = (SiLU(x W) ∘ x V) W₂ (Shazeer 2020, eq. 6). W and V are stored as one merged projection.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.cuda import HAVE_TRITON, supports
from regard.nn.dropout import Dropout
from regard.nn.linear import apply_linear, make_projection
from regard.nn.tap import Tap

if HAVE_TRITON:
    from regard.nn.cuda import bias


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to every token separately."""

    def __init__(self, width: int, inner: int, activation: str = "relu", dropout: float = 0.0) -> None:
        """Create the layer.

        Args:
            width: Size of a token's vector.
            inner: Size of the hidden layer.
            activation: A name that `make_activation` knows.
            dropout: Probability with which a hidden value is dropped during training.
        """
        super().__init__()
        self.activation, parts = make_activation(activation)
        self.widen = make_projection(width, [inner] * parts)
        self.narrow = make_projection(inner, [width])
        self.drop = Dropout(dropout)
        self.inner = Tap()

    @property
    def output_bias(self) -> Float[Tensor, " D"]:
        """Return the bias that `forward` adds last and omits with `skip_bias`."""
        return self.narrow.bias

    def forward(self, x_ND: Float[Tensor, "N D"], skip_bias: bool = False) -> Float[Tensor, "N D"]:
        """Transform every token; with `skip_bias`, leave the final bias to a fused kernel."""
        if self.activation is functional.relu and supports(x_ND):
            inner_NF = self.inner(bias.bias_relu(apply_linear(self.widen, x_ND, skip_bias=True), self.widen.bias))
        else:
            inner_NF = self.inner(self.activation(self.widen(x_ND)))
        return apply_linear(self.narrow, self.drop(inner_NF), skip_bias)


def gelu_tanh(x_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
    """Approximate GELU by 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), as GPT-2 does (Hendrycks & Gimpel 2016, §2)."""
    return functional.gelu(x_NF, approximate="tanh")


def swiglu(x_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N half"]:
    """Multiply the second half of each vector by the SiLU of the first half."""
    gate, value = x_NF.chunk(2, -1)
    return functional.silu(gate) * value


def make_activation(kind: str) -> tuple[Callable[[Tensor], Tensor], int]:
    """Return the activation of this name, and how many hidden vectors it consumes to produce one."""
    match kind:
        case "relu":
            return functional.relu, 1
        case "gelu":
            return functional.gelu, 1
        case "gelu_tanh":
            return gelu_tanh, 1
        case "silu":
            return functional.silu, 1
        case "swiglu":
            return swiglu, 2
    raise ValueError(f"unknown activation '{kind}'; choose relu, gelu, gelu_tanh, silu or swiglu")
