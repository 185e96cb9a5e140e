"""Where a token stands: the ways a position enters the model.

`Sinusoidal` and `Learned` give each position a vector, to be added to the token's or set beside it; `Rotary` turns
queries and keys instead; ALiBi is a bias on the scores and stands in `attention/sight.py`.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

BASE = 10000.0  # Vaswani et al. 2017, §3.5: wavelengths from 2π to 10000 · 2π


@runtime_checkable
class Position(Protocol):
    """Gives each position a vector."""

    @property
    def limit(self) -> int | None:
        """How many positions there are; None if any number."""

    def __call__(self, position_N: Int[Tensor, " N"], like: Tensor) -> Float[Tensor, "N D"]:
        """The vector of each position, in the number format of `like`."""


class Sinusoidal(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)) (Vaswani et al. 2017, §3.5)."""

    limit: int | None = None

    def __init__(self, width: int, halves: bool = False) -> None:
        """Sine and cosine in turn, or with `halves` all sines and then all cosines, as Marian has them."""
        super().__init__()
        self.width, self.halves = width, halves

    def forward(self, position_N: Int[Tensor, " N"], like: Tensor) -> Float[Tensor, "N D"]:
        """The vector of each position."""
        made = _opaque_sines if torch.compiler.is_compiling() else _sines
        return made(position_N, self.width, self.halves, like.dtype)


class Learned(nn.Module):
    """A vector of its own for each position, learned like a word's (Gehring et al. 2017, §3.1)."""

    def __init__(self, width: int, limit: int) -> None:
        """Vectors for the positions 0 … limit - 1."""
        super().__init__()
        self.limit: int | None = limit
        self.weight = nn.Parameter(torch.empty(limit, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, position_N: Int[Tensor, " N"], like: Tensor) -> Float[Tensor, "N D"]:
        """The vector of each position."""
        return nn.functional.embedding(position_N, self.weight).to(like.dtype)


class Rotary(nn.Module):
    """Turn pair i of a query or key by the angle pos / 10000^(2i/d), so that q·k knows only distances (Su et al. 2021).

    The paper's pairs are neighbours (§3.2.2); here number i pairs with number i + d/2, the same up to a renumbering.
    """

    def __init__(self, size: int) -> None:
        """Turn vectors of this size, which must be even."""
        super().__init__()
        if size % 2:
            raise ValueError(f"rotary positions turn pairs of numbers, so a head needs an even size, not {size}")
        self.size = size

    def forward(self, x_NHE: Float[Tensor, "N H E"], position_N: Int[Tensor, " N"]) -> Float[Tensor, "N H E"]:
        """Turn each token's heads by its position."""
        angle = angles(position_N, self.size, x_NHE)[:, None]
        cos, sin = angle.cos().to(x_NHE.dtype), angle.sin().to(x_NHE.dtype)
        first, second = x_NHE.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _sines(position_N: Tensor, width: int, halves: bool, dtype: torch.dtype) -> Tensor:
    """Sines and cosines of each position's angles."""
    angle = angles(position_N, width, position_N.new_empty(0, dtype=dtype))
    turned = torch.stack([angle.sin(), angle.cos()], -2 if halves else -1).flatten(-2)
    return turned[..., :width].to(dtype).contiguous()


_opaque_sines = torch.library.custom_op("regard::sines", _sines, mutates_args=())
"""The compiler does not look into it, or it would have the sines of a position computed for every token there."""


@_opaque_sines.register_fake
def _(position_N: Tensor, width: int, halves: bool, dtype: torch.dtype) -> Tensor:
    return position_N.new_empty(position_N.shape[0], width, dtype=dtype)


def angles(position_N: Int[Tensor, " N"], width: int, like: Tensor) -> Float[Tensor, "N half"]:
    """pos / 10000^(2i/d) for each pair i, in single precision at least: half precision cannot count to 10000."""
    precision = torch.promote_types(like.dtype, torch.float32)
    pair = torch.arange((width + 1) // 2, dtype=precision, device=position_N.device)
    return position_N.to(precision)[:, None] * BASE ** (-2 * pair / width)


def make_position(kind: str, width: int, limit: int) -> Position | None:
    """What this kind of position adds to an embedding; None where it acts inside attention, or not at all."""
    match kind:
        case "sinusoidal":
            return Sinusoidal(width)
        case "sinusoidal-halves":
            return Sinusoidal(width, halves=True)
        case "learned":
            return Learned(width, limit)
        case "rotary" | "alibi" | "none":
            return None
    raise ValueError(f"there is no position '{kind}'; it may be sinusoidal, learned, rotary, alibi or none")
