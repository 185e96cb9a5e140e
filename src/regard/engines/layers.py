"""Layers that both engines share: weights in one number format, no dropout, no taps.

The classes compile with TorchScript, so their signatures name plain tensors. They run in Python just as well.
"""

import copy
from collections.abc import Callable
from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention.multihead import MultiHeadAttention, SelfAttention
from regard.nn.attention.scores import BilinearScore
from regard.nn.block import Residual
from regard.nn.embedding import Embedding
from regard.nn.feedforward import FeedForward, gelu_tanh, swiglu
from regard.nn.norm import ScaleNorm
from regard.nn.position import angles

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the angles by which rotary positions rotate queries and keys."""

MakeLinear = Callable[[Tensor, Tensor | None], Any]
"""Makes a linear layer of a weight and a bias; see `regard.engines.linear`."""


@no_type_check
class EngineLayerNorm(nn.Module):
    """LayerNorm, called below `functional.layer_norm`, which checks its arguments at every call."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype, device: torch.device | str) -> None:
        """Copy the weights of a trained norm."""
        super().__init__()
        self.weight, self.bias = (weight.detach().to(device, dtype) for weight in (norm.weight, norm.bias))
        self.shape, self.eps = list(norm.normalized_shape), norm.eps

    def forward(self, x_ND: Tensor) -> Tensor:
        """Normalise each row."""
        return torch.native_layer_norm(x_ND, self.shape, self.weight, self.bias, self.eps)[0]


@no_type_check
class EngineRMSNorm(nn.Module):
    """RMSNorm."""

    def __init__(self, norm: nn.RMSNorm, dtype: torch.dtype, device: torch.device | str) -> None:
        """Copy the weights of a trained norm."""
        super().__init__()
        self.weight = norm.weight.detach().to(device, dtype)
        self.shape, self.eps = list(norm.normalized_shape), norm.eps

    def forward(self, x_ND: Tensor) -> Tensor:
        """Normalise each row."""
        return torch.rms_norm(x_ND, self.shape, self.weight, self.eps)


@no_type_check
class EngineScaleNorm(nn.Module):
    """ScaleNorm."""

    def __init__(self, norm: ScaleNorm, dtype: torch.dtype, device: torch.device | str) -> None:
        """Copy the weight of a trained norm."""
        super().__init__()
        self.weight, self.eps = norm.weight.detach().to(device, dtype), norm.eps

    def forward(self, x_ND: Tensor) -> Tensor:
        """Normalise each row."""
        return self.weight * functional.normalize(x_ND, dim=-1, eps=self.eps)


def convert_norm(norm: nn.Module, dtype: torch.dtype, device: torch.device | str = "cpu") -> nn.Module:
    """Return a copy of a trained norm with its weights in this number format."""
    match norm:
        case nn.Identity():
            return nn.Identity()
        case nn.LayerNorm():
            return EngineLayerNorm(norm, dtype, device)
        case nn.RMSNorm():
            return EngineRMSNorm(norm, dtype, device)
        case ScaleNorm():
            return EngineScaleNorm(norm, dtype, device)
    raise TypeError(f"no engine supports the norm {type(norm).__name__}; add it to regard.engines.layers")


@no_type_check
class SwiGLU(nn.Module):
    """SwiGLU; see `regard.nn.feedforward.swiglu`, whose `chunk` TorchScript cannot compile."""

    def forward(self, x_NF: Tensor) -> Tensor:
        """Gate the second half by the SiLU of the first."""
        half = x_NF.shape[1] // 2
        return functional.silu(x_NF[:, :half]) * x_NF[:, half:]


ACTIVATIONS: dict[Callable[[Tensor], Tensor], Callable[[], nn.Module]] = {
    functional.relu: nn.ReLU,
    functional.gelu: nn.GELU,
    gelu_tanh: lambda: nn.GELU(approximate="tanh"),
    functional.silu: nn.SiLU,
    swiglu: SwiGLU,
}
"""The activation functions of `regard.nn.feedforward` as modules, which TorchScript compiles."""


