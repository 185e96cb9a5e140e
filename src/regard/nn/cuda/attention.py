"""Attention over the packed stream, which never visits another sequence.

Sentences are short. Those that fit a tile are taken whole (`whole`); longer ones are walked through here, a program for
each tile of their queries, and on the way back for each tile of their queries and of their keys. The online softmax
is that of Milakov & Gimelshein 2018, the gradients those of FlashAttention (Dao et al. 2022, B.2).
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from regard.nn.cuda.tiles import _allowed, _fold, _put, _tile
from regard.nn.cuda.turns import WALK, Programs, classes
from regard.nn.cuda.whole import _attend_whole, _attend_whole_backward

STAGES = 1  # most loops turn once: buffers for more would only keep other programs out
NO_WINDOW = -1


@triton.jit
def _attend(
    q, k, v, out, lse, q_offsets, k_offsets, order, ends, tokens, tiles, q_n, k_n, v_n,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    if TENSORS == 1:
        k = q + HEADS * E
    if TENSORS < 3:
        v = k + HEADS * E
    for item in tl.range(tl.program_id(1), tl.load(ends + 1) * tiles, tl.num_programs(1), disable_licm=True):
        row, q0 = tl.load(order + item // tiles), item % tiles * TILE
        q_begin, k_begin = tl.load(q_offsets + row).to(tl.int64), tl.load(k_offsets + row).to(tl.int64)
        queries = (tl.load(q_offsets + row + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + row + 1) - k_begin).to(tl.int32)
        if q0 < queries:
            query = q0 + tl.arange(0, TILE)
            q_QE = _tile(q + q_begin * q_n + head * E, query, queries, q_n, E)
            most = tl.full([TILE], float("-inf"), tl.float32)
            total, mixed = tl.zeros([TILE], tl.float32), tl.zeros([TILE, E2], tl.float32)
            end = keys
            if CAUSAL:
                end = tl.minimum(keys, q0 + TILE)
            for k0 in range(0, end, TILE):
                key = k0 + tl.arange(0, TILE)
                k_KE = _tile(k + k_begin * k_n + head * E, key, keys, k_n, E)
                v_KE = _tile(v + k_begin * v_n + head * E2, key, keys, v_n, E2)
                score = tl.dot(q_QE, tl.trans(k_KE), input_precision=EXACT) * SCALE
                score = tl.where(_allowed(query, key, queries, keys, CAUSAL, WINDOW), score, float("-inf"))
                most, total, mixed = _fold(score, v_KE, most, total, mixed, EXACT)
            some = total > 0
            mixed = mixed / tl.where(some, total, 1.0)[:, None]
            _put(out + (q_begin * HEADS + head) * E2, query, queries, HEADS * E2, mixed, E2)
            at = lse + head.to(tl.int64) * tokens + q_begin + query
            tl.store(at, tl.where(some, most + tl.log(total), 0.0), mask=query < queries)


@triton.jit
def _inner(
    q_QE, k_KE, v_KE, do_QE, out_QE, lse_Q, seen, SCALE: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    score = tl.dot(q_QE, tl.trans(k_KE), input_precision=EXACT) * SCALE
    weight = tl.where(seen, tl.exp(score - lse_Q[:, None]), 0.0)
    d_weight = tl.dot(do_QE, tl.trans(v_KE), input_precision=EXACT)
    delta_Q = tl.sum(do_QE.to(tl.float32) * out_QE.to(tl.float32), 1)
    return weight, weight * (d_weight - delta_Q[:, None]) * SCALE


@triton.jit
def _to_keys(
    q, k, v, out, do, lse, dk, dv, k0, queries, keys, q_n, k_n, v_n, o_n,
    SCALE: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    key = k0 + tl.arange(0, TILE)
    k_KE, v_KE = _tile(k, key, keys, k_n, E), _tile(v, key, keys, v_n, E2)
    dk_KE, dv_KE = tl.zeros([TILE, E], tl.float32), tl.zeros([TILE, E2], tl.float32)
    begin = 0
    if CAUSAL:
        begin = k0
    for q0 in range(begin, queries, TILE):
        query = q0 + tl.arange(0, TILE)
        q_QE, do_QE = _tile(q, query, queries, q_n, E), _tile(do, query, queries, o_n, E2)
        out_QE, lse_Q = _tile(out, query, queries, o_n, E2), tl.load(lse + query, mask=query < queries, other=0.0)
        seen = _allowed(query, key, queries, keys, CAUSAL, WINDOW)
        weight, d_score = _inner(q_QE, k_KE, v_KE, do_QE, out_QE, lse_Q, seen, SCALE, EXACT)
        dv_KE += tl.dot(tl.trans(weight.to(do_QE.dtype)), do_QE, input_precision=EXACT)
        dk_KE += tl.dot(tl.trans(d_score.to(q_QE.dtype)), q_QE, input_precision=EXACT)
    _put(dk, key, keys, k_n, dk_KE, E)
    _put(dv, key, keys, v_n, dv_KE, E2)


@triton.jit
def _to_queries(
    q, k, v, out, do, lse, dq, q0, queries, keys, q_n, k_n, v_n, o_n,
    SCALE: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    query = q0 + tl.arange(0, TILE)
    q_QE, do_QE = _tile(q, query, queries, q_n, E), _tile(do, query, queries, o_n, E2)
    out_QE, lse_Q = _tile(out, query, queries, o_n, E2), tl.load(lse + query, mask=query < queries, other=0.0)
    dq_QE = tl.zeros([TILE, E], tl.float32)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, q0 + TILE)
    for k0 in range(0, end, TILE):
        key = k0 + tl.arange(0, TILE)
        k_KE, v_KE = _tile(k, key, keys, k_n, E), _tile(v, key, keys, v_n, E2)
        seen = _allowed(query, key, queries, keys, CAUSAL, WINDOW)
        _, d_score = _inner(q_QE, k_KE, v_KE, do_QE, out_QE, lse_Q, seen, SCALE, EXACT)
        dq_QE += tl.dot(d_score.to(k_KE.dtype), k_KE, input_precision=EXACT)
    _put(dq, query, queries, q_n, dq_QE, E)


@triton.jit
def _attend_backward(
    q, k, v, out, do, lse, dq, dk, dv, q_offsets, k_offsets, order, ends, tokens, tiles, q_n, k_n, v_n,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    head, o_n = tl.program_id(0), HEADS * E2
    if TENSORS == 1:
        k, dk = q + HEADS * E, dq + HEADS * E
    if TENSORS < 3:
        v, dv = k + HEADS * E, dk + HEADS * E
    for item in tl.range(tl.program_id(1), tl.load(ends + 1) * tiles * 2, tl.num_programs(1), disable_licm=True):
        row, part, at = tl.load(order + item // (2 * tiles)), item // tiles % 2, item % tiles * TILE
        q_begin, k_begin = tl.load(q_offsets + row).to(tl.int64), tl.load(k_offsets + row).to(tl.int64)
        queries = (tl.load(q_offsets + row + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + row + 1) - k_begin).to(tl.int32)
        to_q, to_k, to_v = q_begin * q_n + head * E, k_begin * k_n + head * E, k_begin * v_n + head * E2
        to_o, to_lse = q_begin * o_n + head * E2, head.to(tl.int64) * tokens + q_begin
        if (part == 0) & (at < keys):
            _to_keys(
                q + to_q, k + to_k, v + to_v, out + to_o, do + to_o, lse + to_lse, dk + to_k, dv + to_v,
                at, queries, keys, q_n, k_n, v_n, o_n, SCALE, E, E2, CAUSAL, WINDOW, TILE, EXACT,
            )  # fmt: skip
        if (part == 1) & (at < queries):
            _to_queries(
                q + to_q, k + to_k, v + to_v, out + to_o, do + to_o, lse + to_lse, dq + to_q,
                at, queries, keys, q_n, k_n, v_n, o_n, SCALE, E, E2, CAUSAL, WINDOW, TILE, EXACT,
            )  # fmt: skip


@triton_op("regard::ragged_attention", mutates_args=())
def ragged_attention(
    tensors: Sequence[Tensor],
    q_offsets: Tensor,
    k_offsets: Tensor,
    order_B: Tensor,
    ends: Tensor,
    longest: int,
    sizes: Sequence[int],
    scale: float,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor]:
    """The mixed values of each query, and of those walked to the logarithm of the sum of exponentials.

    `tensors` are the queries, keys and values of all heads, (N, F) and dense: side by side in one tensor, or queries in
    one and the rest in another, or each in its own; gradients come back the same way. `sizes` are the number of
    heads, and how many numbers a head's keys and values have; see `Turns` for the order of sequences.
    """
    tokens, (heads, _, value_size) = tensors[0].shape[0], sizes
    out_NHE = torch.empty(tokens, heads, value_size, dtype=tensors[-1].dtype, device=tensors[-1].device)
    lse_HN = torch.empty(heads, tokens, dtype=torch.float32, device=out_NHE.device)
    told = _told(tensors, sizes, scale, causal, window)
    given, where = _three(tensors), (q_offsets, k_offsets, order_B, ends)
    strides = [each.stride(0) for each in given]
    for number, programs in classes(longest):
        grid, shape = (heads, programs.many), _shape(programs)
        if number == 0:
            tiles = triton.cdiv(longest, WALK.tile)
            wrap_triton(_attend)[grid](*given, out_NHE, lse_HN, *where, tokens, tiles, *strides, **told, **shape)
        else:
            wrap_triton(_attend_whole)[grid](*given, out_NHE, *where, *strides, CLASS=number, **told, **shape)
    return out_NHE, lse_HN


@triton_op("regard::ragged_attention_backward", mutates_args=())
def _gradients(
    do_NHE: Tensor,
    out_NHE: Tensor,
    lse_HN: Tensor,
    tensors: Sequence[Tensor],
    q_offsets: Tensor,
    k_offsets: Tensor,
    order_B: Tensor,
    ends: Tensor,
    longest: int,
    sizes: Sequence[int],
    scale: float,
    causal: bool,
    window: int,
) -> list[Tensor]:
    tokens, heads = tensors[0].shape[0], sizes[0]
    told = _told(tensors, sizes, scale, causal, window)
    given, where = _three(tensors), (q_offsets, k_offsets, order_B, ends)
    strides, gradients = [each.stride(0) for each in given], [torch.empty_like(each) for each in tensors]
    # A gradient without a tensor of its own lies behind the one before it; what stands in its place is not touched.
    into = [*gradients, *given[len(gradients) :]]
    for number, programs in classes(longest):
        grid, shape = (heads, programs.many), _shape(programs)
        if number == 0:
            tiles = triton.cdiv(longest, WALK.tile)
            wrap_triton(_attend_backward)[grid](
                *given, out_NHE, do_NHE, lse_HN, *into, *where, tokens, tiles, *strides, **told, **shape
            )
        else:
            wrap_triton(_attend_whole_backward)[grid](
                *given, do_NHE, *into, *where, *strides, CLASS=number, **told, **shape
            )
    return gradients


def _three(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that hold queries, keys and values, one for each."""
    return [tensors[0], tensors[min(1, len(tensors) - 1)], tensors[-1]]


