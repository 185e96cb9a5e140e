"""Sampling: temperature, top-k, nucleus (top-p) and min-p.

A random number depends only on the seed of the sentence, the number of the sample and the position of the token. So the
samples of a sentence do not depend on its batch, nor on the device.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.beams import Beams
from regard.decode.candidates import Candidates, one_per_row
from regard.decode.topk import top
from regard.options import SamplingOptions


class SamplingSelector:
    """Every row continues with a token drawn from its distribution."""

    independent = True
    static = False

    def __init__(self, seeds: Sequence[int], sampling: SamplingOptions, device: torch.device | str) -> None:
        """Take the seed of each sentence."""
        self.seed_B = torch.tensor([_to_signed(seed) for seed in seeds], device=device)
        self.sampling = sampling

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return one candidate for each row."""
        count, rows = beams.total_BW.shape
        sample_W = torch.arange(rows, device=beams.length_B.device)
        uniform_BW = uniform(self.seed_B[:, None], sample_W, beams.length_B[:, None])
        token_R = draw(logprobs_RV, uniform_BW.flatten(), self.sampling)
        logprob_R = logprobs_RV.gather(1, token_R[:, None])
        return one_per_row(token_R.view(count, rows), logprob_R.view(count, rows), beams)


def draw(
    logprobs_RV: Float[Tensor, "R V"], uniform_R: Float[Tensor, " R"], sampling: SamplingOptions
) -> Int[Tensor, " R"]:
    """Draw a token for each row by inverting its cumulative distribution at a number in [0, 1)."""
    scaled_RK, token_RK = logprobs_RV.double() / sampling.temperature, None
    if sampling.top_k is not None and sampling.top_k < logprobs_RV.shape[1]:
        _, scaled_RK, _, token_RK = top(scaled_RK, scaled_RK.new_zeros(scaled_RK.shape[0], 1), sampling.top_k)
    elif sampling.top_p < 1:
        scaled_RK, token_RK = scaled_RK.sort(descending=True)
    p_RK = scaled_RK.softmax(-1)
    if sampling.top_p < 1:
        # A token stays while those before it sum to less than top_p: the token that crosses the bound is the last one.
        p_RK = p_RK.masked_fill(p_RK.cumsum(-1) - p_RK >= sampling.top_p, 0)
    if sampling.min_p > 0:
        p_RK = p_RK.masked_fill(p_RK < sampling.min_p * p_RK.amax(-1, keepdim=True), 0)
    sum_RK = p_RK.cumsum(-1)
    whole_R1 = sum_RK[:, -1:]
    # Rounding must not carry the number to the very end of the distribution, which belongs to no token.
    aim_R1 = torch.minimum(uniform_R[:, None] * whole_R1, whole_R1.nextafter(torch.zeros_like(whole_R1)))
    at_R1 = torch.searchsorted(sum_RK, aim_R1, right=True).clamp(max=sum_RK.shape[1] - 1)
    return (at_R1 if token_RK is None else token_RK.gather(1, at_R1))[:, 0]


def uniform(*parts: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return uniform numbers in [0, 1) that are a function of integers: a counter-based random number generator."""
    mixed = torch.zeros_like(parts[0])
    for part in parts:
        mixed = _mix(mixed + part)
    return _shift_right(mixed, 11).double() * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    """Mix the bits of 64-bit integers (the finaliser of splitmix64; Steele et al. 2014)."""
    x = x + _to_signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift_right(x, 30)) * _to_signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _to_signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch's own shift fills with the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _to_signed(x: int) -> int:
    """Return an unsigned 64-bit integer as the signed one with the same bits, which torch has."""
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x
