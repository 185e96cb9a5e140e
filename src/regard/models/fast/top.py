"""The best few of a whole vocabulary, with their log-probabilities."""

from typing import no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 64
"""Neighbouring tokens whose maximum is taken first; the vocabulary comes in whole blocks."""


def top_of(logits_RV: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"]]:
    """The k greatest log-probabilities of each row, greatest first, and their tokens."""
    found: tuple[Tensor, Tensor] = greatest(logits_RV, k)
    return found


@no_type_check
def greatest(logits_RV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same, fit for TorchScript.

    The k greatest lie in the k blocks with the greatest maxima, so only those are looked into.
    """
    if logits_RV.dtype != torch.float64:
        logits_RV = logits_RV.to(torch.float32)
    blocks_RVK = logits_RV.view(logits_RV.shape[0], -1, 64)
    if k == 1:
        block_R1 = blocks_RVK.amax(-1).argmax(1, keepdim=True)
        place_R1 = blocks_RVK.gather(1, block_R1.unsqueeze(2).expand(-1, -1, 64)).argmax(2)
        token_R1 = block_R1 * 64 + place_R1
        return logits_RV.log_softmax(-1).gather(1, token_R1), token_R1
    if k > blocks_RVK.shape[1]:
        best_RK, token_RK = logits_RV.topk(k)
    else:
        block_RK = blocks_RVK.amax(-1).topk(k)[1]
        inside_RVK = blocks_RVK.gather(1, block_RK.unsqueeze(2).expand(-1, -1, 64))
        best_RK, place_RK = inside_RVK.flatten(1).topk(k)
        token_RK = block_RK.gather(1, place_RK // 64) * 64 + place_RK % 64
    # Two tokens of one row differ in their logits by what they differ in their log-probabilities.
    first_R1 = logits_RV.log_softmax(-1)[:, :1]
    return best_RK - logits_RV[:, :1] + first_R1, token_RK