def _told(
    tensors: Sequence[Tensor], sizes: Sequence[int], scale: float, causal: bool, window: int
) -> dict[str, Any]:  # fmt: skip
    """What every kernel is compiled for; single precision is not rounded to tf32 on the way."""
    return {
        "SCALE": scale, "HEADS": sizes[0], "E": sizes[1], "E2": sizes[2], "CAUSAL": causal, "WINDOW": window,
        "TENSORS": len(tensors), "EXACT": _exact(tensors[0]),
    }  # fmt: skip


def _shape(programs: Programs) -> dict[str, int]:
    """How a kernel is cut."""
    return {"TILE": programs.tile, "num_warps": programs.warps, "num_stages": STAGES}


def _exact(x: Tensor) -> str:
    return "ieee" if x.dtype == torch.float32 else "tf32"


def _save(ctx, inputs, output) -> None:
    tensors, *where, ctx.longest, ctx.sizes, ctx.scale, ctx.causal, ctx.window = inputs
    ctx.save_for_backward(*tensors, *where, *output)
    ctx.mark_non_differentiable(output[1])


def _backward_of(ctx, d_out_NHE, _d_lse):
    *tensors, q_offsets, k_offsets, order, ends, out, lse = ctx.saved_tensors
    told = (q_offsets, k_offsets, order, ends, ctx.longest, ctx.sizes, ctx.scale, ctx.causal, ctx.window)
    return _gradients(d_out_NHE.contiguous(), out, lse, tensors, *told), *[None] * 9


ragged_attention.register_autograd(_backward_of, setup_context=_save)
