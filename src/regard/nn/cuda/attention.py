"""Attention over the packed stream, one program for each sequence and head.

Sentences are short: queries, keys and values of one fit a tile or two, so softmax and all three gradients are made
where they are, without visiting another sequence. The online softmax is that of Milakov & Gimelshein 2018, the
gradients those of FlashAttention (Dao et al. 2022, B.2).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

LONGEST = 512  # beyond, one program for a sequence leaves most of the device idle
TILE, WARPS = 64, 4  # measured best for sentences of some thirty tokens
STAGES = 1  # most loops turn once: buffers for more would only keep other programs out
NO_WINDOW = -1


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
def _attend(
    q, k, v, out, lse, q_offsets, k_offsets, tokens,
    q_n, q_h, k_n, k_h, v_n, v_h,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    q_begin, k_begin = tl.load(q_offsets + row).to(tl.int64), tl.load(k_offsets + row).to(tl.int64)
    queries = (tl.load(q_offsets + row + 1) - q_begin).to(tl.int32)
    keys = (tl.load(k_offsets + row + 1) - k_begin).to(tl.int32)
    q, k, v = q + q_begin * q_n + head * q_h, k + k_begin * k_n + head * k_h, v + k_begin * v_n + head * v_h
    out, lse = out + (q_begin * HEADS + head) * E2, lse + head.to(tl.int64) * tokens + q_begin
    each = tl.arange(0, TILE)
    for q0 in range(0, queries, TILE):
        query = q0 + each
        q_QE = _tile(q, query, queries, q_n, E)
        most = tl.full([TILE], float("-inf"), tl.float32)
        total = tl.zeros([TILE], tl.float32)
        mixed = tl.zeros([TILE, E2], tl.float32)
        end = keys
        if CAUSAL:
            end = tl.minimum(keys, q0 + TILE)
        for k0 in range(0, end, TILE):
            key = k0 + each
            k_KE, v_KE = _tile(k, key, keys, k_n, E), _tile(v, key, keys, v_n, E2)
            score = tl.dot(q_QE, tl.trans(k_KE), input_precision=EXACT) * SCALE
            score = tl.where(_allowed(query, key, queries, keys, CAUSAL, WINDOW), score, float("-inf"))
            now = tl.maximum(most, tl.max(score, 1))
            safe = tl.where(now == float("-inf"), 0.0, now)
            weight = tl.exp(score - safe[:, None])
            shrink = tl.exp(most - safe)
            total = total * shrink + tl.sum(weight, 1)
            mixed = mixed * shrink[:, None] + tl.dot(weight.to(v_KE.dtype), v_KE, input_precision=EXACT)
            most = now
        some = total > 0
        mixed = mixed / tl.where(some, total, 1.0)[:, None]
        _put(out, query, queries, HEADS * E2, mixed, E2)
        tl.store(lse + query, tl.where(some, most + tl.log(total), 0.0), mask=query < queries)


@triton.jit
def _inner(
    q_QE, k_KE, v_KE, do_QE, lse_Q, delta_Q, seen, SCALE: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    score = tl.dot(q_QE, tl.trans(k_KE), input_precision=EXACT) * SCALE
    weight = tl.where(seen, tl.exp(score - lse_Q[:, None]), 0.0)
    d_weight = tl.dot(do_QE, tl.trans(v_KE), input_precision=EXACT)
    return weight, weight * (d_weight - delta_Q[:, None]) * SCALE


@triton.jit
def _attend_backward(
    q, k, v, out, do, lse, dq, dk, dv, q_offsets, k_offsets, tokens,
    q_n, q_h, k_n, k_h, v_n, v_h,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    q_begin, k_begin = tl.load(q_offsets + row).to(tl.int64), tl.load(k_offsets + row).to(tl.int64)
    queries = (tl.load(q_offsets + row + 1) - q_begin).to(tl.int32)
    keys = (tl.load(k_offsets + row + 1) - k_begin).to(tl.int32)
    q, k, v = q + q_begin * q_n + head * q_h, k + k_begin * k_n + head * k_h, v + k_begin * v_n + head * v_h
    out, do = out + (q_begin * HEADS + head) * E2, do + (q_begin * HEADS + head) * E2
    dq, dk = dq + (q_begin * HEADS + head) * E, dk + (k_begin * HEADS + head) * E
    dv, lse = dv + (k_begin * HEADS + head) * E2, lse + head.to(tl.int64) * tokens + q_begin
    each = tl.arange(0, TILE)
    for k0 in range(0, keys, TILE):
        key = k0 + each
        k_KE, v_KE = _tile(k, key, keys, k_n, E), _tile(v, key, keys, v_n, E2)
        dk_KE, dv_KE = tl.zeros([TILE, E], tl.float32), tl.zeros([TILE, E2], tl.float32)
        begin = 0
        if CAUSAL:
            begin = k0
        for q0 in range(begin, queries, TILE):
            query = q0 + each
            q_QE, do_QE = _tile(q, query, queries, q_n, E), _tile(do, query, queries, HEADS * E2, E2)
            out_QE = _tile(out, query, queries, HEADS * E2, E2)
            delta_Q = tl.sum(do_QE.to(tl.float32) * out_QE.to(tl.float32), 1)
            lse_Q = tl.load(lse + query, mask=query < queries, other=0.0)
            seen = _allowed(query, key, queries, keys, CAUSAL, WINDOW)
            weight, d_score = _inner(q_QE, k_KE, v_KE, do_QE, lse_Q, delta_Q, seen, SCALE, EXACT)
            dv_KE += tl.dot(tl.trans(weight.to(do_QE.dtype)), do_QE, input_precision=EXACT)
            dk_KE += tl.dot(tl.trans(d_score.to(q_QE.dtype)), q_QE, input_precision=EXACT)
            if keys <= TILE:  # the one tile of keys: nothing else adds to these queries
                _put(dq, query, queries, HEADS * E, tl.dot(d_score.to(k_KE.dtype), k_KE, input_precision=EXACT), E)
        _put(dk, key, keys, HEADS * E, dk_KE, E)
        _put(dv, key, keys, HEADS * E2, dv_KE, E2)
    if keys > TILE or keys == 0:
        for q0 in range(0, queries, TILE):
            query = q0 + each
            q_QE, do_QE = _tile(q, query, queries, q_n, E), _tile(do, query, queries, HEADS * E2, E2)
            out_QE = _tile(out, query, queries, HEADS * E2, E2)
            delta_Q = tl.sum(do_QE.to(tl.float32) * out_QE.to(tl.float32), 1)
            lse_Q = tl.load(lse + query, mask=query < queries, other=0.0)
            dq_QE = tl.zeros([TILE, E], tl.float32)
            end = keys
            if CAUSAL:
                end = tl.minimum(keys, q0 + TILE)
            for k0 in range(0, end, TILE):
                key = k0 + each
                k_KE, v_KE = _tile(k, key, keys, k_n, E), _tile(v, key, keys, v_n, E2)
                seen = _allowed(query, key, queries, keys, CAUSAL, WINDOW)
                _, d_score = _inner(q_QE, k_KE, v_KE, do_QE, lse_Q, delta_Q, seen, SCALE, EXACT)
                dq_QE += tl.dot(d_score.to(k_KE.dtype), k_KE, input_precision=EXACT)
            _put(dq, query, queries, HEADS * E, dq_QE, E)


@triton_op("regard::ragged_attention", mutates_args=())
def ragged_attention(
    q_NHE: Tensor,
    k_NHE: Tensor,
    v_NHE: Tensor,
    q_offsets: Tensor,
    k_offsets: Tensor,
    scale: float,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor]:
    """The mixed values of each query, and the logarithm of its sum of exponentials."""
    tokens, heads, _ = q_NHE.shape
    out_NHE = torch.empty(tokens, heads, v_NHE.shape[2], dtype=v_NHE.dtype, device=v_NHE.device)
    lse_HN = torch.empty(heads, tokens, dtype=torch.float32, device=q_NHE.device)
    grid = (q_offsets.shape[0] - 1, heads)
    wrap_triton(_attend)[grid](
        q_NHE, k_NHE, v_NHE, out_NHE, lse_HN, q_offsets, k_offsets, tokens,
        q_NHE.stride(0), q_NHE.stride(1), k_NHE.stride(0), k_NHE.stride(1), v_NHE.stride(0), v_NHE.stride(1),
        SCALE=scale, HEADS=heads, E=q_NHE.shape[2], E2=v_NHE.shape[2], CAUSAL=causal, WINDOW=window, TILE=TILE,
        EXACT=_exact(q_NHE), num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out_NHE, lse_HN


@triton_op("regard::ragged_attention_backward", mutates_args=())
def _gradients(
    do_NHE: Tensor,
    q_NHE: Tensor,
    k_NHE: Tensor,
    v_NHE: Tensor,
    out_NHE: Tensor,
    lse_HN: Tensor,
    q_offsets: Tensor,
    k_offsets: Tensor,
    scale: float,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, heads, _ = q_NHE.shape
    dq, dk, dv = (torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in (q_NHE, k_NHE, v_NHE))
    grid = (q_offsets.shape[0] - 1, heads)
    wrap_triton(_attend_backward)[grid](
        q_NHE, k_NHE, v_NHE, out_NHE, do_NHE, lse_HN, dq, dk, dv, q_offsets, k_offsets, tokens,
        q_NHE.stride(0), q_NHE.stride(1), k_NHE.stride(0), k_NHE.stride(1), v_NHE.stride(0), v_NHE.stride(1),
        SCALE=scale, HEADS=heads, E=q_NHE.shape[2], E2=v_NHE.shape[2], CAUSAL=causal, WINDOW=window, TILE=TILE,
        EXACT=_exact(q_NHE), num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return dq, dk, dv


def _exact(x: Tensor) -> str:
    """Single precision is not rounded to tf32 on the way."""
    return "ieee" if x.dtype == torch.float32 else "tf32"


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.scale, ctx.causal, ctx.window = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])


def _backward_of(ctx, d_out_NHE, _d_lse):
    q, k, v, q_offsets, k_offsets, out, lse = ctx.saved_tensors
    args = (out, lse, q_offsets, k_offsets, ctx.scale, ctx.causal, ctx.window)
    return (*_gradients(d_out_NHE.contiguous(), q, k, v, *args), None, None, None, None, None)


ragged_attention.register_autograd(_backward_of, setup_context=_save)
