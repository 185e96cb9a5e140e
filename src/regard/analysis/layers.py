"""The four layers that Vaswani et al. 2017 compare in table 1, ready to be measured.

Self-attention occurs twice: without projections, which is what the table counts, and as a whole layer with its
projections, which is what a model pays for. Restricted self-attention is computed in blocks, because a mask over all
pairs would cost as much as full attention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.nn.attention.banded import BLOCK, make_band, padded_attention
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.convolution import ConvolutionWindow, GatedConvolution
from regard.nn.ragged import Layout
from regard.nn.recurrent import RecurrentLayers

LayerKind = Literal["self-attention", "restricted self-attention", "recurrent", "convolutional", "self-attention layer"]
KINDS: tuple[LayerKind, ...] = (
    "self-attention",
    "restricted self-attention",
    "recurrent",
    "convolutional",
    "self-attention layer",
)
KERNEL = 3
"""Kernel size k of the convolution."""
REACH = 16
"""Neighbours on each side in restricted self-attention; the paper's r is 2 * REACH + 1."""
HEAD = 64
"""Head size, as in the paper."""


@dataclass(frozen=True)
class ComplexityClaim:
    """The complexity of a layer that the paper's table states."""

    complexity: str
    sequential: str
    path: str
    in_length: float
    """Exponent of n in the complexity."""
    in_width: float
    """Exponent of d in the complexity."""


CLAIMS: dict[LayerKind, ComplexityClaim] = {
    "self-attention": ComplexityClaim("O(n²·d)", "O(1)", "O(1)", 2, 1),
    "restricted self-attention": ComplexityClaim("O(r·n·d)", "O(1)", "O(n/r)", 1, 1),
    "recurrent": ComplexityClaim("O(n·d²)", "O(n)", "O(n)", 1, 2),
    "convolutional": ComplexityClaim("O(k·n·d²)", "O(1)", "O(logₖ n)", 1, 2),
    "self-attention layer": ComplexityClaim("O(n²·d + n·d²)", "O(1)", "O(1)", 2, 2),
}


def matmul_flops(kind: LayerKind, length: int, width: int) -> float:
    """Return the FLOPs of the matrix products in one forward pass over a sequence; a multiply-add counts as two."""
    n, d = length, width
    match kind:
        case "self-attention":
            return 4.0 * n * n * d
        case "restricted self-attention":
            block = max(BLOCK, REACH)  # a block of queries attends to itself and to REACH keys on each side
            return 4.0 * (-(-n // block) * block) * (block + 2 * REACH) * d
        case "recurrent":
            return 16.0 * n * d * d
        case "convolutional":
            return 4.0 * KERNEL * n * d * d
        case "self-attention layer":
            return 8.0 * n * d * d + 4.0 * n * n * d


def make_pass(kind: LayerKind, length: int, width: int, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that runs one forward pass of a layer over a sequence of random numbers."""
    layout = Layout.from_lengths([length]).to(device)
    x_ND = torch.randn(length, width, device=device, requires_grad=True)
    with torch.device(device):
        match kind:
            case "self-attention" | "restricted self-attention":
                heads = max(1, width // HEAD)
                if kind == "self-attention":
                    q, k, v = (torch.randn(1, heads, length, width // heads, requires_grad=True) for _ in range(3))
                    return lambda: scaled_dot_product_attention(q, k, v)
                q, k, v = (torch.randn(1, length, heads, width // heads, requires_grad=True) for _ in range(3))
                attend = restricted_attention(length, REACH, device)
                return lambda: attend(q, k, v)
            case "recurrent":
                recurrence = RecurrentLayers("lstm", width, width)
                return lambda: recurrence.all_states(x_ND, layout, recurrence.initial_state(1, x_ND))
            case "convolutional":
                convolution, window = (
                    GatedConvolution(width, KERNEL),
                    ConvolutionWindow.from_layout(layout, KERNEL, causal=False),
                )
                return lambda: _tensor(convolution(x_ND, window))
            case "self-attention layer":
                attention, plan = (
                    SelfAttention(width, max(1, width // HEAD)),
                    plan_attention(AttentionMask(), layout, layout),
                )
                return lambda: _tensor(attention(x_ND, plan))


def restricted_attention(
    length: int, reach: int, device: torch.device | str = "cpu"
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return attention over one sequence to the keys within `reach` of each query, computed in blocks as on a CPU."""
    band = make_band(AttentionMask(window=reach), length, torch.tensor([length], device=device))
    return lambda q_BQHE, k_BQHE, v_BQHE: padded_attention(q_BQHE, k_BQHE, v_BQHE, band, q_BQHE.shape[3] ** -0.5, 0.0)


def _tensor(output: Tensor) -> Tensor:
    return output