@no_type_check
class EngineResidual(nn.Module):
    """The norm of a residual connection, before the sub-layer or after the sum."""

    def __init__(self, residual: Residual, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        """Copy the norm of a trained residual connection."""
        super().__init__()
        self.norm, self.norm_first = convert_norm(residual.norm, dtype, device), residual.norm_first

    def enter(self, x_ND: Tensor) -> Tensor:
        """Return the input of the sub-layer."""
        return self.norm(x_ND) if self.norm_first else x_ND

    def leave(self, sum_ND: Tensor) -> Tensor:
        """Return the residual stream after the sub-layer, given the sum of stream and sub-layer."""
        return sum_ND if self.norm_first else self.norm(sum_ND)


@no_type_check
class EngineFeedForward(nn.Module):
    """A feed-forward layer with its residual connection."""

    def __init__(self, layer: FeedForward, residual: EngineResidual, make: MakeLinear) -> None:
        """Convert the weights of a trained layer."""
        super().__init__()
        self.widen, self.narrow = (
            make(layer.widen.weight, layer.widen.bias),
            make(layer.narrow.weight, layer.narrow.bias),
        )
        self.residual, self.activation = residual, ACTIVATIONS[layer.activation]()
        self.is_relu = isinstance(self.activation, nn.ReLU)  # which linear layers apply inside their kernel

    def inner(self, x_ND: Tensor) -> Tensor:
        """Return the inner values: the first linear layer and its activation."""
        inner_NF: Tensor = self.widen.relu(x_ND) if self.is_relu else self.activation(self.widen(x_ND))
        return inner_NF

    def forward(self, x_ND: Tensor) -> Tensor:
        """Transform each token by itself and add the result to the residual stream."""
        left_ND: Tensor = self.residual.leave(self.narrow.add(self.inner(self.residual.enter(x_ND)), x_ND))
        return left_ND


@no_type_check
class QueryKeyTransform(nn.Module):
    """Transforms projected queries and keys before they are multiplied: rotary positions, a bilinear score."""

    def __init__(self, attention: MultiHeadAttention, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        """Take sizes and weights from a trained attention."""
        super().__init__()
        score = attention.score
        self.heads, self.key_size, self.value_size = attention.heads, attention.key_size, attention.value_size
        self.scale: float = 1.0 if score.scale is None else score.scale
        self.rotary = isinstance(attention, SelfAttention) and attention.rotary is not None
        self.bilinear = isinstance(score, BilinearScore)
        weight = score.weight.detach() if isinstance(score, BilinearScore) else torch.empty(0)
        self.weight = weight.to(device, dtype)

    def rotate(self, x_NF: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate queries or keys by their positions; see `regard.nn.position.RotaryPositions`."""
        first, second = x_NF.view(-1, self.heads, self.key_size).chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).flatten(1)

    def forward(self, q_NF: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return queries ready to be multiplied with keys."""
        if self.rotary:
            q_NF = self.rotate(q_NF, cos, sin)
        if self.bilinear:
            # qᵀ W k is the dot product of Wᵀ q and k: the matrix joins the query, and the score is a plain product.
            q_NF = (q_NF.reshape(-1, self.heads, self.key_size) @ self.weight).flatten(1)
        return q_NF

    def key(self, k_NF: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return keys as the KV cache holds them."""
        return self.rotate(k_NF, cos, sin) if self.rotary else k_NF


def rotation_at(position_N: Int[Tensor, " N"], size: int, like: Tensor) -> Rotation:
    """Return cosine and sine of the rotary angles at these positions (Su et al. 2021)."""
    angle = angles(position_N, size, like)[:, None]
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


class EngineEmbedding:
    """Token embeddings with their positions. The vectors of positions are computed once and kept in a table."""

    def __init__(self, embedding: Embedding, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        """Use the trained weight itself where it is on this device, a copy elsewhere."""
        self.weight, self.scale, self.join = embedding.weight.detach().to(device), embedding.scale, embedding.join
        self.position, self.check, self.dtype, self.device = embedding.position, embedding.check, dtype, device
        self.norm = convert_norm(embedding.norm, self.weight.dtype, device)
        self.positions_TD = self.weight.new_empty(0, 0)
        self.outgrown = list[Tensor]()
        """Tables that were replaced by longer ones: captured CUDA graphs still read them."""

    def __call__(self, ids_N: Int[Tensor, " N"], position_N: Int[Tensor, " N"], longest: int) -> Float[Tensor, "N D"]:
        """Return the vector of each id at its position. No position of a real token reaches `longest`."""
        token_ND = functional.embedding(ids_N, self.weight)
        if self.position is None:
            joined_ND = token_ND * self.scale
        else:
            self.prepare(longest)
            if self.position.limit is not None:  # the positions of padding may exceed the learned ones
                position_N = position_N.clamp(max=self.position.limit - 1)
            position_ND = functional.embedding(position_N, self.positions_TD)
            if self.join == "sum":
                # The gathered positions are a copy, so the tokens are added in place, with their scale in one pass.
                joined_ND = position_ND.add_(token_ND, alpha=self.scale)
            else:
                joined_ND = torch.cat([token_ND * self.scale, position_ND], -1)
        normed_ND: Tensor = self.norm(joined_ND).to(self.dtype)
        return normed_ND

    def prepare(self, longest: int) -> None:
        """Compute the vectors of the first `longest` positions, or of all that were learned."""
        if self.position is None or self.positions_TD.shape[0] >= min(longest, self.position.limit or longest):
            return
        position_T = torch.arange(self.position.limit or max(64, 2 * longest), device=self.device)
        position = (
            copy.deepcopy(self.position).to(self.device) if isinstance(self.position, nn.Module) else self.position
        )
        self.outgrown.append(self.positions_TD)
        self.positions_TD = position(position_T, self.weight).detach()
