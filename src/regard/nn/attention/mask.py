"""Attention masks: which keys a query may attend to, from which every kernel derives its mask and its bias."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """Describe which keys of its own sequence a query may attend to, and how distance lowers a score.

    Example:
        >>> AttentionMask(causal=True).allows(torch.tensor([[0], [1]]), torch.tensor([0, 1]))
        tensor([[ True, False],
                [ True,  True]])
    """

    causal: bool = False
    """Forbid later positions (Vaswani et al. 2017, §3.2.3)."""
    window: int | None = None
    """Number of neighbours allowed on each side (restricted self-attention, ibid. §4); None allows all."""
    slopes: tuple[float, ...] = ()
    """For each head, what is subtracted from a score per position of distance (ALiBi, Press et al. 2022, §3)."""

    def __post_init__(self) -> None:
        """Reject a window without neighbours."""
        if self.window is not None and self.window < 1:
            raise ValueError(
                f"an attention window needs at least 1 neighbour on each side, got {self.window}; "
                "use None to attend to the whole sequence"
            )

    @property
    def full(self) -> bool:
        """Return whether every query may attend to its whole sequence."""
        return not self.causal and self.window is None

    @property
    def position_dependent(self) -> bool:
        """Return whether positions matter, which requires queries and keys of one sequence."""
        return not self.full or bool(self.slopes)

    def allows(self, query: Int[Tensor, "*#shape"], key: Int[Tensor, "*#shape"]) -> Bool[Tensor, "*shape"]:
        """Return whether queries at these positions may attend to keys at those; the positions are broadcast."""
        ahead = key - query
        # `ahead == ahead` is an all-true tensor of the broadcast shape.
        allowed = ahead <= 0 if self.causal else ahead == ahead
        if self.window is not None:
            allowed = allowed & (ahead.abs() <= self.window)
        return allowed

    def bias(self, query_Q: Int[Tensor, " Q"], key_K: Int[Tensor, " K"]) -> Float[Tensor, "..."]:
        """Return the ALiBi bias of each head, minus slope times distance, in float64; a scalar 0 without slopes."""
        if not self.slopes:
            return torch.zeros((), device=key_K.device)
        slopes_H = self.slopes_on(key_K.device, torch.float64)
        return -slopes_H[:, None, None] * (key_K - query_Q[:, None]).abs()

    def slopes_on(self, device: torch.device, dtype: torch.dtype) -> Float[Tensor, " H"]:
        """Return the slopes as a tensor that is filled on the device.

        A copy from the host could not be captured in a CUDA graph, and torch cannot compile FlexAttention with a
        tensor that was concatenated in the same graph.
        """
        head_H = torch.arange(len(self.slopes), device=device)
        slopes_H = torch.zeros(len(self.slopes), dtype=dtype, device=device)
        for head, slope in enumerate(self.slopes):
            slopes_H = torch.where(head_H == head, slope, slopes_H)
        return slopes_H


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Return ALiBi's slopes: a geometric series from 2^(-8/heads) to 2^-8 (Press et al. 2022, §3).

    If the number of heads is no power of two, the series of the next lower power comes first, followed by every second
    term of the next higher one, as in the authors' code.
    """
    power = 2 ** math.floor(math.log2(heads))
    series = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return (*series, *between)
