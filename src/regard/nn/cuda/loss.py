"""Label-smoothed cross-entropy and its gradient: each in one pass over the logits, or both by one program per token.

See `regard.nn.cross_entropy` for the equations.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

BLOCK, WARPS = 4096, 8  # logits that a program of `_gradient` processes
LANES, SPAN = 8, 256  # lanes of a program of `_losses`, one per warp, so that no warp waits in a loop; their width
LOG2E = tl.constexpr(1.4426950408889634)  # GPUs have an instruction for powers of 2, not of e


# One step of an online log-sum-exp. `max_z` is the largest logit of each lane so far, in units of log 2, and every
# element of `total` sums the exponentials at its own place, relative to its lane's maximum. Lanes and places are added
# up only once, after the loop.
@triton.jit
def _accumulate(z, max_z, total):
    new_max = tl.maximum(max_z, tl.max(z, 1) * LOG2E)
    return new_max, total * tl.exp2(max_z - new_max)[:, None] + tl.exp2(z * LOG2E - new_max[:, None])


# The loss of one token per program and, with GRADIENT, its gradient in a second pass over the same logits.
#   logits  (tokens, V), dense. V is a compile-time constant, so that the compiler knows the alignment of every row and
#           loads eight logits at once where V allows
#   labels  the right token, negative if the token is not predicted
#   losses, lses, d_logits   results; without GRADIENT `lses` is written, with it `d_logits`
# The eviction policies keep the logits of the first pass in the L2 cache for the second, and discard them after it.
@triton.jit
def _losses(
    logits, labels, losses, lses, d_logits,
    SMOOTHING: tl.constexpr, V: tl.constexpr, LANES: tl.constexpr, SPAN: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    logits += row * V
    place = tl.arange(0, LANES)[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    # A large negative number instead of -inf: the difference of two maxima must not be NaN.
    max_z, total = tl.full([LANES], -1e30, tl.float32), tl.zeros([LANES, SPAN], tl.float32)
    plain_sum = tl.zeros([LANES, SPAN], tl.float32)
    # Whole blocks need no mask; only the rest of the vocabulary does.
    FULL: tl.constexpr = V // (LANES * SPAN) * (LANES * SPAN)
    rest = FULL + place
    for begin in range(0, FULL, LANES * SPAN):
        z = tl.load(logits + begin + place, eviction_policy="evict_last").to(tl.float32)
        max_z, total = _accumulate(z, max_z, total)
        plain_sum += z
    if FULL < V:
        z = tl.load(logits + rest, mask=rest < V, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        max_z, total = _accumulate(z, max_z, total)
        plain_sum += tl.where(rest < V, z, 0.0)
    top = tl.max(max_z, 0)
    # The log-sum-exp to base 2.
    lse = top + tl.log2(tl.sum(tl.sum(total, 1) * tl.exp2(max_z - top), 0))
    label_z = tl.load(logits + tl.maximum(label, 0)).to(tl.float32)
    loss = lse / LOG2E - (1 - SMOOTHING) * label_z - SMOOTHING * tl.sum(tl.sum(plain_sum, 1), 0) / V
    tl.store(losses + row, tl.where(label >= 0, loss, 0.0))
    if GRADIENT:
        d_logits += row * V
        # A token that is not predicted has no gradient: exp2(z - inf) is zero, and nothing is subtracted.
        lse, uniform = tl.where(label >= 0, lse, float("inf")), tl.where(label >= 0, SMOOTHING / V, 0.0)
        for begin in range(0, FULL, LANES * SPAN):
            z = tl.load(logits + begin + place, eviction_policy="evict_first").to(tl.float32)
            d = tl.exp2(z * LOG2E - lse) - uniform
            if (label >= begin) & (label < begin + LANES * SPAN):
                d -= tl.where(begin + place == label, 1 - SMOOTHING, 0.0)
            tl.store(d_logits + begin + place, d.to(d_logits.dtype.element_ty), eviction_policy="evict_first")
        if FULL < V:
            z = tl.load(logits + rest, mask=rest < V, other=0.0, eviction_policy="evict_first").to(tl.float32)
            d = tl.exp2(z * LOG2E - lse) - uniform - tl.where(rest == label, 1 - SMOOTHING, 0.0)
            tl.store(d_logits + rest, d.to(d_logits.dtype.element_ty), mask=rest < V, eviction_policy="evict_first")
    else:
        tl.store(lses + row, lse / LOG2E)


# The gradient from stored log-sum-exps, one program per token and block of the vocabulary, times a scalar `factor`.
@triton.jit
def _gradient(
    logits, labels, lses, factor, d_logits, SMOOTHING: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label, lse = tl.load(labels + row), tl.load(lses + row)
    scale = tl.where(label >= 0, tl.load(factor).to(tl.float32), 0.0)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
    d = tl.exp(z - lse) - SMOOTHING / V - tl.where(token == label, 1 - SMOOTHING, 0.0)
    tl.store(d_logits + row * V + token, (d * scale).to(d_logits.dtype.element_ty), mask=token < V)


@triton_op("regard::losses", mutates_args=())
def losses(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each token, 0 where the label is negative, and its log-sum-exp."""
    tokens, vocabulary = logits_NV.shape
    losses_N, lses_N = (torch.empty(tokens, dtype=torch.float32, device=logits_NV.device) for _ in range(2))
    wrap_triton(_losses)[(tokens,)](
        logits_NV.contiguous(), labels_N, losses_N, lses_N, lses_N,
        SMOOTHING=smoothing, V=vocabulary, LANES=LANES, SPAN=SPAN, GRADIENT=False, num_warps=LANES,
    )  # fmt: skip
    return losses_N, lses_N


@triton_op("regard::losses_and_gradient", mutates_args=())
def losses_and_gradient(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each token, and the gradient of their sum in the precision of the logits."""
    tokens, vocabulary = logits_NV.shape
    losses_N = torch.empty(tokens, dtype=torch.float32, device=logits_NV.device)
    d_logits_NV = torch.empty(logits_NV.shape, dtype=logits_NV.dtype, device=logits_NV.device)
    wrap_triton(_losses)[(tokens,)](
        logits_NV.contiguous(), labels_N, losses_N, labels_N, d_logits_NV,
        SMOOTHING=smoothing, V=vocabulary, LANES=LANES, SPAN=SPAN, GRADIENT=True, num_warps=LANES,
    )  # fmt: skip
    return losses_N, d_logits_NV


@triton_op("regard::losses_backward", mutates_args=())
def gradient(logits_NV: Tensor, labels_N: Tensor, lses_N: Tensor, factor: Tensor, smoothing: float) -> Tensor:
    """Return the gradient of the summed losses times a scalar factor, in the precision of the logits."""
    tokens, vocabulary = logits_NV.shape
    d_logits_NV = torch.empty(logits_NV.shape, dtype=logits_NV.dtype, device=logits_NV.device)
    wrap_triton(_gradient)[(tokens, triton.cdiv(vocabulary, BLOCK))](
        logits_NV.contiguous(), labels_N, lses_N, factor, d_logits_NV,
        SMOOTHING=smoothing, V=vocabulary, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return d_logits_NV
