"""Cross-entropy with label smoothing (Szegedy et al. 2016, §7; Vaswani et al. 2017, §5.4), summed over tokens.

With scores z over V tokens, the right one y and smoothing ε, loss = log Σ exp z - (1 - ε) z_y - ε mean(z), and its
gradient is softmax(z) - (1 - ε) onehot(y) - ε / V. Half-precision scores are never copied whole to single precision.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

IGNORED = -1  # the label of a token that is not to be predicted
CHUNK = 2**20  # scores worked on at a time, so that they stay in the cache


def smoothed_cross_entropy(
    logits_NV: Float[Tensor, "N V"], labels_N: Int[Tensor, " N"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The loss summed over all tokens but the ignored ones."""
    if logits_NV.device.type == "cpu" and not torch.compiler.is_compiling():
        return _in_chunks(logits_NV, labels_N, smoothing)
    return _losses(logits_NV, labels_N, smoothing)[0].sum()


def _losses(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each token's loss, and the logarithm of its sum of exponentials."""
    z_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    total_N = z_NV.logsumexp(-1)
    right_N = z_NV.gather(1, labels_N.clamp(min=0)[:, None])[:, 0]
    losses_N = total_N - (1 - smoothing) * right_N - smoothing * z_NV.mean(-1)
    return losses_N.where(labels_N != IGNORED, 0), total_N


class _InChunks(torch.autograd.Function):
    """Some rows at a time, and the gradient written once, in the scores' own precision."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> Tensor:
        losses_N = logits_NV.new_empty(labels_N.shape, dtype=torch.promote_types(logits_NV.dtype, torch.float32))
        total_N = torch.empty_like(losses_N)
        for rows in _rows(logits_NV):
            losses_N[rows], total_N[rows] = _losses(logits_NV[rows], labels_N[rows], smoothing)
        ctx.save_for_backward(logits_NV, labels_N, total_N)
        ctx.smoothing = smoothing
        return losses_N.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits_NV, labels_N, total_N = ctx.saved_tensors
        gradient_NV = torch.empty_like(logits_NV)
        counted_N = gradients[0] * (labels_N != IGNORED)
        right_N = labels_N.clamp(min=0)
        for rows in _rows(logits_NV):
            z_NV = (logits_NV[rows].to(total_N.dtype) - total_N[rows, None]).exp_()
            z_NV.sub_(ctx.smoothing / z_NV.shape[1])
            z_NV[torch.arange(z_NV.shape[0]), right_N[rows]] -= 1 - ctx.smoothing
            gradient_NV[rows] = z_NV.mul_(counted_N[rows, None])
        return gradient_NV, None, None


def _rows(logits_NV: Tensor) -> Iterator[slice]:
    """Slices of as many rows as stay in the cache."""
    many = max(1, CHUNK // max(1, logits_NV.shape[1]))
    return (slice(begin, begin + many) for begin in range(0, logits_NV.shape[0], many))


_in_chunks: Callable[[Tensor, Tensor, float], Tensor] = _InChunks.apply
