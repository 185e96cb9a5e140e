"""Normalisation of each token's vector.

LayerNorm (Ba et al. 2016): (x - mean) / √(variance + ε) · g + b.
RMSNorm (Zhang & Sennrich 2019): x / √(mean(x²) + ε) · g.
ScaleNorm (Nguyen & Salazar 2019): g · x / ‖x‖ with a scalar g.
LayerNorm and RMSNorm are torch's, the latter with a higher precision under autocast.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ScaleNorm(nn.Module):
    """g · x / ‖x‖ with a single learned g, initialised to √d (Nguyen & Salazar 2019, §3.2)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        """Create the norm for vectors of this width; `eps` is the smallest length divided by."""
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.tensor(math.sqrt(width)))

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Scale each token's vector to length g."""
        return self.weight * nn.functional.normalize(x_ND, dim=-1, eps=self.eps)


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm, computed at least in the precision of its weight, as autocast does for LayerNorm."""

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Scale each token's vector to root mean square g."""
        return super().forward(x.to(torch.promote_types(x.dtype, self.weight.dtype)))


def make_norm(kind: str, width: int) -> nn.Module:
    """Create the norm of this name."""
    match kind:
        case "layer":
            return nn.LayerNorm(width)
        case "rms":
            return RMSNorm(width, eps=1e-6)
        case "scale":
            return ScaleNorm(width)
    raise ValueError(f"unknown norm '{kind}'; choose layer, rms or scale")
