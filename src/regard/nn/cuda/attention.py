"""Attention over the packed stream of a batch, which never visits pairs of different sequences.

Sequences that fit into one tile are handled by `attention_single_tile`. The kernels here handle longer ones: a program
takes one tile of queries and loops over the tiles of keys (FlashAttention, Dao et al. 2022), with the online softmax of
Milakov & Gimelshein 2018. In the backward pass, a program takes one tile of keys or one tile of queries (Dao et al.
2022, B.2), so that no two programs write the same gradient.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from regard.nn.cuda.attention_single_tile import _attend_single_tile, _attend_single_tile_backward
from regard.nn.cuda.length_classes import TILED, LaunchConfig, launch_configs
from regard.nn.cuda.tile_ops import _allowed, _load_tile, _online_softmax_step, _store_tile

STAGES = 1  # most loops run once: buffers for software pipelining would only reduce the programs that fit on the device
NO_WINDOW = -1


# See `attention_single_tile` for the arguments. In addition:
#   lse     the log-sum-exp of each query's scores, (heads, tokens), kept for the backward pass
#   tokens  number of queries of the batch
#   tiles   most tiles that a sequence may have; an item of work is a sequence and one of its tiles
@triton.jit
def _attend_tiled(
    q, k, v, out, lse, q_offsets, k_offsets, order, bounds, tokens, tiles, q_stride, k_stride, v_stride,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    if TENSORS == 1:
        k = q + HEADS * E
    if TENSORS < 3:
        v = k + HEADS * E
    # The class of several tiles comes first in the order and ends at bounds[1].
    for item in tl.range(tl.program_id(1), tl.load(bounds + 1) * tiles, tl.num_programs(1), disable_licm=True):
        sequence, q0 = tl.load(order + item // tiles), item % tiles * TILE
        q_begin, k_begin = tl.load(q_offsets + sequence).to(tl.int64), tl.load(k_offsets + sequence).to(tl.int64)
        queries = (tl.load(q_offsets + sequence + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + sequence + 1) - k_begin).to(tl.int32)
        if q0 < queries:  # shorter sequences have fewer tiles than `tiles`
            query = q0 + tl.arange(0, TILE)
            q_QE = _load_tile(q + q_begin * q_stride + head * E, query, queries, q_stride, E)
            max_score = tl.full([TILE], float("-inf"), tl.float32)
            total, mixed = tl.zeros([TILE], tl.float32), tl.zeros([TILE, E2], tl.float32)
            end = keys
            if CAUSAL:
                # Tiles of keys after the last query of this tile are masked entirely.
                end = tl.minimum(keys, q0 + TILE)
            for k0 in range(0, end, TILE):
                key = k0 + tl.arange(0, TILE)
                k_KE = _load_tile(k + k_begin * k_stride + head * E, key, keys, k_stride, E)
                v_KE = _load_tile(v + k_begin * v_stride + head * E2, key, keys, v_stride, E2)
                score = tl.dot(q_QE, tl.trans(k_KE), input_precision=PRECISION) * SCALE
                score = tl.where(_allowed(query, key, queries, keys, CAUSAL, WINDOW), score, float("-inf"))
                max_score, total, mixed = _online_softmax_step(score, v_KE, max_score, total, mixed, PRECISION)
            # A query without an allowed key has a total of 0; its result is zero.
            some = total > 0
            mixed = mixed / tl.where(some, total, 1.0)[:, None]
            _store_tile(out + (q_begin * HEADS + head) * E2, query, queries, HEADS * E2, mixed, E2)
            at = lse + head.to(tl.int64) * tokens + q_begin + query
            tl.store(at, tl.where(some, max_score + tl.log(total), 0.0), mask=query < queries)


# The weights P of one pair of tiles, recomputed from the log-sum-exp, and the gradient of their scores,
# dS = P * (dP - delta) * scale with delta = rowsum(dO * O), which equals rowsum(P * dP) over all keys.
@triton.jit
def _weights_and_score_gradient(
    q_QE, k_KE, v_KE, d_out_QE, out_QE, lse_Q, allowed, SCALE: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    score = tl.dot(q_QE, tl.trans(k_KE), input_precision=PRECISION) * SCALE
    weight = tl.where(allowed, tl.exp(score - lse_Q[:, None]), 0.0)
    d_weight = tl.dot(d_out_QE, tl.trans(v_KE), input_precision=PRECISION)
    delta_Q = tl.sum(d_out_QE.to(tl.float32) * out_QE.to(tl.float32), 1)
    return weight, weight * (d_weight - delta_Q[:, None]) * SCALE


# Gradients of one tile of keys and values: a loop over the tiles of queries that attend to them.
# The pointers start at the sequence and head.
@triton.jit
def _key_tile_gradients(
    q, k, v, out, d_out, lse, dk, dv, k0, queries, keys, q_stride, k_stride, v_stride, o_stride,
    SCALE: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    key = k0 + tl.arange(0, TILE)
    k_KE, v_KE = _load_tile(k, key, keys, k_stride, E), _load_tile(v, key, keys, v_stride, E2)
    dk_KE, dv_KE = tl.zeros([TILE, E], tl.float32), tl.zeros([TILE, E2], tl.float32)
    begin = 0
    if CAUSAL:
        begin = k0
    for q0 in range(begin, queries, TILE):
        query = q0 + tl.arange(0, TILE)
        q_QE, d_out_QE = _load_tile(q, query, queries, q_stride, E), _load_tile(d_out, query, queries, o_stride, E2)
        out_QE = _load_tile(out, query, queries, o_stride, E2)
        lse_Q = tl.load(lse + query, mask=query < queries, other=0.0)
        allowed = _allowed(query, key, queries, keys, CAUSAL, WINDOW)
        weight, d_score = _weights_and_score_gradient(
            q_QE, k_KE, v_KE, d_out_QE, out_QE, lse_Q, allowed, SCALE, PRECISION
        )
        dv_KE += tl.dot(tl.trans(weight.to(d_out_QE.dtype)), d_out_QE, input_precision=PRECISION)
        dk_KE += tl.dot(tl.trans(d_score.to(q_QE.dtype)), q_QE, input_precision=PRECISION)
    _store_tile(dk, key, keys, k_stride, dk_KE, E)
    _store_tile(dv, key, keys, v_stride, dv_KE, E2)


# Gradient of one tile of queries: a loop over the tiles of keys that they attend to.
@triton.jit
def _query_tile_gradient(
    q, k, v, out, d_out, lse, dq, q0, queries, keys, q_stride, k_stride, v_stride, o_stride,
    SCALE: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    query = q0 + tl.arange(0, TILE)
    q_QE, d_out_QE = _load_tile(q, query, queries, q_stride, E), _load_tile(d_out, query, queries, o_stride, E2)
    out_QE = _load_tile(out, query, queries, o_stride, E2)
    lse_Q = tl.load(lse + query, mask=query < queries, other=0.0)
    dq_QE = tl.zeros([TILE, E], tl.float32)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, q0 + TILE)
    for k0 in range(0, end, TILE):
        key = k0 + tl.arange(0, TILE)
        k_KE, v_KE = _load_tile(k, key, keys, k_stride, E), _load_tile(v, key, keys, v_stride, E2)
        allowed = _allowed(query, key, queries, keys, CAUSAL, WINDOW)
        _, d_score = _weights_and_score_gradient(q_QE, k_KE, v_KE, d_out_QE, out_QE, lse_Q, allowed, SCALE, PRECISION)
        dq_QE += tl.dot(d_score.to(k_KE.dtype), k_KE, input_precision=PRECISION)
    _store_tile(dq, query, queries, q_stride, dq_QE, E)


# An item of work is a sequence, one of its tiles, and which side the tile is of: 0 is keys, 1 is queries.
@triton.jit
def _attend_tiled_backward(
    q, k, v, out, d_out, lse, dq, dk, dv, q_offsets, k_offsets, order, bounds, tokens, tiles,
    q_stride, k_stride, v_stride,
    SCALE: tl.constexpr, HEADS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TENSORS: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head, o_stride = tl.program_id(0), HEADS * E2
    if TENSORS == 1:
        k, dk = q + HEADS * E, dq + HEADS * E
    if TENSORS < 3:
        v, dv = k + HEADS * E, dk + HEADS * E
    for item in tl.range(tl.program_id(1), tl.load(bounds + 1) * tiles * 2, tl.num_programs(1), disable_licm=True):
        sequence, side, at = tl.load(order + item // (2 * tiles)), item // tiles % 2, item % tiles * TILE
        q_begin, k_begin = tl.load(q_offsets + sequence).to(tl.int64), tl.load(k_offsets + sequence).to(tl.int64)
        queries = (tl.load(q_offsets + sequence + 1) - q_begin).to(tl.int32)
        keys = (tl.load(k_offsets + sequence + 1) - k_begin).to(tl.int32)
        to_q = q_begin * q_stride + head * E
        to_k, to_v = k_begin * k_stride + head * E, k_begin * v_stride + head * E2
        to_o, to_lse = q_begin * o_stride + head * E2, head.to(tl.int64) * tokens + q_begin
        if (side == 0) & (at < keys):
            _key_tile_gradients(
                q + to_q, k + to_k, v + to_v, out + to_o, d_out + to_o, lse + to_lse, dk + to_k, dv + to_v,
                at, queries, keys, q_stride, k_stride, v_stride, o_stride,
                SCALE, E, E2, CAUSAL, WINDOW, TILE, PRECISION,
            )  # fmt: skip
        if (side == 1) & (at < queries):
            _query_tile_gradient(
                q + to_q, k + to_k, v + to_v, out + to_o, d_out + to_o, lse + to_lse, dq + to_q,
                at, queries, keys, q_stride, k_stride, v_stride, o_stride,
                SCALE, E, E2, CAUSAL, WINDOW, TILE, PRECISION,
            )  # fmt: skip


@triton_op("regard::ragged_attention", mutates_args=())
def ragged_attention(
    tensors: Sequence[Tensor],
    q_offsets: Tensor,
    k_offsets: Tensor,
    order_B: Tensor,
    bounds: Tensor,
    longest: int,
    sizes: Sequence[int],
    scale: float,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor]:
    """Attend within each sequence of a packed stream.

    Args:
        tensors: Queries, keys and values of all heads, (N, F) and dense: side by side in one tensor, or queries in one
            and the rest in another, or each in a tensor of its own. Gradients have the same layout.
        q_offsets: First query of each sequence, and the number of queries.
        k_offsets: First key of each sequence, and the number of keys.
        order_B: The sequences sorted by length; see `LengthClasses`.
        bounds: Where each length class begins in that order.
        longest: Largest length a sequence may have.
        sizes: Number of heads, size of a head's keys and size of a head's values.
        scale: Factor on the dot products.
        causal: Whether to mask later keys.
        window: Number of neighbours allowed on each side, or `NO_WINDOW`.

    Returns:
        The mixed values of each query, and the log-sum-exp of the queries in sequences of several tiles.
    """
    tokens, (heads, _, value_size) = tensors[0].shape[0], sizes
    out_NHE = torch.empty(tokens, heads, value_size, dtype=tensors[-1].dtype, device=tensors[-1].device)
    lse_HN = torch.empty(heads, tokens, dtype=torch.float32, device=out_NHE.device)
    constants = _constants(tensors, sizes, scale, causal, window)
    qkv, sequences = _qkv(tensors), (q_offsets, k_offsets, order_B, bounds)
    strides = [x.stride(0) for x in qkv]
    for number, config in launch_configs(longest):
        grid, shape = (heads, config.programs), _launch_options(config)
        if number == 0:
            tiles = triton.cdiv(longest, TILED.tile)
            wrap_triton(_attend_tiled)[grid](
                *qkv, out_NHE, lse_HN, *sequences, tokens, tiles, *strides, **constants, **shape
            )
        else:
            wrap_triton(_attend_single_tile)[grid](
                *qkv, out_NHE, *sequences, *strides, CLASS=number, **constants, **shape
            )
    return out_NHE, lse_HN


@triton_op("regard::ragged_attention_backward", mutates_args=())
def _gradients(
    d_out_NHE: Tensor,
    out_NHE: Tensor,
    lse_HN: Tensor,
    tensors: Sequence[Tensor],
    q_offsets: Tensor,
    k_offsets: Tensor,
    order_B: Tensor,
    bounds: Tensor,
    longest: int,
    sizes: Sequence[int],
    scale: float,
    causal: bool,
    window: int,
) -> list[Tensor]:
    tokens, heads = tensors[0].shape[0], sizes[0]
    constants = _constants(tensors, sizes, scale, causal, window)
    qkv, sequences = _qkv(tensors), (q_offsets, k_offsets, order_B, bounds)
    strides, gradients = [x.stride(0) for x in qkv], [torch.empty_like(x) for x in tensors]
    # A gradient without a tensor of its own is a part of the one before it, and the kernel computes its address; the
    # tensor passed in its place is a placeholder that is never written.
    into = [*gradients, *qkv[len(gradients) :]]
    for number, config in launch_configs(longest):
        grid, shape = (heads, config.programs), _launch_options(config)
        if number == 0:
            tiles = triton.cdiv(longest, TILED.tile)
            wrap_triton(_attend_tiled_backward)[grid](
                *qkv, out_NHE, d_out_NHE, lse_HN, *into, *sequences, tokens, tiles, *strides, **constants, **shape
            )
        else:
            wrap_triton(_attend_single_tile_backward)[grid](
                *qkv, d_out_NHE, *into, *sequences, *strides, CLASS=number, **constants, **shape
            )
    return gradients


def _qkv(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that hold queries, keys and values; one tensor may stand for several."""
    return [tensors[0], tensors[min(1, len(tensors) - 1)], tensors[-1]]


