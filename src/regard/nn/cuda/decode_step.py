"""Kernels for one decoding step: what one new token per row needs, in as few launches as the dependencies allow.

With one sentence, a kernel of a step costs its launch; with a thousand, it costs what it reads. So one kernel stores
the new token's keys and values and attends to all earlier ones, and a product with few rows, which is a pass over its
weights, is spread over the whole device. Nothing here has gradients.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.nn.cuda.attention import _precision
from regard.nn.cuda.residual import _add_norm, _launch_options
from regard.nn.cuda.tile_ops import _online_softmax_step

FEW_ROWS = 8  # rows up to which a linear layer is a pass over its weights
TILE = 64  # keys processed at a time
MAX_PRODUCTS, PROGRAMS = 8192, 128  # of `_linear_few_rows`: products a program holds at most, and least programs


# Attention of the W rows (beams) of one sentence; the grid is (sentences, heads).
#   q             queries, rows q_stride apart
#   k_new, v_new  keys and values of the new tokens, rows new_stride apart (self-attention only)
#   keys, values  caches, (sentences, heads, columns, E or E2), with strides key_b, key_h, value_b, value_h
#   mask          added to the scores of cached columns, with strides mask_b and mask_w: 0 or -inf. A beam sees only the
#                 columns of its own ancestors
#   column_W      (self-attention only) the first free column; the new tokens go into the W columns from there on
#   out           the result, (rows, heads, E2), dense
# SELF distinguishes self-attention from cross-attention to a memory. ROWS is W padded to a size that `tl.dot` accepts.
@triton.jit
def _step_attention(
    q, k_new, v_new, keys, values, mask, column_W, out, columns,
    q_stride, new_stride, key_b, key_h, value_b, value_h, mask_b, mask_w,
    SCALE: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr,
    SELF: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    beam, e, e2 = tl.arange(0, ROWS), tl.arange(0, E), tl.arange(0, E2)
    inside = beam < W
    row = sentence * W + beam
    q_WE = tl.load(q + row[:, None] * q_stride + head * E + e[None, :], mask=inside[:, None], other=0.0)
    keys, values = keys + sentence * key_b + head * key_h, values + sentence * value_b + head * value_h
    if SELF:
        # Read from the device: the position changes at every step, and a captured CUDA graph must not contain it.
        columns = tl.load(column_W).to(tl.int32)
    max_score = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, E2], tl.float32)
    for begin in range(0, columns, TILE):
        column = begin + tl.arange(0, TILE)
        filled = column < columns
        k_KE = tl.load(keys + column[:, None] * E + e[None, :], mask=filled[:, None], other=0.0)
        v_KE = tl.load(values + column[:, None] * E2 + e2[None, :], mask=filled[:, None], other=0.0)
        at = mask + sentence * mask_b + beam[:, None] * mask_w + column[None, :]
        added = tl.load(at, mask=inside[:, None] & filled[None, :], other=float("-inf")).to(tl.float32)
        score = tl.dot(q_WE, tl.trans(k_KE), input_precision=PRECISION) * SCALE + added
        max_score, total, mixed = _online_softmax_step(score, v_KE, max_score, total, mixed, PRECISION)
    if SELF:
        # A row sees its own new key only, so its score is one dot product and joins the online softmax as one more key.
        where = row[:, None] * new_stride + head * E + e[None, :]
        k_WE = tl.load(k_new + where, mask=inside[:, None], other=0.0)
        v_WE = tl.load(v_new + row[:, None] * new_stride + head * E2 + e2[None, :], mask=inside[:, None], other=0.0)
        score = tl.sum(q_WE.to(tl.float32) * k_WE.to(tl.float32), 1) * SCALE
        new_max = tl.maximum(max_score, score)
        weight, shrink = tl.exp(score - new_max), tl.exp(max_score - new_max)
        total = total * shrink + weight
        mixed = mixed * shrink[:, None] + weight[:, None] * v_WE.to(tl.float32)
        new_column = (columns + beam)[:, None]
        tl.store(keys + new_column * E + e[None, :], k_WE, mask=inside[:, None])
        tl.store(values + new_column * E2 + e2[None, :], v_WE, mask=inside[:, None])
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    into = out + (row[:, None] * HEADS + head) * E2 + e2[None, :]
    tl.store(into, mixed.to(out.dtype.element_ty), mask=inside[:, None])


# out = x weight^T + bias for at most ROWS rows. Each program computes OUTPUTS columns of the result for all rows, so it
# reads its part of the weights exactly once. x is (rows, K) and weight (outputs, K), both dense; K is walked in chunks.
@triton.jit
def _linear_few_rows(
    x, weight, bias, out, rows, outputs,
    K: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, CHUNK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    row, output = tl.arange(0, ROWS), tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for begin in range(0, K, CHUNK):
        k = begin + tl.arange(0, CHUNK)
        inside = (output[:, None] < outputs) & (k[None, :] < K)
        w = tl.load(weight + output[:, None].to(tl.int64) * K + k[None, :], mask=inside, other=0.0).to(tl.float32)
        valid = (row[:, None] < rows) & (k[None, :] < K)
        x_chunk = tl.load(x + row[:, None] * K + k[None, :], mask=valid, other=0.0).to(tl.float32)
        # `tl.dot` needs at least 16 rows; so few rows are multiplied and summed directly.
        total += tl.sum(x_chunk[:, None, :] * w[None, :, :], 2)
    total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    at = row[:, None] * outputs + output[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(row[:, None] < rows) & (output[None, :] < outputs))


# The best allowed token of one row per program, in one pass over its logits: an online log-sum-exp over all tokens and
# an arg-max over the allowed ones. `banned` lists BANNED tokens that are never allowed; the end token END is not
# allowed where `short` is set. `end_logprob` receives the log-probability of the end token, allowed or not.
@triton.jit
def _pick_best_token(
    logits, banned, short, token, logprob, end_logprob, stride,
    V: tl.constexpr, BANNED: tl.constexpr, END: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    logits += row.to(tl.int64) * stride
    early = tl.load(short + row) != 0
    max_z, total, best, chosen = -float("inf"), 0.0, -float("inf"), 0
    for begin in range(0, V, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        z = tl.load(logits + at, mask=at < V, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(max_z, tl.max(z, 0))
        total = total * tl.exp(max_z - new_max) + tl.sum(tl.exp(z - new_max), 0)
        max_z = new_max
        # Forbidden tokens count in the log-sum-exp, but are not chosen.
        z = tl.where((at == END) & early, -float("inf"), z)
        for number in range(BANNED):
            z = tl.where(at == tl.load(banned + number), -float("inf"), z)
        block_best = tl.max(z, 0)
        block_chosen = begin + tl.argmax(z, 0)
        chosen = tl.where(block_best > best, block_chosen, chosen)
        best = tl.maximum(best, block_best)
    total = max_z + tl.log(total)
    tl.store(token + row, chosen)
    tl.store(logprob + row, best - total)
    tl.store(end_logprob + row, tl.load(logits + END).to(tl.float32) - total)


def attend_self(
    qkv_RF: Tensor, cache: tuple[Tensor, Tensor], mask_BWK: Tensor, column_W: Tensor, heads: int, scale: float
) -> Tensor:
    """Append the new tokens to the self-attention cache and attend to them and to their ancestors.

    Args:
        qkv_RF: Queries, keys and values of the new tokens, side by side.
        cache: Cached keys and values, W columns a step for each sentence and head. The new ones are written into it.
        mask_BWK: What is added to the scores of cached columns, minus infinity for those of other beams.
        column_W: The columns of the new tokens.
        heads: Number of heads.
        scale: Factor on the dot products.
    """
    size = heads * cache[0].shape[3]
    k_new, v_new = qkv_RF[:, size:], qkv_RF[:, 2 * size :]
    mask = mask_BWK, mask_BWK.stride(0), mask_BWK.stride(1)
    return _attend(qkv_RF, (k_new, v_new), cache, mask, column_W, (heads, mask_BWK.shape[1], scale))


def attend_cross(
    q_RF: Tensor, cache: tuple[Tensor, Tensor], mask_BS: Tensor, heads: int, beams: int, scale: float
) -> Tensor:
    """Attend with every row to the memory of its sentence; `mask_BS` is added to the scores."""
    return _attend(q_RF, (q_RF, q_RF), cache, (mask_BS, mask_BS.stride(0), 0), None, (heads, beams, scale))


def _attend(
    q_RF: Tensor,
    new: tuple[Tensor, Tensor],
    cache: tuple[Tensor, Tensor],
    mask: tuple[Tensor, int, int],
    column_W: Tensor | None,
    settings: tuple[int, int, float],
) -> Tensor:
    """Launch `_step_attention`; without `column_W` it is cross-attention."""
    (keys, values), (heads, beams, scale) = cache, settings
    strides = *keys.stride()[:2], *values.stride()[:2]
    E, E2 = keys.shape[3], values.shape[3]
    out_RF = torch.empty(q_RF.shape[0], heads * E2, dtype=q_RF.dtype, device=q_RF.device)
    _step_attention[(keys.shape[0], heads)](
        q_RF, *new, keys, values, mask[0], q_RF if column_W is None else column_W, out_RF, keys.shape[2],
        q_RF.stride(0), new[0].stride(0), *strides, *mask[1:],
        SCALE=scale, HEADS=heads, W=beams, ROWS=max(16, triton.next_power_of_2(beams)), E=E, E2=E2,
        SELF=column_W is not None, TILE=TILE, PRECISION=_precision(q_RF), num_warps=2 if beams <= 16 else 4,
        num_stages=1,
    )  # fmt: skip
    return out_RF


def linear_few_rows(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor, relu: bool = False) -> Tensor:
    """Apply a linear layer, and ReLU if requested, to at most `FEW_ROWS` rows."""
    rows, width, outputs = *x_RD.shape, weight_FD.shape[0]
    y_RF = torch.empty(rows, outputs, dtype=x_RD.dtype, device=x_RD.device)
    padded = triton.next_power_of_2(rows)
    chunk = min(1024, triton.next_power_of_2(width))
    # Outputs per program: few enough for the registers and for at least PROGRAMS programs, rounded to a power of two.
    most = min(MAX_PRODUCTS // (padded * chunk), max(1, outputs // PROGRAMS))
    per_program = 1 << max(0, most.bit_length() - 1)
    _linear_few_rows[(triton.cdiv(outputs, per_program),)](
        x_RD.contiguous(), weight_FD, bias_F, y_RF, rows, outputs,
        K=width, ROWS=padded, OUTPUTS=per_program, CHUNK=chunk, RELU=relu, num_warps=4,
    )  # fmt: skip
    return y_RF


def add_norm(x_RD: Tensor, y_RD: Tensor, weight_D: Tensor, bias_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + y and its LayerNorm."""
    rows, width = x_RD.shape
    sum_RD, normed_RD = torch.empty_like(x_RD), torch.empty_like(y_RD)
    # The kernel also writes each row's mean and inverse deviation, which only training needs.
    statistics = torch.empty(2, rows, dtype=torch.float32, device=x_RD.device)
    options = _launch_options(width, 0.0)
    grid = (triton.cdiv(rows, options["ROWS"]),)
    inputs = x_RD, y_RD, weight_D, weight_D, bias_D
    _add_norm[grid](*inputs, statistics, sum_RD, normed_RD, *statistics, rows, EPS=eps, BIASED=False, **options)
    return sum_RD, normed_RD


def pick_best_token(
    logits_RV: Tensor, vocabulary: int, banned: Tensor | None, end: int, short_R: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the most probable allowed token of each row, its log-probability, and that of the end token.

    Args:
        logits_RV: The logits; a row may be longer than the vocabulary.
        vocabulary: Number of tokens.
        banned: Tokens that are never allowed, if any.
        end: The end token.
        short_R: Rows that are too short to end.
    """
    rows = logits_RV.shape[0]
    token_R = torch.empty(rows, dtype=torch.int64, device=logits_RV.device)
    logprob_R, end_R = torch.empty(2, rows, dtype=torch.float32, device=logits_RV.device)
    block, warps = (8192, 16) if rows <= PROGRAMS else (4096, 8)
    _pick_best_token[(rows,)](
        logits_RV, token_R if banned is None else banned, short_R.to(torch.uint8), token_R, logprob_R, end_R,
        logits_RV.stride(0), V=vocabulary, BANNED=0 if banned is None else banned.shape[0], END=end, BLOCK=block,
        num_warps=warps,
    )  # fmt: skip
    return token_R, logprob_R, end_R
