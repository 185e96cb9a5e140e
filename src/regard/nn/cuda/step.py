"""One step of a search: what a new token a row needs, in as few kernels as there are waits for one another.

At one sentence every kernel of a step costs what its launch costs, and at a thousand what it reads. So the new token's
keys and values are kept and attended to by the kernel that reads the older ones, and a product of few rows, which is a
pass over its weights, is spread over the whole device. Nothing here has gradients.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.nn.cuda.attention import _exact
from regard.nn.cuda.residual import _add_norm, _shape
from regard.nn.cuda.tiles import _fold

FEW = 8  # rows up to which a product is a pass over its weights
TILE = 64  # keys looked at together
PASS, PROGRAMS = 8192, 128  # products a program of few rows has in hand at most, and how many there are at least


@triton.jit
def _step_attention(
    q, k_new, v_new, keys, values, shade, place, out, columns,
    q_n, new_n, key_b, key_h, value_b, value_h, shade_b, shade_w,
    SCALE: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr, E: tl.constexpr, E2: tl.constexpr,
    OWN: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    line, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    beam, e, e2 = tl.arange(0, ROWS), tl.arange(0, E), tl.arange(0, E2)
    inside = beam < W
    row = line * W + beam
    q_WE = tl.load(q + row[:, None] * q_n + head * E + e[None, :], mask=inside[:, None], other=0.0)
    keys, values = keys + line * key_b + head * key_h, values + line * value_b + head * value_h
    if OWN:
        columns = tl.load(place).to(tl.int32)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, E2], tl.float32)
    for begin in range(0, columns, TILE):
        column = begin + tl.arange(0, TILE)
        there = column < columns
        k_KE = tl.load(keys + column[:, None] * E + e[None, :], mask=there[:, None], other=0.0)
        v_KE = tl.load(values + column[:, None] * E2 + e2[None, :], mask=there[:, None], other=0.0)
        at = shade + line * shade_b + beam[:, None] * shade_w + column[None, :]
        added = tl.load(at, mask=inside[:, None] & there[None, :], other=float("-inf")).to(tl.float32)
        score = tl.dot(q_WE, tl.trans(k_KE), input_precision=EXACT) * SCALE + added
        most, total, mixed = _fold(score, v_KE, most, total, mixed, EXACT)
    if OWN:
        where = row[:, None] * new_n + head * E + e[None, :]
        k_WE = tl.load(k_new + where, mask=inside[:, None], other=0.0)
        v_WE = tl.load(v_new + row[:, None] * new_n + head * E2 + e2[None, :], mask=inside[:, None], other=0.0)
        score = tl.sum(q_WE.to(tl.float32) * k_WE.to(tl.float32), 1) * SCALE
        now = tl.maximum(most, score)
        weight, shrink = tl.exp(score - now), tl.exp(most - now)
        total = total * shrink + weight
        mixed = mixed * shrink[:, None] + weight[:, None] * v_WE.to(tl.float32)
        kept = (columns + beam)[:, None]
        tl.store(keys + kept * E + e[None, :], k_WE, mask=inside[:, None])
        tl.store(values + kept * E2 + e2[None, :], v_WE, mask=inside[:, None])
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    into = out + (row[:, None] * HEADS + head) * E2 + e2[None, :]
    tl.store(into, mixed.to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _few_rows(
    x, weight, bias, out, rows, outputs,
    K: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, CHUNK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    row, output = tl.arange(0, ROWS), tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for begin in range(0, K, CHUNK):
        k = begin + tl.arange(0, CHUNK)
        inside = (output[:, None] < outputs) & (k[None, :] < K)
        w = tl.load(weight + output[:, None].to(tl.int64) * K + k[None, :], mask=inside, other=0.0).to(tl.float32)
        seen = (row[:, None] < rows) & (k[None, :] < K)
        each = tl.load(x + row[:, None] * K + k[None, :], mask=seen, other=0.0).to(tl.float32)
        total += tl.sum(each[:, None, :] * w[None, :, :], 2)
    total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    at = row[:, None] * outputs + output[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(row[:, None] < rows) & (output[None, :] < outputs))


@triton.jit
def _pick(
    scores, banned, short, token, logprob, end_logprob, stride,
    V: tl.constexpr, BANNED: tl.constexpr, END: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    scores += row.to(tl.int64) * stride
    early = tl.load(short + row) != 0
    most, total, best, chosen = -float("inf"), 0.0, -float("inf"), 0
    for begin in range(0, V, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        z = tl.load(scores + at, mask=at < V, other=-float("inf")).to(tl.float32)
        now = tl.maximum(most, tl.max(z, 0))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(z - now), 0)
        most = now
        z = tl.where((at == END) & early, -float("inf"), z)
        for number in range(BANNED):
            z = tl.where(at == tl.load(banned + number), -float("inf"), z)
        here = tl.max(z, 0)
        where = begin + tl.argmax(z, 0)
        chosen = tl.where(here > best, where, chosen)
        best = tl.maximum(best, here)
    total = most + tl.log(total)
    tl.store(token + row, chosen)
    tl.store(logprob + row, best - total)
    tl.store(end_logprob + row, tl.load(scores + END).to(tl.float32) - total)


def attend_own(
    qkv_RF: Tensor, table: tuple[Tensor, Tensor], shade_BWK: Tensor, place_W: Tensor, heads: int, scale: float
) -> Tensor:
    """Keep the new tokens' keys and values at their places, and let each row look at those it descends from.

    `qkv_RF` holds queries, keys and values side by side; `table` is the keys and values kept so far, of each sentence
    and head W places a step; `shade_BWK` is added to the scores of older places.
    """
    size = heads * table[0].shape[3]
    k_new, v_new = qkv_RF[:, size:], qkv_RF[:, 2 * size :]
    shades = shade_BWK.stride(0), shade_BWK.stride(1)
    return _attended(qkv_RF, (k_new, v_new), table, (shade_BWK, *shades), place_W, (heads, shade_BWK.shape[1], scale))


def attend_memory(
    q_RF: Tensor, table: tuple[Tensor, Tensor], shade_BS: Tensor, heads: int, beams: int, scale: float
) -> Tensor:
    """Let every row look at its sentence's memory; `shade_BS` is added to the scores."""
    return _attended(q_RF, (q_RF, q_RF), table, (shade_BS, shade_BS.stride(0), 0), None, (heads, beams, scale))


