"""The four layers that "Attention Is All You Need" compares (Vaswani et al. 2017, table 1), made to be measured.

Attention stands here twice: the mixing alone, which is what the table counts, and the whole layer with the projections
before and after it, which is what one has to pay. Restricted self-attention is computed in blocks, so that it costs
what it should: a mask over all pairs would cost as much as seeing them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.nn.attention.banded import BLOCK, band, within
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan
from regard.nn.attention.sight import Sight
from regard.nn.convolution import GatedConvolution, Window
from regard.nn.ragged import Layout
from regard.nn.recurrent import Recurrence

Kind = Literal["self-attention", "restricted self-attention", "recurrent", "convolutional", "self-attention layer"]
KINDS: tuple[Kind, ...] = (
    "self-attention",
    "restricted self-attention",
    "recurrent",
    "convolutional",
    "self-attention layer",
)
KERNEL = 3
"""Tokens a convolution sees at once, k."""
REACH = 16
"""Neighbours to each side that restricted self-attention sees; r is twice that and one."""
HEAD = 64
"""Size of a head, as in the paper."""


@dataclass(frozen=True)
class Claim:
    """What the table says of a layer."""

    complexity: str
    sequential: str
    path: str
    in_length: float
    """Exponent of n in the complexity."""
    in_width: float
    """Exponent of d in it."""


CLAIMS: dict[Kind, Claim] = {
    "self-attention": Claim("O(n²·d)", "O(1)", "O(1)", 2, 1),
    "restricted self-attention": Claim("O(r·n·d)", "O(1)", "O(n/r)", 1, 1),
    "recurrent": Claim("O(n·d²)", "O(n)", "O(n)", 1, 2),
    "convolutional": Claim("O(k·n·d²)", "O(1)", "O(logₖ n)", 1, 2),
    "self-attention layer": Claim("O(n²·d + n·d²)", "O(1)", "O(1)", 2, 2),
}


def products(kind: Kind, length: int, width: int) -> float:
    """Operations of the matrix products in one pass over a sequence, two for each multiplication and addition."""
    n, d = length, width
    match kind:
        case "self-attention":
            return 4.0 * n * n * d
        case "restricted self-attention":
            block = max(BLOCK, REACH)  # sees itself and the reach to each side of it
            return 4.0 * (-(-n // block) * block) * (block + 2 * REACH) * d
        case "recurrent":
            return 16.0 * n * d * d
        case "convolutional":
            return 4.0 * KERNEL * n * d * d
        case "self-attention layer":
            return 8.0 * n * d * d + 4.0 * n * n * d


def make_pass(kind: Kind, length: int, width: int, device: torch.device) -> Callable[[], Tensor]:
    """One pass of a layer over one sequence of random numbers, ready to be called again and again."""
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
                near = restricted(length, REACH, device)
                return lambda: near(q, k, v)
            case "recurrent":
                recurrence = Recurrence("lstm", width, width)
                return lambda: recurrence.states_at(x_ND, layout, recurrence.rest(1, x_ND))
            case "convolutional":
                convolution, window = GatedConvolution(width, KERNEL), Window.of(layout, KERNEL, causal=False)
                return lambda: _tensor(convolution(x_ND, window))
            case "self-attention layer":
                attention, look = SelfAttention(width, max(1, width // HEAD)), plan(Sight(), layout, layout)
                return lambda: _tensor(attention(x_ND, look))


def restricted(
    length: int, reach: int, device: torch.device | str = "cpu"
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention of one row to the keys at most `reach` from each query, as the models compute it on a CPU."""
    limit = band(Sight(window=reach), length, torch.tensor([length], device=device))
    return lambda q_BQHE, k_BQHE, v_BQHE: within(q_BQHE, k_BQHE, v_BQHE, limit, q_BQHE.shape[3] ** -0.5, 0.0)


def _tensor(made: Tensor) -> Tensor:
    return made
