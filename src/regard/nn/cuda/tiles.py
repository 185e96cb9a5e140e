"""What the kernels of attention share: tiles of a sequence's queries, keys and values, and who may look where."""

import triton
import triton.language as tl


@triton.jit
def _allowed(query, key, queries, keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    seen = (query[:, None] < queries) & (key[None, :] < keys)
    if CAUSAL:
        seen = seen & (key[None, :] <= query[:, None])
    if WINDOW >= 0:
        seen = seen & (key[None, :] - query[:, None] <= WINDOW) & (query[:, None] - key[None, :] <= WINDOW)
    return seen


@triton.jit
def _tile(base, index, count, stride, SIZE: tl.constexpr):
    return tl.load(base + index[:, None] * stride + tl.arange(0, SIZE)[None, :], mask=index[:, None] < count, other=0.0)


@triton.jit
def _put(base, index, count, stride, value, SIZE: tl.constexpr):
    where = base + index[:, None] * stride + tl.arange(0, SIZE)[None, :]
    tl.store(where, value.to(base.dtype.element_ty), mask=index[:, None] < count)


@triton.jit
def _fold(score, v_KE, most, total, mixed, EXACT: tl.constexpr):
    # The online softmax of Milakov & Gimelshein 2018: what was mixed so far shrinks when a larger score comes.
    now = tl.maximum(most, tl.max(score, 1))
    safe = tl.where(now == float("-inf"), 0.0, now)
    weight = tl.exp(score - safe[:, None])
    shrink = tl.exp(most - safe)
    total = total * shrink + tl.sum(weight, 1)
    mixed = mixed * shrink[:, None] + tl.dot(weight.to(v_KE.dtype), v_KE, input_precision=EXACT)
    return now, total, mixed
