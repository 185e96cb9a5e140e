"""Device functions shared by the attention kernels: tiles of queries, keys and values, the mask, the online softmax.

A tile is a matrix of `TILE` tokens by the size of a head, held in registers and shared memory.
"""

import triton
import triton.language as tl


# The mask of a tile of scores: pairs beyond the end of the sequence are padding.
# A negative WINDOW stands for no window.
@triton.jit
def _allowed(query, key, queries, keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    allowed = (query[:, None] < queries) & (key[None, :] < keys)
    if CAUSAL:
        allowed = allowed & (key[None, :] <= query[:, None])
    if WINDOW >= 0:
        allowed = allowed & (key[None, :] - query[:, None] <= WINDOW) & (query[:, None] - key[None, :] <= WINDOW)
    return allowed


# Load the rows `index` of a matrix at `base` with `stride` values between rows; rows from `count` on are zero.
@triton.jit
def _load_tile(base, index, count, stride, SIZE: tl.constexpr):
    return tl.load(base + index[:, None] * stride + tl.arange(0, SIZE)[None, :], mask=index[:, None] < count, other=0.0)


# Store a tile in the dtype of its destination; rows from `count` on are not written.
@triton.jit
def _store_tile(base, index, count, stride, value, SIZE: tl.constexpr):
    where = base + index[:, None] * stride + tl.arange(0, SIZE)[None, :]
    tl.store(where, value.to(base.dtype.element_ty), mask=index[:, None] < count)


# One step of the online softmax (Milakov & Gimelshein 2018). Keys come tile by tile, and the maximum of all scores is
# known only at the end. So the sum of exponentials and the weighted values so far are relative to the maximum so far,
# and are scaled down whenever a tile brings a larger one. After the last tile, `mixed / total` is the result and
# `max_score + log(total)` the log-sum-exp.
@triton.jit
def _online_softmax_step(score, v_KE, max_score, total, mixed, PRECISION: tl.constexpr):
    new_max = tl.maximum(max_score, tl.max(score, 1))
    # A row without an allowed key so far has the maximum -inf, and -inf - -inf would be NaN.
    safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
    weight = tl.exp(score - safe_max[:, None])
    shrink = tl.exp(max_score - safe_max)
    total = total * shrink + tl.sum(weight, 1)
    mixed = mixed * shrink[:, None] + tl.dot(weight.to(v_KE.dtype), v_KE, input_precision=PRECISION)
    return new_max, total, mixed
