"""Drawing tokens instead of searching: temperature, top-k, top-p and min-p.

A draw is a function of a sentence's seed, the number of the sample, and the place of the token, and of nothing else, so
the same samples come out whatever else is in the batch, and however the batch is cut.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.choose import Candidates, alone
from regard.decode.live import Live
from regard.decode.options import Sampling
from regard.decode.topk import top


class Sample:
    """Each row goes on with a token drawn from what the stepper said of it."""

    independent = True

    def __init__(self, seeds: Sequence[int], sampling: Sampling, device: torch.device | str) -> None:
        """A seed for each sentence."""
        self.seed_B = torch.tensor([_signed(seed) for seed in seeds], device=device)
        self.sampling = sampling

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """One candidate a row."""
        beams, rows = live.total_BW.shape
        number_W = torch.arange(rows, device=live.length_B.device)
        uniform_BW = uniform(self.seed_B[:, None], number_W, live.length_B[:, None])
        token_R = draw(logprobs_RV, uniform_BW.flatten(), self.sampling)
        logprob_R = logprobs_RV.gather(1, token_R[:, None])
        return alone(token_R.view(beams, rows), logprob_R.view(beams, rows), live)


def draw(logprobs_RV: Float[Tensor, "R V"], uniform_R: Float[Tensor, " R"], sampling: Sampling) -> Int[Tensor, " R"]:
    """The token in which a number between 0 and 1 falls when tokens are given room by their probability."""
    scaled_RK, token_RK = logprobs_RV.double() / sampling.temperature, None
    if sampling.top_k is not None and sampling.top_k < logprobs_RV.shape[1]:
        _, scaled_RK, _, token_RK = top(scaled_RK, scaled_RK.new_zeros(scaled_RK.shape[0], 1), sampling.top_k)
    elif sampling.top_p < 1:
        scaled_RK, token_RK = scaled_RK.sort(descending=True)
    p_RK = scaled_RK.softmax(-1)
    if sampling.top_p < 1:
        # A token stays while those before it do not yet reach top_p: the one that crosses it is the last.
        p_RK = p_RK.masked_fill(p_RK.cumsum(-1) - p_RK >= sampling.top_p, 0)
    if sampling.min_p > 0:
        p_RK = p_RK.masked_fill(p_RK < sampling.min_p * p_RK.amax(-1, keepdim=True), 0)
    sum_RK = p_RK.cumsum(-1)
    whole_R1 = sum_RK[:, -1:]
    # Rounding must not carry a number to the very end of the room: behind it is nobody's.
    aim_R1 = torch.minimum(uniform_R[:, None] * whole_R1, whole_R1.nextafter(torch.zeros_like(whole_R1)))
    at_R1 = torch.searchsorted(sum_RK, aim_R1, right=True).clamp(max=sum_RK.shape[1] - 1)
    return (at_R1 if token_RK is None else token_RK.gather(1, at_R1))[:, 0]


def uniform(*parts: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Numbers in [0, 1), as even as a generator's, that depend on whole numbers alone."""
    mixed = torch.zeros_like(parts[0])
    for part in parts:
        mixed = _mix(mixed + part)
    return _shifted(mixed, 11).double() * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    """Spread the bits of 64-bit numbers (the finaliser of splitmix64; Steele et al. 2014)."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted right with zeros behind: torch's own shift would draw the sign along."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    """A number of 64 bits as torch counts them, with a sign."""
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x
