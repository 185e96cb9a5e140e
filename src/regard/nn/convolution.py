"""Gated convolution over a ragged batch (Gehring et al. 2017; Dauphin et al. 2017).

The neighbours of a token are shifted copies of the token stream, zero beyond the ends of a sequence, side by side. A
convolution is then one product of a `(tokens, kernel · width)` matrix with the weights, without padding.
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
class ConvolutionWindow:
    """Which neighbours a convolution sees, prepared once per batch and shared by all layers."""

    shifts: tuple[int, ...]
    """Relative position of each neighbour, in ascending order."""
    inside: tuple[Bool[Tensor, "N 1"], ...]
    """For each neighbour, whether it is in the token's own sequence."""

    @classmethod
    def from_layout(cls, layout: Layout, kernel: int, causal: bool) -> "ConvolutionWindow":
        """Create a window of `kernel` tokens: the token and those before it if causal, else centred on the token."""
        before = kernel - 1 if causal else kernel // 2
        shifts = tuple(range(-before, kernel - before))
        remaining_N = layout.lengths_B[layout.sequence_N] - 1 - layout.position_N
        inside = [(layout.position_N >= -shift) & (remaining_N >= shift) for shift in shifts]
        return cls(shifts, tuple(inside_N[:, None] for inside_N in inside))

    def gather(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D2"]:
        """Return the neighbours of every token side by side."""
        tokens = x_ND.shape[0]
        neighbours = []
        for shift, inside_N1 in zip(self.shifts, self.inside, strict=True):
            # Shifting the whole stream reads memory in order; the gradient of a gather would be a slow scatter-add.
            if shift < 0:
                shifted_ND = functional.pad(x_ND, (0, 0, -shift, 0))[:tokens]
            else:
                shifted_ND = functional.pad(x_ND, (0, 0, 0, shift))[shift:]
            neighbours.append(shifted_ND * inside_N1)
        return torch.cat(neighbours, -1)


class GatedConvolution(nn.Module):
    """A ∘ σ(B) with [A B] = W [x_{i-k/2}, …, x_{i+k/2}] + b (Dauphin et al. 2017; Gehring et al. 2017, §3.2)."""

    def __init__(self, width: int, kernel: int, dropout: float = 0.0) -> None:
        """Create the layer; it sees `kernel` tokens at once, and dropout applies to its input (§4.2)."""
        super().__init__()
        self.kernel = kernel
        self.widen = nn.Linear(kernel * width, 2 * width)
        # §3.5: the gate roughly halves its input, so twice the standard deviation keeps the variance.
        nn.init.normal_(self.widen.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.widen.bias)
        self.drop, self.gate = Dropout(dropout), Tap()

    def forward(self, x_ND: Float[Tensor, "N D"], window: ConvolutionWindow) -> Float[Tensor, "N D"]:
        """Convolve every token of a ragged batch with its neighbours."""
        return self._convolve(window.gather(self.drop(x_ND)))

    def step(
        self, x_RD: Float[Tensor, "R D"], before: Float[Tensor, "R behind D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R behind D"]]:
        """Convolve one new token a row with the tokens before it; return the result and the tokens before the next."""
        window = torch.cat([before, self.drop(x_RD)[:, None]], 1)
        return self._convolve(window.flatten(1)), window[:, 1:]

    def _convolve(self, neighbours_ND: Float[Tensor, "N D2"]) -> Float[Tensor, "N D"]:
        """Multiply gathered neighbours by W and gate the first half of the result by the second."""
        value_ND, gate_ND = self.widen(neighbours_ND).chunk(2, -1)
        gated: Tensor = value_ND * self.gate(torch.sigmoid(gate_ND))
        return gated
