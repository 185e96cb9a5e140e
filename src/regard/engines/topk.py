"""The k most probable tokens of a whole vocabulary."""

from typing import no_type_check

import torch
from torch import Tensor

BLOCK = 64
"""Neighbouring tokens whose maximum is taken first. The vocabulary is padded to whole blocks."""


@no_type_check
def top_logprobs(logits_RV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k greatest log-probabilities of each row, greatest first, and their tokens; TorchScript compiles it.

    The k greatest are in the k blocks with the greatest maxima, so only those blocks are searched.
    """
    if logits_RV.dtype != torch.float64:
        logits_RV = logits_RV.to(torch.float32)
    blocks_RVK = logits_RV.view(logits_RV.shape[0], -1, 64)  # BLOCK, but TorchScript reads no global number
    if k == 1:
        block_R1 = blocks_RVK.amax(-1).argmax(1, keepdim=True)
        offset_R1 = blocks_RVK.gather(1, block_R1.unsqueeze(2).expand(-1, -1, 64)).argmax(2)
        token_R1 = block_R1 * 64 + offset_R1
        return logits_RV.log_softmax(-1).gather(1, token_R1), token_R1
    if k > blocks_RVK.shape[1]:
        best_RK, token_RK = logits_RV.topk(k)
    else:
        block_RK = blocks_RVK.amax(-1).topk(k)[1]
        inside_RVK = blocks_RVK.gather(1, block_RK.unsqueeze(2).expand(-1, -1, 64))
        best_RK, offset_RK = inside_RVK.flatten(1).topk(k)
        token_RK = block_RK.gather(1, offset_RK // 64) * 64 + offset_RK % 64
    # The log-probabilities of two tokens differ by what their logits differ, so one log-probability gives all.
    first_R1 = logits_RV.log_softmax(-1)[:, :1]
    return best_RK - logits_RV[:, :1] + first_R1, token_RK
