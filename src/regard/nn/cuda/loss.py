"""Label-smoothed cross-entropy and its gradient, each in one pass over the scores."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

BLOCK, WARPS = 4096, 8


@triton.jit
def _losses(
    scores, labels, losses, totals, row_stride, SMOOTHING: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    most, total, plain = -float("inf"), 0.0, 0.0
    for begin in range(0, V, BLOCK):
        token = begin + tl.arange(0, BLOCK)
        z = tl.load(scores + row * row_stride + token, mask=token < V, other=-float("inf")).to(tl.float32)
        now = tl.maximum(most, tl.max(z, 0))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(z - now), 0)
        plain += tl.sum(tl.where(token < V, z, 0.0), 0)
        most = now
    total = most + tl.log(total)
    right = tl.load(scores + row * row_stride + tl.maximum(label, 0)).to(tl.float32)
    loss = total - (1 - SMOOTHING) * right - SMOOTHING * plain / V
    tl.store(losses + row, tl.where(label >= 0, loss, 0.0))
    tl.store(totals + row, total)


@triton.jit
def _gradient(
    scores, labels, totals, factor, out, row_stride, SMOOTHING: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label, total = tl.load(labels + row), tl.load(totals + row)
    scale = tl.where(label >= 0, tl.load(factor).to(tl.float32), 0.0)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(scores + row * row_stride + token, mask=token < V, other=-float("inf")).to(tl.float32)
    d = tl.exp(z - total) - SMOOTHING / V - tl.where(token == label, 1 - SMOOTHING, 0.0)
    tl.store(out + row * V + token, (d * scale).to(out.dtype.element_ty), mask=token < V)


@triton_op("regard::losses", mutates_args=())
def losses(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each token's loss, 0 where the label is negative, and the logarithm of its sum of exponentials."""
    tokens, vocabulary = logits_NV.shape
    losses_N, totals_N = (torch.empty(tokens, dtype=torch.float32, device=logits_NV.device) for _ in range(2))
    wrap_triton(_losses)[(tokens,)](
        logits_NV, labels_N, losses_N, totals_N, logits_NV.stride(0),
        SMOOTHING=smoothing, V=vocabulary, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return losses_N, totals_N


@triton_op("regard::losses_backward", mutates_args=())
def gradient(logits_NV: Tensor, labels_N: Tensor, totals_N: Tensor, factor: Tensor, smoothing: float) -> Tensor:
    """The gradient of the summed losses times a factor, in the precision of the scores."""
    tokens, vocabulary = logits_NV.shape
    out_NV = torch.empty(logits_NV.shape, dtype=logits_NV.dtype, device=logits_NV.device)
    wrap_triton(_gradient)[(tokens, triton.cdiv(vocabulary, BLOCK))](
        logits_NV, labels_N, totals_N, factor, out_NV, logits_NV.stride(0),
        SMOOTHING=smoothing, V=vocabulary, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return out_NV
