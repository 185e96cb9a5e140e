"""From a log-probability to a score: what length and coverage do to it (Wu et al. 2016, §7).

score(Y) = log p(Y) / lp(|Y|) + beta · Σ over sources of log(min(attention received, 1)).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.options import Options

SMALLEST = 1e-10
"""What a source that was never looked at counts as: with a true zero its logarithm would forbid the hypothesis."""


def divisor(length_B: Int[Tensor, " B"], options: Options) -> Float[Tensor, " B"]:
    """What the log-probability of a sequence of so many tokens, its end counted, is divided by (eq. 14)."""
    length = length_B.double()
    base = (5 + length) / 6 if options.normalise == "gnmt" else length
    return base**options.length_penalty


def coverage(
    received_BWS: Float[Tensor, "B W S"], source_B: Int[Tensor, " B"], options: Options
) -> Float[Tensor, "B W"]:
    """What hypotheses lose for sources that received less than one unit of attention (eq. 14)."""
    real_BS = torch.arange(received_BWS.shape[-1], device=source_B.device) < source_B[:, None]
    lost_BWS = received_BWS.clamp(SMALLEST, 1).log() * real_BS[:, None]
    return options.coverage_penalty * lost_BWS.sum(-1)
