"""Convolution over a ragged batch: each token with its neighbours, by one matrix, and a gate on what comes out.

Neighbours are shifted copies of the stream, zero where a sequence ends, set side by side; so a convolution is one
product of `(tokens, kernel · width)` numbers with a matrix, and never computes on padding.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.dropout import Dropout
from regard.nn.ragged import Layout
from regard.nn.tap import Tap


@dataclass(frozen=True, eq=False)
class Window:
    """Which neighbours a token sees, prepared once for a batch and shared by all layers."""

    shifts: tuple[int, ...]
    """How far ahead each neighbour stands, the furthest behind first."""
    inside: tuple[Bool[Tensor, "N 1"], ...]
    """Whether that neighbour belongs to the token's own sequence."""

    @classmethod
    def of(cls, layout: Layout, kernel: int, causal: bool) -> "Window":
        """A token and those before it, or as many to each side (Gehring et al. 2017, §3.2)."""
        behind = kernel - 1 if causal else kernel // 2
        shifts = tuple(range(-behind, kernel - behind))
        last_N = layout.lengths_B[layout.sequence_N] - 1 - layout.position_N
        near = [(layout.position_N >= -shift) & (last_N >= shift) for shift in shifts]
        return cls(shifts, tuple(each[:, None] for each in near))

    def gather(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D2"]:
        """Every token's neighbours side by side."""
        tokens = x_ND.shape[0]
        sides = []
        for shift, inside_N1 in zip(self.shifts, self.inside, strict=True):
            # Shifted by whole tokens the stream is read in order; a gather would have to add up its gradient.
            if shift < 0:
                moved_ND = functional.pad(x_ND, (0, 0, -shift, 0))[:tokens]
            else:
                moved_ND = functional.pad(x_ND, (0, 0, 0, shift))[shift:]
            sides.append(moved_ND * inside_N1)
        return torch.cat(sides, -1)


class GatedConvolution(nn.Module):
    """A ∘ σ(B), with [A B] = W [x_{i-k/2}, …, x_{i+k/2}] + b (Dauphin et al. 2017; Gehring et al. 2017, §3.2)."""

    def __init__(self, width: int, kernel: int, dropout: float = 0.0) -> None:
        """`kernel` tokens are seen at once; dropout falls on what comes in (§4.2)."""
        super().__init__()
        self.kernel = kernel
        self.widen = nn.Linear(kernel * width, 2 * width)
        # §3.5: a gate halves its input about, so twice the deviation keeps the variance.
        nn.init.normal_(self.widen.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.widen.bias)
        self.drop, self.gate = Dropout(dropout), Tap()

    def forward(self, x_ND: Float[Tensor, "N D"], window: Window) -> Float[Tensor, "N D"]:
        """Every token of a ragged batch with its neighbours."""
        return self._gated(window.gather(self.drop(x_ND)))

    def step(
        self, x_RD: Float[Tensor, "R D"], before: Float[Tensor, "R behind D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R behind D"]]:
        """One new token a row with those before it, and those before the next."""
        seen = torch.cat([before, self.drop(x_RD)[:, None]], 1)
        return self._gated(seen.flatten(1)), seen[:, 1:]

    def _gated(self, sides_ND: Float[Tensor, "N D2"]) -> Float[Tensor, "N D"]:
        """The first half of the product, gated by the second."""
        value_ND, open_ND = self.widen(sides_ND).chunk(2, -1)
        gated: Tensor = value_ND * self.gate(torch.sigmoid(open_ND))
        return gated