def _attended(
    q_RF: Tensor,
    new: tuple[Tensor, Tensor],
    table: tuple[Tensor, Tensor],
    shade: tuple[Tensor, int, int],
    place_W: Tensor | None,
    told: tuple[int, int, float],
) -> Tensor:
    (keys, values), (heads, beams, scale) = table, told
    strides = *keys.stride()[:2], *values.stride()[:2]
    E, E2 = keys.shape[3], values.shape[3]
    out_RF = torch.empty(q_RF.shape[0], heads * E2, dtype=q_RF.dtype, device=q_RF.device)
    _step_attention[(keys.shape[0], heads)](
        q_RF, *new, keys, values, shade[0], q_RF if place_W is None else place_W, out_RF, keys.shape[2],
        q_RF.stride(0), new[0].stride(0), *strides, *shade[1:],
        SCALE=scale, HEADS=heads, W=beams, ROWS=max(16, triton.next_power_of_2(beams)), E=E, E2=E2,
        OWN=place_W is not None, TILE=TILE, EXACT=_exact(q_RF), num_warps=2 if beams <= 16 else 4, num_stages=1,
    )  # fmt: skip
    return out_RF


def few_rows(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor, relu: bool = False) -> Tensor:
    """A linear layer of at most `FEW` rows, negative numbers cut off if told."""
    rows, width, outputs = *x_RD.shape, weight_FD.shape[0]
    y_RF = torch.empty(rows, outputs, dtype=x_RD.dtype, device=x_RD.device)
    padded = triton.next_power_of_2(rows)
    chunk = min(1024, triton.next_power_of_2(width))
    most = min(PASS // (padded * chunk), max(1, outputs // PROGRAMS))
    each = 1 << max(0, most.bit_length() - 1)
    _few_rows[(triton.cdiv(outputs, each),)](
        x_RD.contiguous(), weight_FD, bias_F, y_RF, rows, outputs,
        K=width, ROWS=padded, OUTPUTS=each, CHUNK=chunk, RELU=relu, num_warps=4,
    )  # fmt: skip
    return y_RF


def add_norm(x_RD: Tensor, y_RD: Tensor, weight_D: Tensor, bias_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x + y, and its LayerNorm."""
    rows, width = x_RD.shape
    sum_RD, normed_RD = torch.empty_like(x_RD), torch.empty_like(y_RD)
    aside = torch.empty(2, rows, dtype=torch.float32, device=x_RD.device)
    shape = _shape(width, 0.0)
    grid = (triton.cdiv(rows, shape["ROWS"]),)
    given = x_RD, y_RD, weight_D, weight_D, bias_D
    _add_norm[grid](*given, aside, sum_RD, normed_RD, *aside, rows, EPS=eps, MORE=False, **shape)
    return sum_RD, normed_RD


def pick(
    logits_RV: Tensor, vocabulary: int, banned: Tensor | None, end: int, short_R: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The most probable token of each row that is allowed, its log-probability, and that of the end.

    `banned` tokens are not, nor is the end where a row is too `short_R` for it.
    """
    rows = logits_RV.shape[0]
    token_R = torch.empty(rows, dtype=torch.int64, device=logits_RV.device)
    logprob_R, end_R = torch.empty(2, rows, dtype=torch.float32, device=logits_RV.device)
    block, warps = (8192, 16) if rows <= PROGRAMS else (4096, 8)
    _pick[(rows,)](
        logits_RV, token_R if banned is None else banned, short_R.to(torch.uint8), token_R, logprob_R, end_R,
        logits_RV.stride(0), V=vocabulary, BANNED=0 if banned is None else banned.shape[0], END=end, BLOCK=block,
        num_warps=warps,
    )  # fmt: skip
    return token_R, logprob_R, end_R
