"""x + dropout(y + b) and its LayerNorm in one CUDA kernel; callers fall back to separate operations elsewhere."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.cuda import HAVE_TRITON
from regard.nn.cuda import supports as _supports

if HAVE_TRITON:
    from regard.nn.cuda import residual

MAX_WIDTH = 4096  # a program holds whole rows


def supports(x_ND: Float[Tensor, "N D"], norm: nn.Module) -> bool:
    """Return whether `add_norm` can process this stream and norm."""
    return type(norm) is nn.LayerNorm and _supports(x_ND) and x_ND.shape[1] <= MAX_WIDTH and x_ND.is_contiguous()


def add_norm(
    x_ND: Float[Tensor, "N D"],
    y_ND: Float[Tensor, "N D"],
    added_bias_D: Float[Tensor, " D"] | None,
    norm: nn.Module,
    dropout: float,
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """Return the residual stream x + dropout(y + added_bias) and its LayerNorm."""
    assert isinstance(norm, nn.LayerNorm), "checked by `supports`"
    seed = torch.randint(2**31 - 1, (1,), device=x_ND.device) if dropout else torch.empty(0, device=x_ND.device)
    inputs = x_ND, y_ND.contiguous(), added_bias_D, norm.weight, norm.bias
    stream_ND, normed_ND, _, _ = residual.add_norm(*inputs, seed, norm.eps, dropout)
    return stream_ND, normed_ND
