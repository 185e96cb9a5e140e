"""Who may look where: one small value from which every kernel derives its mask and its bias."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Sight:
    """What a query may see of its own sequence, and how much the distance to a key counts against it."""

    causal: bool = False
    """Nothing that comes later (Vaswani et al. 2017, §3.2.3)."""
    window: int | None = None
    """No further than this many neighbours to each side (§4, restricted self-attention); None sees all."""
    slopes: tuple[float, ...] = ()
    """For each head, what one step of distance takes off the score (ALiBi, Press et al. 2022, §3); none by default."""

    def __post_init__(self) -> None:
        """Refuse a window that shows nothing."""
        if self.window is not None and self.window < 1:
            raise ValueError(
                f"a window shows at least 1 neighbour to each side, not {self.window}; leave it out to see all"
            )

    @property
    def unlimited(self) -> bool:
        """Whether every token sees its whole sequence."""
        return not self.causal and self.window is None

    @property
    def relative(self) -> bool:
        """Whether places matter at all, which only makes sense within one sequence."""
        return not self.unlimited or bool(self.slopes)

    def allows(self, query: Int[Tensor, "*#shape"], key: Int[Tensor, "*#shape"]) -> Bool[Tensor, "*shape"]:
        """Whether queries at these positions may look at keys at those; positions are broadcast."""
        ahead = key - query
        allowed = ahead <= 0 if self.causal else ahead == ahead
        if self.window is not None:
            allowed = allowed & (ahead.abs() <= self.window)
        return allowed

    def bias(self, query_Q: Int[Tensor, " Q"], key_K: Int[Tensor, " K"]) -> Float[Tensor, "..."]:
        """What distance adds to the scores of each head, minus slope times distance, in double precision; else 0."""
        if not self.slopes:
            return torch.zeros((), device=key_K.device)
        slopes_H = self.slopes_on(key_K.device, torch.float64)
        return -slopes_H[:, None, None] * (key_K - query_Q[:, None]).abs()

    def slopes_on(self, device: torch.device, dtype: torch.dtype) -> Float[Tensor, " H"]:
        """The slopes, made on a device rather than sent there, which a recording of its kernels could not hold."""
        return torch.stack([torch.full((), slope, dtype=dtype, device=device) for slope in self.slopes])


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """A geometric series over the heads, from 2^(-8/heads) to 2^-8 (Press et al. 2022, §3).

    For a number of heads that is no power of two, the series of the next lower power comes first and every second term
    of the next higher one fills up, as the authors' code has it.
    """
    power = 2 ** math.floor(math.log2(heads))
    series = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return (*series, *between)
