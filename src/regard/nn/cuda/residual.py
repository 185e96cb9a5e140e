"""x + dropout(y + b) and its LayerNorm in one pass over memory, and one back.

Apart, the sums, the dice and the norm each read and write the whole stream. Which numbers were dropped is not kept: the
dice are a hash of the place and a seed, thrown again on the way back. There, too, the gradient of b, a sum over all
tokens, is made of what is at hand.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

FORTH, WARPS = 2048, 4  # numbers a program looks at together
BACK, BACK_WARPS = 2048, 2
PROGRAMS = 1056  # on the way back: eight for each of an H200's multiprocessors


@triton.jit
def _mix(x):
    # A bijection of 32-bit words without bias to speak of (two multiplications, three shifts).
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _kept(place, seed, THRESHOLD: tl.constexpr):
    word = _mix(_mix(place.to(tl.uint32)) ^ seed)
    return (word >> 8) >= THRESHOLD


# No argument may be called `stream`: the launcher that torch writes for a kernel has one of its own.
@triton.jit
def _add_norm(
    x, y, more, weight, bias, seed, flow, normed, mean, inverse, rows,
    EPS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr,
    GROWN: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < WIDTH)
    place = row * WIDTH + column
    added = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    if MORE:
        added += tl.load(more + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    if THRESHOLD > 0:
        added = tl.where(_kept(place, tl.load(seed).to(tl.uint32), THRESHOLD), added * GROWN, 0.0)
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added
    total = total.to(flow.dtype.element_ty)
    tl.store(flow + place, total, mask=inside)
    total = total.to(tl.float32)
    middle = tl.sum(total, 1) / WIDTH
    off = tl.where(inside, total - middle[:, None], 0.0)
    size = tl.rsqrt(tl.sum(off * off, 1) / WIDTH + EPS)
    w = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(normed + place, (off * size[:, None] * w + b).to(normed.dtype.element_ty), mask=inside)
    line = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(mean + line, middle, mask=line < rows)
    tl.store(inverse + line, size, mask=line < rows)


@triton.jit
def _add_norm_backward(
    d_stream, d_normed, flow, weight, seed, mean, inverse, dx, dy, sums, rows,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr, GROWN: tl.constexpr,
    FLOWS: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)[None, :]
    w = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    dw, db = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
    d_more = tl.zeros([ROWS, BLOCK], tl.float32)
    for begin in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        line = begin + tl.arange(0, ROWS)
        row = line.to(tl.int64)[:, None]
        inside = (row < rows) & (column < WIDTH)
        place = row * WIDTH + column
        size = tl.load(inverse + line, mask=line < rows, other=0.0)[:, None]
        middle = tl.load(mean + line, mask=line < rows, other=0.0)[:, None]
        unit = (tl.load(flow + place, mask=inside, other=0.0).to(tl.float32) - middle) * size
        unit = tl.where(inside, unit, 0.0)
        d = tl.load(d_normed + place, mask=inside, other=0.0).to(tl.float32)
        dw += d * unit
        db += d
        d = d * w
        d = size * (d - tl.sum(d, 1)[:, None] / WIDTH - unit * (tl.sum(d * unit, 1)[:, None] / WIDTH))
        if FLOWS:
            d += tl.load(d_stream + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + place, d.to(dx.dtype.element_ty), mask=inside)
        if THRESHOLD > 0:
            d = tl.where(_kept(place, tl.load(seed).to(tl.uint32), THRESHOLD), d * GROWN, 0.0)
        tl.store(dy + place, d.to(dy.dtype.element_ty), mask=inside)
        if MORE:
            d_more += tl.where(inside, d, 0.0)
    at, further = sums + tl.program_id(0) * WIDTH + column, tl.num_programs(0) * WIDTH
    tl.store(at, tl.sum(dw, 0)[None, :], mask=column < WIDTH)
    tl.store(at + further, tl.sum(db, 0)[None, :], mask=column < WIDTH)
    if MORE:
        tl.store(at + 2 * further, tl.sum(d_more, 0)[None, :], mask=column < WIDTH)


def _shape(width: int, dropout: float, back: bool = False) -> dict[str, int | float]:
    """Tiles of whole rows, and the dice in 24 bits."""
    block, threshold = triton.next_power_of_2(width), round(dropout * 2**24)
    numbers, warps = (BACK, BACK_WARPS) if back else (FORTH, WARPS)
    return {
        "WIDTH": width,
        "BLOCK": block,
        "ROWS": max(1, numbers // block),
        "THRESHOLD": threshold,
        "GROWN": 2**24 / (2**24 - threshold),
        "num_warps": warps,
    }


@triton_op("regard::add_norm", mutates_args=())
def add_norm(
    x_ND: Tensor,
    y_ND: Tensor,
    more_D: Tensor | None,
    weight_D: Tensor,
    bias_D: Tensor,
    seed: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The stream x + dropout(y + more), its LayerNorm in the precision of y, each row's mean and inverse deviation."""
    rows, width = x_ND.shape
    stream_ND, normed_ND = torch.empty_like(x_ND), torch.empty_like(y_ND)
    mean_N, inverse_N = (torch.empty(rows, dtype=torch.float32, device=x_ND.device) for _ in range(2))
    shape, biased = _shape(width, dropout), more_D is not None
    grid = (triton.cdiv(rows, shape["ROWS"]),)
    wrap_triton(_add_norm)[grid](
        x_ND, y_ND, more_D if biased else weight_D, weight_D, bias_D, seed, stream_ND, normed_ND, mean_N, inverse_N,
        rows, EPS=eps, MORE=biased, **shape,
    )  # fmt: skip
    return stream_ND, normed_ND, mean_N, inverse_N