def _constants(
    tensors: Sequence[Tensor], sizes: Sequence[int], scale: float, causal: bool, window: int
) -> dict[str, Any]:  # fmt: skip
    """Return the compile-time constants of all attention kernels."""
    return {
        "SCALE": scale, "HEADS": sizes[0], "E": sizes[1], "E2": sizes[2], "CAUSAL": causal, "WINDOW": window,
        "TENSORS": len(tensors), "PRECISION": _precision(tensors[0]),
    }  # fmt: skip


def _launch_options(config: LaunchConfig) -> dict[str, int]:
    return {"TILE": config.tile, "num_warps": config.warps, "num_stages": STAGES}


def _precision(x: Tensor) -> str:
    """Return how `tl.dot` multiplies: float32 is not rounded to tf32; for half precision the setting has no effect."""
    return "ieee" if x.dtype == torch.float32 else "tf32"


def _save(ctx, inputs, output) -> None:
    tensors, *sequences, ctx.longest, ctx.sizes, ctx.scale, ctx.causal, ctx.window = inputs
    ctx.save_for_backward(*tensors, *sequences, *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, d_out_NHE, _d_lse):
    *tensors, q_offsets, k_offsets, order, bounds, out, lse = ctx.saved_tensors
    settings = (q_offsets, k_offsets, order, bounds, ctx.longest, ctx.sizes, ctx.scale, ctx.causal, ctx.window)
    return _gradients(d_out_NHE.contiguous(), out, lse, tensors, *settings), *[None] * 9


ragged_attention.register_autograd(_backward, setup_context=_save)
