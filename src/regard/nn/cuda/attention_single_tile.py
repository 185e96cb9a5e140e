"""Attention for sequences that fit into one tile: a program handles one sequence and head at a time.

All scores of a head are in registers at once. The backward pass therefore needs neither the output nor the log-sum-exp:
it recomputes the softmax from queries and keys (FlashAttention, Dao et al. 2022, B.2, whose loops run once here).
"""

import triton
import triton.language as tl

from regard.nn.cuda.tile_ops import _allowed, _load_tile, _store_tile


# The attention weights of a tile; rows without an allowed key are zero.
@triton.jit
def _softmax(q_QE, k_KE, allowed, SCALE: tl.constexpr, PRECISION: tl.constexpr):
    # GPUs have an instruction for powers of 2, not of e: exp(x) = 2^(x log2(e)), and the factor joins the scale.
    score = tl.dot(q_QE, tl.trans(k_KE), input_precision=PRECISION) * (SCALE * 1.4426950408889634)
    score = tl.where(allowed, score, float("-inf"))
    max_score = tl.max(score, 1)
    weight = tl.exp2(score - tl.where(max_score == float("-inf"), 0.0, max_score)[:, None])
    total = tl.sum(weight, 1)
    return weight * (1 / tl.where(total > 0, total, 1.0))[:, None]


# Arguments of the kernels here and in `attention`:
#   q, k, v        pointers to queries, keys and values, (tokens, heads * size), rows q_stride, k_stride, v_stride apart
#   TENSORS        3: three tensors; 2: k and v side by side in one; 1: all side by side. Then k and v are computed here
#   out            the result, (queries, heads, E2), dense
#   d_out, dq, ... gradients, laid out like what they are gradients of
#   q_offsets, k_offsets    first token of each sequence
#   order, bounds  the sequences sorted by length and where each class begins (see `LengthClasses`)
#   E, E2          size of a head's keys and of its values
#   PRECISION      how `tl.dot` multiplies float32: "ieee" or "tf32"
# The grid is (heads, programs). Program i takes sequences i, i + programs, ... of its class, so that the grid does not
# depend on the batch and the host need not know the lengths.
# `disable_licm` keeps the compiler from hoisting what is the same for every sequence out of the loop: hoisted values
# occupy registers, and more registers per program mean fewer programs at a time.
@triton.jit
def _attend_single_tile(
    q, k, v, out, q_offsets, k_offsets, order, bounds, q_stride, k_stride, v_stride,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, CLASS: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head, token = tl.program_id(0), tl.arange(0, TILE)
    if TENSORS == 1:
        k = q + HEADS * E
    if TENSORS < 3:
        v = k + HEADS * E
    begin, end = tl.load(bounds + CLASS) + tl.program_id(1), tl.load(bounds + CLASS + 1)
    for item in tl.range(begin, end, tl.num_programs(1), disable_licm=True):
        sequence = tl.load(order + item)
        q_begin, k_begin = tl.load(q_offsets + sequence).to(tl.int64), tl.load(k_offsets + sequence).to(tl.int64)
        queries = (tl.load(q_offsets + sequence + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + sequence + 1) - k_begin).to(tl.int32)
        q_QE = _load_tile(q + q_begin * q_stride + head * E, token, queries, q_stride, E)
        k_KE = _load_tile(k + k_begin * k_stride + head * E, token, keys, k_stride, E)
        v_KE = _load_tile(v + k_begin * v_stride + head * E2, token, keys, v_stride, E2)
        weight = _softmax(q_QE, k_KE, _allowed(token, token, queries, keys, CAUSAL, WINDOW), SCALE, PRECISION)
        mixed = tl.dot(weight.to(v_KE.dtype), v_KE, input_precision=PRECISION)
        _store_tile(out + (q_begin * HEADS + head) * E2, token, queries, HEADS * E2, mixed, E2)


# With P the weights and dO the gradient of the output O = P V (Dao et al. 2022, B.2):
#   dV = P^T dO;  dP = dO V^T;  dS = P * (dP - rowsum(P * dP));  dQ = dS K * scale;  dK = dS^T Q * scale
@triton.jit
def _attend_single_tile_backward(
    q, k, v, d_out, dq, dk, dv, q_offsets, k_offsets, order, bounds, q_stride, k_stride, v_stride,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, CLASS: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head, token = tl.program_id(0), tl.arange(0, TILE)
    if TENSORS == 1:
        k, dk = q + HEADS * E, dq + HEADS * E
    if TENSORS < 3:
        v, dv = k + HEADS * E, dk + HEADS * E
    begin, end = tl.load(bounds + CLASS) + tl.program_id(1), tl.load(bounds + CLASS + 1)
    for item in tl.range(begin, end, tl.num_programs(1), disable_licm=True):
        sequence = tl.load(order + item)
        q_begin, k_begin = tl.load(q_offsets + sequence).to(tl.int64), tl.load(k_offsets + sequence).to(tl.int64)
        queries = (tl.load(q_offsets + sequence + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + sequence + 1) - k_begin).to(tl.int32)
        q_QE = _load_tile(q + q_begin * q_stride + head * E, token, queries, q_stride, E)
        k_KE = _load_tile(k + k_begin * k_stride + head * E, token, keys, k_stride, E)
        v_KE = _load_tile(v + k_begin * v_stride + head * E2, token, keys, v_stride, E2)
        d_out_QE = _load_tile(d_out + (q_begin * HEADS + head) * E2, token, queries, HEADS * E2, E2)
        weight = _softmax(q_QE, k_KE, _allowed(token, token, queries, keys, CAUSAL, WINDOW), SCALE, PRECISION)
        d_weight = tl.dot(d_out_QE, tl.trans(v_KE), input_precision=PRECISION)
        dv_KE = tl.dot(tl.trans(weight.to(d_out_QE.dtype)), d_out_QE, input_precision=PRECISION)
        # Each gradient is stored as soon as it is known, which frees its registers.
        _store_tile(dv + k_begin * v_stride + head * E2, token, keys, v_stride, dv_KE, E2)
        d_score = weight * (d_weight - tl.sum(weight * d_weight, 1)[:, None]) * SCALE
        d_score = d_score.to(q_QE.dtype)
        dk_KE = tl.dot(tl.trans(d_score), q_QE, input_precision=PRECISION)
        _store_tile(dk + k_begin * k_stride + head * E, token, keys, k_stride, dk_KE, E)
        dq_QE = tl.dot(d_score, k_KE, input_precision=PRECISION)
        _store_tile(dq + q_begin * q_stride + head * E, token, queries, q_stride, dq_QE, E)
