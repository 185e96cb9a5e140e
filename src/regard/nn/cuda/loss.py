"""Label-smoothed cross-entropy and its gradient, each in one pass over the scores, or both by one program a token."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

BLOCK, WARPS = 4096, 8  # scores looked at together
LANES, WIDE = 8, 256  # in a token's own program: a lane for each warp, so that no warp waits for another in between
LOG2E = tl.constexpr(1.4426950408889634)  # the device raises 2 to a power, not e


@triton.jit
def _counted(z, most, total):
    # The sum of exponentials that each number of a lane has seen, as multiples of 2 to the highest score of the lane.
    now = tl.maximum(most, tl.max(z, 1) * LOG2E)
    return now, total * tl.exp2(most - now)[:, None] + tl.exp2(z * LOG2E - now[:, None])


# Rows lie close, which the compiler is told by their being V apart: it then loads eight scores at once where V allows.
# Scores that are read again at once are asked to stay at hand.
@triton.jit
def _losses(
    scores, labels, losses, totals, out,
    SMOOTHING: tl.constexpr, V: tl.constexpr, LANES: tl.constexpr, WIDE: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    scores += row * V
    place = tl.arange(0, LANES)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    most, total = tl.full([LANES], -1e30, tl.float32), tl.zeros([LANES, WIDE], tl.float32)
    plain = tl.zeros([LANES, WIDE], tl.float32)
    FULL: tl.constexpr = V // (LANES * WIDE) * (LANES * WIDE)
    rest = FULL + place
    for begin in range(0, FULL, LANES * WIDE):
        z = tl.load(scores + begin + place, eviction_policy="evict_last").to(tl.float32)
        most, total = _counted(z, most, total)
        plain += z
    if FULL < V:
        z = tl.load(scores + rest, mask=rest < V, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        most, total = _counted(z, most, total)
        plain += tl.where(rest < V, z, 0.0)
    top = tl.max(most, 0)
    whole = top + tl.log2(tl.sum(tl.sum(total, 1) * tl.exp2(most - top), 0))
    right = tl.load(scores + tl.maximum(label, 0)).to(tl.float32)
    loss = whole / LOG2E - (1 - SMOOTHING) * right - SMOOTHING * tl.sum(tl.sum(plain, 1), 0) / V
    tl.store(losses + row, tl.where(label >= 0, loss, 0.0))
    if WANTED:
        out += row * V
        # A token that is not to be predicted has no gradient.
        whole, less = tl.where(label >= 0, whole, float("inf")), tl.where(label >= 0, SMOOTHING / V, 0.0)
        for begin in range(0, FULL, LANES * WIDE):
            z = tl.load(scores + begin + place, eviction_policy="evict_first").to(tl.float32)
            d = tl.exp2(z * LOG2E - whole) - less
            if (label >= begin) & (label < begin + LANES * WIDE):
                d -= tl.where(begin + place == label, 1 - SMOOTHING, 0.0)
            tl.store(out + begin + place, d.to(out.dtype.element_ty), eviction_policy="evict_first")
        if FULL < V:
            z = tl.load(scores + rest, mask=rest < V, other=0.0, eviction_policy="evict_first").to(tl.float32)
            d = tl.exp2(z * LOG2E - whole) - less - tl.where(rest == label, 1 - SMOOTHING, 0.0)
            tl.store(out + rest, d.to(out.dtype.element_ty), mask=rest < V, eviction_policy="evict_first")
    else:
        tl.store(totals + row, whole / LOG2E)


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
        SMOOTHING=smoothing, V=vocabulary, LANES=LANES, WIDE=WIDE, WANTED=False, num_warps=LANES,
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
        SMOOTHING=smoothing, V=vocabulary, LANES=LANES, WIDE=WIDE, WANTED=True, num_warps=LANES,
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
