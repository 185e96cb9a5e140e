"""Attention of sequences that fit one tile, one program for a sequence and head at a time.

All scores of a head are at hand, so nothing but the values mixed is kept for the way back, where the softmax is made
again (after FlashAttention, Dao et al. 2022, B.2, whose loops turn once here).
"""

import triton
import triton.language as tl

from regard.nn.cuda.tiles import _allowed, _put, _tile


@triton.jit
def _softmax(q_QE, k_KE, seen, SCALE: tl.constexpr, EXACT: tl.constexpr):
    # Devices raise 2, not e, to a power: the scores are multiplied by log2(e) at once.
    score = tl.dot(q_QE, tl.trans(k_KE), input_precision=EXACT) * (SCALE * 1.4426950408889634)
    score = tl.where(seen, score, float("-inf"))
    most = tl.max(score, 1)
    weight = tl.exp2(score - tl.where(most == float("-inf"), 0.0, most)[:, None])
    total = tl.sum(weight, 1)
    return weight * (1 / tl.where(total > 0, total, 1.0))[:, None]


# What is the same for every sequence is computed again for each: kept, it would take the registers of other programs.
@triton.jit
def _attend_whole(
    q, k, v, out, q_offsets, k_offsets, order, ends, q_n, k_n, v_n,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, CLASS: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    head, each = tl.program_id(0), tl.arange(0, TILE)
    if TENSORS == 1:
        k = q + HEADS * E
    if TENSORS < 3:
        v = k + HEADS * E
    begin, end = tl.load(ends + CLASS) + tl.program_id(1), tl.load(ends + CLASS + 1)
    for number in tl.range(begin, end, tl.num_programs(1), disable_licm=True):
        row = tl.load(order + number)
        q_begin, k_begin = tl.load(q_offsets + row).to(tl.int64), tl.load(k_offsets + row).to(tl.int64)
        queries = (tl.load(q_offsets + row + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + row + 1) - k_begin).to(tl.int32)
        q_QE = _tile(q + q_begin * q_n + head * E, each, queries, q_n, E)
        k_KE = _tile(k + k_begin * k_n + head * E, each, keys, k_n, E)
        v_KE = _tile(v + k_begin * v_n + head * E2, each, keys, v_n, E2)
        weight = _softmax(q_QE, k_KE, _allowed(each, each, queries, keys, CAUSAL, WINDOW), SCALE, EXACT)
        mixed = tl.dot(weight.to(v_KE.dtype), v_KE, input_precision=EXACT)
        _put(out + (q_begin * HEADS + head) * E2, each, queries, HEADS * E2, mixed, E2)


@triton.jit
def _attend_whole_backward(
    q, k, v, do, dq, dk, dv, q_offsets, k_offsets, order, ends, q_n, k_n, v_n,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, CLASS: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    head, each = tl.program_id(0), tl.arange(0, TILE)
    if TENSORS == 1:
        k, dk = q + HEADS * E, dq + HEADS * E
    if TENSORS < 3:
        v, dv = k + HEADS * E, dk + HEADS * E
    begin, end = tl.load(ends + CLASS) + tl.program_id(1), tl.load(ends + CLASS + 1)
    for number in tl.range(begin, end, tl.num_programs(1), disable_licm=True):
        row = tl.load(order + number)
        q_begin, k_begin = tl.load(q_offsets + row).to(tl.int64), tl.load(k_offsets + row).to(tl.int64)
        queries = (tl.load(q_offsets + row + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + row + 1) - k_begin).to(tl.int32)
        q_QE = _tile(q + q_begin * q_n + head * E, each, queries, q_n, E)
        k_KE = _tile(k + k_begin * k_n + head * E, each, keys, k_n, E)
        v_KE = _tile(v + k_begin * v_n + head * E2, each, keys, v_n, E2)
        do_QE = _tile(do + (q_begin * HEADS + head) * E2, each, queries, HEADS * E2, E2)
        weight = _softmax(q_QE, k_KE, _allowed(each, each, queries, keys, CAUSAL, WINDOW), SCALE, EXACT)
        d_weight = tl.dot(do_QE, tl.trans(v_KE), input_precision=EXACT)
        dv_KE = tl.dot(tl.trans(weight.to(do_QE.dtype)), do_QE, input_precision=EXACT)
        _put(dv + k_begin * v_n + head * E2, each, keys, v_n, dv_KE, E2)
        d_score = weight * (d_weight - tl.sum(weight * d_weight, 1)[:, None]) * SCALE
        d_score = d_score.to(q_QE.dtype)
        dk_KE = tl.dot(tl.trans(d_score), q_QE, input_precision=EXACT)
        _put(dk + k_begin * k_n + head * E, each, keys, k_n, dk_KE, E)
        dq_QE = tl.dot(d_score, k_KE, input_precision=EXACT)
        _put(dq + q_begin * q_n + head * E, each, queries, q_n, dq_QE, E)