@triton_op("regard::add_norm_backward", mutates_args=())
def _gradients(
    d_stream: Tensor | None,
    d_normed: Tensor,
    stream_ND: Tensor,
    weight_D: Tensor,
    seed: Tensor,
    mean_N: Tensor,
    inverse_N: Tensor,
    dropout: float,
    biased: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of x, of y, and (one a row) of the norm's weight and bias and of what was added to y."""
    rows, width = stream_ND.shape
    dx_ND, dy_ND = torch.empty_like(stream_ND), torch.empty_like(d_normed)
    sums = torch.empty(2 + biased, PROGRAMS, width, dtype=torch.float32, device=weight_D.device)
    flows = d_stream is not None
    wrap_triton(_add_norm_backward)[(PROGRAMS,)](
        d_stream if flows else d_normed, d_normed, stream_ND, weight_D, seed, mean_N, inverse_N, dx_ND, dy_ND, sums,
        rows, FLOWS=flows, MORE=biased, **_shape(width, dropout, back=True),
    )  # fmt: skip
    return dx_ND, dy_ND, sums.sum(1)


def _save(ctx, inputs, output) -> None:
    _x, _y, more, weight, _bias, seed, _eps, ctx.dropout = inputs
    stream, _normed, mean, inverse = output
    ctx.save_for_backward(stream, weight, seed, mean, inverse)
    ctx.more = None if more is None else more.dtype
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(mean, inverse)


def _backward_of(ctx, d_stream, d_normed, _d_mean, _d_inverse):
    stream, weight, seed, mean, inverse = ctx.saved_tensors
    d_stream = None if d_stream is None else d_stream.contiguous()
    if d_normed is None:
        raise RuntimeError("the normed stream was made and never used")
    args = (stream, weight, seed, mean, inverse, ctx.dropout, ctx.more is not None)
    dx, dy, (dw, db, *more) = _gradients(d_stream, d_normed.contiguous(), *args)
    d_more = more[0].to(ctx.more) if more else None
    return dx, dy, d_more, dw.to(weight.dtype), db.to(weight.dtype), None, None, None


add_norm.register_autograd(_backward_of, setup_context=_save)
