"""x + dropout(y + b) and its LayerNorm at once, where CUDA's kernels can; elsewhere they come one after another."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.cuda import HAVE_TRITON
from regard.nn.cuda import serves as _serves

if HAVE_TRITON:
    from regard.nn.cuda import residual

WIDEST = 4096


def serves(x_ND: Float[Tensor, "N D"], norm: nn.Module) -> bool:
    """Whether `add_norm` can be used for these."""
    return type(norm) is nn.LayerNorm and _serves(x_ND) and x_ND.shape[1] <= WIDEST and x_ND.is_contiguous()


def add_norm(
    x_ND: Float[Tensor, "N D"],
    y_ND: Float[Tensor, "N D"],
    more_D: Float[Tensor, " D"] | None,
    norm: nn.Module,
    dropout: float,
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """The stream x + dropout(y + more), and its LayerNorm."""
    assert isinstance(norm, nn.LayerNorm), "`serves` was asked"
    seed = torch.randint(2**31 - 1, (1,), device=x_ND.device) if dropout else torch.empty(0, device=x_ND.device)
    given = x_ND, y_ND.contiguous(), more_D, norm.weight, norm.bias
    stream_ND, normed_ND, _, _ = residual.add_norm(*given, seed, norm.eps, dropout)
    return stream_ND, normed_ND
