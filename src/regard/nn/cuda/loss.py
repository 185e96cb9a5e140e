"""Label-smoothed cross-entropy and its gradient, each in one pass over the scores, or both by one program a token."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

BLOCK, WARPS = 4096, 8  # scores looked at together
BOTH, BOTH_WARPS = 4096, 8  # where they are read twice: few programs side by side, so that the second time is cheap


# Rows lie close, which the compiler is told by their being V apart: it then loads eight scores at once where V allows.
@triton.jit
def _losses(
    scores, labels, losses, totals, out,
    SMOOTHING: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    scores += row * V
    most, total, plain = -float("inf"), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for begin in range(0, V, BLOCK):
        token = begin + tl.arange(0, BLOCK)
        # What is read again at once is asked to stay at hand.
        z = tl.load(scores + token, mask=token < V, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        now = tl.maximum(most, tl.max(z, 0))
        total = total * tl.exp(most - now) + tl.exp(z - now)
        plain += tl.where(token < V, z, 0.0)
        most = now
    whole = most + tl.log(tl.sum(total, 0))
    right = tl.load(scores + tl.maximum(label, 0)).to(tl.float32)
    loss = whole - (1 - SMOOTHING) * right - SMOOTHING * tl.sum(plain, 0) / V
    tl.store(losses + row, tl.where(label >= 0, loss, 0.0))
    if WANTED:
        for begin in range(0, V, BLOCK):
            token = begin + tl.arange(0, BLOCK)
            z = tl.load(scores + token, mask=token < V, other=-float("inf"), eviction_policy="evict_first")
            d = tl.exp(z.to(tl.float32) - whole) - SMOOTHING / V - tl.where(token == label, 1 - SMOOTHING, 0.0)
            d = tl.where(label >= 0, d, 0.0).to(out.dtype.element_ty)
            tl.store(out + row * V + token, d, mask=token < V, eviction_policy="evict_first")
    else:
        tl.store(totals + row, whole)


@triton.jit
def _gradient(
    scores, labels, totals, factor, out, SMOOTHING: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label, total = tl.load(labels + row), tl.load(totals + row)
    scale = tl.where(label >= 0, tl.load(factor).to(tl.float32), 0.0)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(scores + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
    d = tl.exp(z - total) - SMOOTHING / V - tl.where(token == label, 1 - SMOOTHING, 0.0)
    tl.store(out + row * V + token, (d * scale).to(out.dtype.element_ty), mask=token < V)


@triton_op("regard::losses", mutates_args=())
def losses(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each token's loss, 0 where the label is negative, and the logarithm of its sum of exponentials."""
    tokens, vocabulary = logits_NV.shape
    losses_N, totals_N = (torch.empty(tokens, dtype=torch.float32, device=logits_NV.device) for _ in range(2))
    wrap_triton(_losses)[(tokens,)](
        logits_NV.contiguous(), labels_N, losses_N, totals_N, totals_N,
        SMOOTHING=smoothing, V=vocabulary, BLOCK=BLOCK, WANTED=False, num_warps=WARPS,
    )  # fmt: skip
    return losses_N, totals_N


@triton_op("regard::losses_and_gradient", mutates_args=())
def losses_and_gradient(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each token's loss, and the gradient of the summed losses in the precision of the scores."""
    tokens, vocabulary = logits_NV.shape
    losses_N = torch.empty(tokens, dtype=torch.float32, device=logits_NV.device)
    out_NV = torch.empty(logits_NV.shape, dtype=logits_NV.dtype, device=logits_NV.device)
    wrap_triton(_losses)[(tokens,)](
        logits_NV.contiguous(), labels_N, losses_N, labels_N, out_NV,
        SMOOTHING=smoothing, V=vocabulary, BLOCK=BOTH, WANTED=True, num_warps=BOTH_WARPS,
    )  # fmt: skip
    return losses_N, out_NV


@triton_op("regard::losses_backward", mutates_args=())
def gradient(logits_NV: Tensor, labels_N: Tensor, totals_N: Tensor, factor: Tensor, smoothing: float) -> Tensor:
    """The gradient of the summed losses times a factor, in the precision of the scores."""
    tokens, vocabulary = logits_NV.shape
    out_NV = torch.empty(logits_NV.shape, dtype=logits_NV.dtype, device=logits_NV.device)
    wrap_triton(_gradient)[(tokens, triton.cdiv(vocabulary, BLOCK))](
        logits_NV.contiguous(), labels_N, totals_N, factor, out_NV,
        SMOOTHING=smoothing, V=vocabulary, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return out_NV
