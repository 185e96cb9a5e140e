"""Sampling: temperature, top-k, nucleus (top-p) and min-p.

A random number depends only on the seed of the sentence, the number of the sample and the position of the token. So the
samples of a sentence do not depend on its batch, nor on the device.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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

    def __init__(self, seeds: Sequence[int], sampling: Sequence[SamplingOptions], device: torch.device | str) -> None:
        """Take the seed and the options of each sentence."""
        self.seed_B = torch.tensor([_to_signed(seed) for seed in seeds], device=device)
        self.sampling, self.rows_with_options = sampling, RowSampling([], device)

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> Candidates:
        """Return one candidate for each row."""
        count, rows = beams.total_BW.shape
        sample_W = torch.arange(rows, device=beams.length_B.device)
        uniform_BW = uniform(self.seed_B[:, None], sample_W, beams.length_B[:, None])
        if len(self.rows_with_options.sampling) < count * rows:
            every = [sampling for sampling in self.sampling for _ in range(rows)]
            self.rows_with_options = RowSampling(every, logprobs_RV.device)
        token_R = draw(logprobs_RV, uniform_BW.flatten(), self.rows_with_options)
        logprob_R = logprobs_RV.gather(1, token_R[:, None])
        return one_per_row(token_R.view(count, rows), logprob_R.view(count, rows), beams)


@dataclass(frozen=True, eq=False)
class SamplingColumns:
    """The options of rows that are sampled alike: from all tokens, from the k best, or from all in order."""

    rows_N: Tensor | None
    """The rows; None for all."""
    temperature_N1: Tensor
    top_k_N1: Tensor | None
    max_top_k: int
    top_p_N1: Tensor | None
    min_p_N1: Tensor | None


class RowSampling:
    """The sampling options of each row."""

    def __init__(self, sampling: Sequence[SamplingOptions], device: torch.device | str) -> None:
        """Take the options of each row."""
        self.sampling, self.device = sampling, device
        self._columns: dict[int, list[SamplingColumns]] = {}

    def columns(self, vocabulary: int) -> list[SamplingColumns]:
        """Return the options as tensors, for a vocabulary of this size."""
        if vocabulary not in self._columns:
            kinds: dict[tuple[bool, bool], list[int]] = {}
            for row, options in enumerate(self.sampling):
                has_top_k = options.top_k is not None and options.top_k < vocabulary
                kinds.setdefault((has_top_k, not has_top_k and options.top_p < 1), []).append(row)
            self._columns[vocabulary] = [self._make(rows, has_top_k) for (has_top_k, _), rows in kinds.items()]
        return self._columns[vocabulary]

    def _make(self, rows: list[int], has_top_k: bool) -> SamplingColumns:
        options = [self.sampling[row] for row in rows]
        top_k = [row.top_k or 0 for row in options] if has_top_k else [0]
        # A row without nucleus sampling keeps all tokens, however their sum is rounded.
        top_p = [row.top_p if row.top_p < 1 else math.inf for row in options]
        min_p = [row.min_p for row in options]
        return SamplingColumns(
            None if len(rows) == len(self.sampling) else torch.tensor(rows, device=self.device),
            self._column([row.temperature for row in options]),
            self._column(top_k) if len(set(top_k)) > 1 else None,
            max(top_k),
            self._column(top_p) if min(top_p) < 1 else None,
            self._column(min_p) if max(min_p) > 0 else None,
        )

    def _column(self, values: Sequence[int | float]) -> Float[Tensor, "N 1"]:
        return torch.tensor(values, dtype=torch.float64, device=self.device)[:, None]


def draw(logprobs_RV: Float[Tensor, "R V"], uniform_R: Float[Tensor, " R"], sampling: RowSampling) -> Int[Tensor, " R"]:
    """Draw a token for each row by inverting its cumulative distribution at a number in [0, 1)."""
    token_R = torch.zeros_like(uniform_R, dtype=torch.int64)
    for columns in sampling.columns(logprobs_RV.shape[1]):
        if columns.rows_N is None:
            return _draw(logprobs_RV, uniform_R, columns)
        token_R[columns.rows_N] = _draw(logprobs_RV[columns.rows_N], uniform_R[columns.rows_N], columns)
    return token_R


def _draw(
    logprobs_NV: Float[Tensor, "N V"], uniform_N: Float[Tensor, " N"], options: SamplingColumns
) -> Int[Tensor, " N"]:
    """Draw a token for rows that are sampled alike.

    All sums run from left to right (`cumsum`), so that columns of weight 0, which rows with a smaller k have, do not
    change their rounding: a row draws the same token whatever the options of the others are.
    """
    scaled_NK, token_NK = logprobs_NV.double() / options.temperature_N1, None
    if options.max_top_k:
        _, scaled_NK, _, token_NK = top(scaled_NK, scaled_NK.new_zeros(scaled_NK.shape[0], 1), options.max_top_k)
        if options.top_k_N1 is not None:
            rank_K = torch.arange(options.max_top_k, device=scaled_NK.device)
            scaled_NK = scaled_NK.masked_fill(rank_K >= options.top_k_N1, -torch.inf)
    elif options.top_p_N1 is not None:
        scaled_NK, token_NK = scaled_NK.sort(descending=True)
    weight_NK = (scaled_NK - scaled_NK.amax(-1, keepdim=True)).exp_()
    sum_NK = weight_NK.cumsum(-1)
    if options.top_p_N1 is not None:
        # A token stays while those before it sum to less than top_p: the token that crosses the bound is the last one.
        weight_NK = weight_NK.masked_fill(sum_NK - weight_NK >= options.top_p_N1 * sum_NK[:, -1:], 0)
    if options.min_p_N1 is not None:
        weight_NK = weight_NK.masked_fill(weight_NK < options.min_p_N1, 0)  # the greatest weight is 1
    if options.top_p_N1 is not None or options.min_p_N1 is not None:
        sum_NK = weight_NK.cumsum(-1)
    whole_N1 = sum_NK[:, -1:]
    # Rounding must not carry the number to the very end of the distribution, which belongs to no token.
    aim_N1 = torch.minimum(uniform_N[:, None] * whole_N1, whole_N1.nextafter(torch.zeros_like(whole_N1)))
    at_N1 = torch.searchsorted(sum_NK, aim_N1, right=True).clamp(max=sum_NK.shape[1] - 1)
    return (at_N1 if token_NK is None else token_NK.gather(1, at_N1))[:, 0]


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
