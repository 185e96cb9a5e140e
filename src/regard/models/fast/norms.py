"""Normalisations and bends as engines run them: weights in one number format, fit for TorchScript."""

from typing import no_type_check

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.feedforward import FeedForward, swiglu
from regard.nn.norm import ScaleNorm


@no_type_check
class Layered(nn.Module):
    """LayerNorm."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype, device: torch.device | str) -> None:
        """Take the weights from a trained one."""
        super().__init__()
        self.weight, self.bias = (_cast(each, dtype, device) for each in (norm.weight, norm.bias))
        self.shape, self.eps = list(norm.normalized_shape), norm.eps

    def forward(self, x_ND: Tensor) -> Tensor:
        """Normalise each row."""
        return torch.native_layer_norm(x_ND, self.shape, self.weight, self.bias, self.eps)[0]


@no_type_check
class Rooted(nn.Module):
    """RMSNorm."""

    def __init__(self, norm: nn.RMSNorm, dtype: torch.dtype, device: torch.device | str) -> None:
        """Take the weights from a trained one."""
        super().__init__()
        self.weight, self.shape, self.eps = _cast(norm.weight, dtype, device), list(norm.normalized_shape), norm.eps

    def forward(self, x_ND: Tensor) -> Tensor:
        """Normalise each row."""
        return torch.rms_norm(x_ND, self.shape, self.weight, self.eps)


@no_type_check
class Scaled(nn.Module):
    """ScaleNorm."""

    def __init__(self, norm: ScaleNorm, dtype: torch.dtype, device: torch.device | str) -> None:
        """Take the weight from a trained one."""
        super().__init__()
        self.weight, self.eps = _cast(norm.weight, dtype, device), norm.eps

    def forward(self, x_ND: Tensor) -> Tensor:
        """Normalise each row."""
        return self.weight * functional.normalize(x_ND, dim=-1, eps=self.eps)


def norm_of(norm: nn.Module, dtype: torch.dtype, device: torch.device | str = "cpu") -> nn.Module:
    """A normalisation with its weights in this number format."""
    match norm:
        case nn.Identity():
            return nn.Identity()
        case nn.LayerNorm():
            return Layered(norm, dtype, device)
        case nn.RMSNorm():
            return Rooted(norm, dtype, device)
        case ScaleNorm():
            return Scaled(norm, dtype, device)
    raise TypeError(f"no engine knows the norm {type(norm).__name__}")


@no_type_check
class Gated(nn.Module):
    """SwiGLU: see `regard.nn.feedforward.swiglu`."""

    def forward(self, x_NF: Tensor) -> Tensor:
        """SiLU of the first half gates the second."""
        half = x_NF.shape[1] // 2
        return functional.silu(x_NF[:, :half]) * x_NF[:, half:]


def bend_of(layer: FeedForward) -> nn.Module:
    """The non-linearity of a feed-forward layer."""
    bends = {functional.relu: nn.ReLU, functional.gelu: nn.GELU, functional.silu: nn.SiLU, swiglu: Gated}
    bend: nn.Module = bends[layer.bend]()
    return bend


def _cast(weight: Tensor, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """A weight in another number format, apart from what is trained."""
    return weight.detach().to(device, dtype)
