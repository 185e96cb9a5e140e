"""Position encodings: how a model knows the order of its tokens.

`SinusoidalPositions` and `LearnedPositions` give each position a vector, which is added to the token's embedding or
concatenated with it. `RotaryPositions` rotates queries and keys instead. ALiBi is a bias on the attention scores and is
part of `AttentionMask`.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

BASE = 10000.0  # Vaswani et al. 2017, §3.5: wavelengths from 2π to 10000 · 2π


@runtime_checkable
class PositionEncoding(Protocol):
    """An encoding that gives each position a vector."""

    @property
    def name(self) -> str:
        """The value of `model.position` that selects it."""

    @property
    def formula(self) -> str:
        """The vector of a position as a formula, for people to read."""

    @property
    def limit(self) -> int | None:
        """The number of positions; None if unlimited."""

    def __call__(self, position_N: Int[Tensor, " N"], like: Tensor) -> Float[Tensor, "N D"]:
        """Return the vector of each position in the dtype of `like`."""


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)) (Vaswani et al. 2017, §3.5)."""

    name, formula = "sinusoidal", "sin, cos(position / 10000^(2i/d))"
    limit: int | None = None

    def __init__(self, width: int, halves: bool = False) -> None:
        """Create the encoding; with `halves`, all sines come before all cosines, as in Marian."""
        super().__init__()
        self.width, self.halves = width, halves

    def forward(self, position_N: Int[Tensor, " N"], like: Tensor) -> Float[Tensor, "N D"]:
        """Return the vector of each position in the dtype of `like`."""
        sines = _opaque_sines if torch.compiler.is_compiling() else _sines
        return sines(position_N, self.width, self.halves, like.dtype)


class LearnedPositions(nn.Module):
    """A learned vector for each position (Gehring et al. 2017, §3.1)."""

    name, formula = "learned", "P[position]"

    def __init__(self, width: int, limit: int) -> None:
        """Create vectors for the positions 0 … limit - 1."""
        super().__init__()
        self.limit: int | None = limit
        self.weight = nn.Parameter(torch.empty(limit, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, position_N: Int[Tensor, " N"], like: Tensor) -> Float[Tensor, "N D"]:
        """Return the vector of each position in the dtype of `like`."""
        return nn.functional.embedding(position_N, self.weight).to(like.dtype)


class RotaryPositions(nn.Module):
    """Rotate pair i of queries and keys by the angle pos / 10000^(2i/d): q·k depends on distance (Su et al. 2021).

    The paper pairs neighbouring values (§3.2.2). Here, value i pairs with value i + d/2, which is the same up to a
    permutation.
    """

    def __init__(self, size: int) -> None:
        """Create the encoding for heads of this size, which must be even."""
        super().__init__()
        if size % 2:
            raise ValueError(
                f"rotary positions rotate pairs of values and need an even head size, got {size}; "
                "change the width or the number of heads"
            )
        self.size = size

    def forward(self, x_NHE: Float[Tensor, "N H E"], position_N: Int[Tensor, " N"]) -> Float[Tensor, "N H E"]:
        """Rotate the heads of each token by its position."""
        angle = angles(position_N, self.size, x_NHE)[:, None]
        cos, sin = angle.cos().to(x_NHE.dtype), angle.sin().to(x_NHE.dtype)
        first, second = x_NHE.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _sines(position_N: Tensor, width: int, halves: bool, dtype: torch.dtype) -> Tensor:
    """Return sines and cosines of each position's angles, interleaved or as two halves."""
    angle = angles(position_N, width, position_N.new_empty(0, dtype=dtype))
    interleaved = torch.stack([angle.sin(), angle.cos()], -2 if halves else -1).flatten(-2)
    return interleaved[..., :width].to(dtype).contiguous()


# An operator the compiler does not look into. Otherwise it would fuse the sines into the gather that follows, and
# compute them again for every token instead of once per position.
_opaque_sines = torch.library.custom_op("regard::sines", _sines, mutates_args=())


@_opaque_sines.register_fake
def _(position_N: Tensor, width: int, halves: bool, dtype: torch.dtype) -> Tensor:
    return position_N.new_empty(position_N.shape[0], width, dtype=dtype)


def angles(position_N: Int[Tensor, " N"], width: int, like: Tensor) -> Float[Tensor, "N half"]:
    """Return pos / 10000^(2i/d) for each pair i, at least in float32: half precision cannot count to 10000."""
    precision = torch.promote_types(like.dtype, torch.float32)
    pair = torch.arange((width + 1) // 2, dtype=precision, device=position_N.device)
    return position_N.to(precision)[:, None] * BASE ** (-2 * pair / width)


def make_position_encoding(kind: str, width: int, limit: int) -> PositionEncoding | None:
    """Create the encoding that joins the token embeddings; None if positions act inside attention, or not at all."""
    match kind:
        case "sinusoidal":
            return SinusoidalPositions(width)
        case "sinusoidal-halves":
            return SinusoidalPositions(width, halves=True)
        case "learned":
            return LearnedPositions(width, limit)
        case "rotary" | "alibi" | "none":
            return None
    raise ValueError(f"there is no position encoding '{kind}'; see `regard recipe explain model.position`")
