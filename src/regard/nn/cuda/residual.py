"""x + dropout(y + b) and its LayerNorm in one pass over memory, and one pass for the gradients.

Separate kernels for the sums, the dropout and the norm would each read and write the whole residual stream. The dropout
mask is not stored: random numbers are a hash of a value's index and a seed, and the backward pass computes them again.
It also accumulates the gradient of b, a sum over all tokens, from values it holds anyway.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

FORWARD_VALUES, FORWARD_WARPS = 2048, 4  # values that a program processes at a time
BACKWARD_VALUES, BACKWARD_WARPS = 2048, 2
PROGRAMS = 1056  # of the backward pass: eight for each of an H200's 132 multiprocessors


# A bijection of 32-bit integers whose output bits look random: multiplications and shifts spread every input bit over
# the whole word.
@triton.jit
def _hash(x):
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


# True where dropout keeps a value: its 24-bit random number is at least THRESHOLD = p * 2^24.
@triton.jit
def _kept(index, seed, THRESHOLD: tl.constexpr):
    word = _hash(_hash(index.to(tl.uint32)) ^ seed)
    return (word >> 8) >= THRESHOLD


# Pointers: x (residual stream), y (output of the sub-layer) and flow (their sum) are (rows, WIDTH); added_bias is the
# bias of y; weight and bias are those of the LayerNorm; normed is its result; mean and inverse are each row's mean and
# 1 / standard deviation for the backward pass. A program processes ROWS whole rows, padded to BLOCK, a power of two.
# No argument may be called `stream`: the launcher that torch generates for a kernel has one of its own.
@triton.jit
def _add_norm(
    x, y, added_bias, weight, bias, seed, flow, normed, mean, inverse, rows,
    EPS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr,
    RESCALE: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < WIDTH)
    index = row * WIDTH + column
    added = tl.load(y + index, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        added += tl.load(added_bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    if THRESHOLD > 0:
        added = tl.where(_kept(index, tl.load(seed).to(tl.uint32), THRESHOLD), added * RESCALE, 0.0)
    total = tl.load(x + index, mask=inside, other=0.0).to(tl.float32) + added
    # The norm is computed of the sum as it is stored, rounded to the stream's dtype.
    total = total.to(flow.dtype.element_ty)
    tl.store(flow + index, total, mask=inside)
    total = total.to(tl.float32)
    row_mean = tl.sum(total, 1) / WIDTH
    centred = tl.where(inside, total - row_mean[:, None], 0.0)
    row_inverse = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + EPS)
    w = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(normed + index, (centred * row_inverse[:, None] * w + b).to(normed.dtype.element_ty), mask=inside)
    line = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(mean + line, row_mean, mask=line < rows)
    tl.store(inverse + line, row_inverse, mask=line < rows)


# With u = (x - mean) / deviation and g = d_normed * weight, the gradient of LayerNorm's input is
# (g - mean(g) - u * mean(g * u)) / deviation. The gradients of weight, bias and added_bias are sums over all rows:
# each program sums the rows it visits and stores one partial sum per column in `sums` (2 or 3, programs, WIDTH).
# STREAMED says that the stream itself has a gradient, RESCALE is 1 / (1 - p) of dropout.
@triton.jit
def _add_norm_backward(
    d_stream, d_normed, flow, weight, seed, mean, inverse, dx, dy, sums, rows,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr, RESCALE: tl.constexpr,
    STREAMED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)[None, :]
    w = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    dw, db = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
    d_added_bias = tl.zeros([ROWS, BLOCK], tl.float32)
    for begin in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        line = begin + tl.arange(0, ROWS)
        row = line.to(tl.int64)[:, None]
        inside = (row < rows) & (column < WIDTH)
        index = row * WIDTH + column
        row_inverse = tl.load(inverse + line, mask=line < rows, other=0.0)[:, None]
        row_mean = tl.load(mean + line, mask=line < rows, other=0.0)[:, None]
        unit = (tl.load(flow + index, mask=inside, other=0.0).to(tl.float32) - row_mean) * row_inverse
        unit = tl.where(inside, unit, 0.0)
        d = tl.load(d_normed + index, mask=inside, other=0.0).to(tl.float32)
        dw += d * unit
        db += d
        d = d * w
        d = row_inverse * (d - tl.sum(d, 1)[:, None] / WIDTH - unit * (tl.sum(d * unit, 1)[:, None] / WIDTH))
        if STREAMED:
            # The stream itself goes on to later layers (pre-norm), so its own gradient is added.
            d += tl.load(d_stream + index, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + index, d.to(dx.dtype.element_ty), mask=inside)
        if THRESHOLD > 0:
            d = tl.where(_kept(index, tl.load(seed).to(tl.uint32), THRESHOLD), d * RESCALE, 0.0)
        tl.store(dy + index, d.to(dy.dtype.element_ty), mask=inside)
        if BIASED:
            d_added_bias += tl.where(inside, d, 0.0)
    at, plane = sums + tl.program_id(0) * WIDTH + column, tl.num_programs(0) * WIDTH
    tl.store(at, tl.sum(dw, 0)[None, :], mask=column < WIDTH)
    tl.store(at + plane, tl.sum(db, 0)[None, :], mask=column < WIDTH)
    if BIASED:
        tl.store(at + 2 * plane, tl.sum(d_added_bias, 0)[None, :], mask=column < WIDTH)


def _launch_options(width: int, dropout: float, backward: bool = False) -> dict[str, int | float]:
    """Return tile sizes for whole rows, and dropout as a 24-bit threshold."""
    block, threshold = triton.next_power_of_2(width), round(dropout * 2**24)
    values, warps = (BACKWARD_VALUES, BACKWARD_WARPS) if backward else (FORWARD_VALUES, FORWARD_WARPS)
    return {
        "WIDTH": width,
        "BLOCK": block,
        "ROWS": max(1, values // block),
        "THRESHOLD": threshold,
        "RESCALE": 2**24 / (2**24 - threshold),
        "num_warps": warps,
    }


@triton_op("regard::add_norm", mutates_args=())
def add_norm(
    x_ND: Tensor,
    y_ND: Tensor,
    added_bias_D: Tensor | None,
    weight_D: Tensor,
    bias_D: Tensor,
    seed: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the stream x + dropout(y + added_bias) and its LayerNorm.

    Returns:
        The stream, its norm in the precision of y, and the mean and inverse standard deviation of each row.
    """
    rows, width = x_ND.shape
    stream_ND, normed_ND = torch.empty_like(x_ND), torch.empty_like(y_ND)
    mean_N, inverse_N = (torch.empty(rows, dtype=torch.float32, device=x_ND.device) for _ in range(2))
    options, biased = _launch_options(width, dropout), added_bias_D is not None
    grid = (triton.cdiv(rows, options["ROWS"]),)
    # Without a bias, `weight_D` is a placeholder that the kernel does not read.
    wrap_triton(_add_norm)[grid](
        x_ND, y_ND, added_bias_D if biased else weight_D, weight_D, bias_D, seed, stream_ND, normed_ND, mean_N,
        inverse_N, rows, EPS=eps, BIASED=biased, **options,
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
    """Return the gradients of x and y, and as rows of one matrix those of weight, bias and added bias."""
    rows, width = stream_ND.shape
    dx_ND, dy_ND = torch.empty_like(stream_ND), torch.empty_like(d_normed)
    sums = torch.empty(2 + biased, PROGRAMS, width, dtype=torch.float32, device=weight_D.device)
    has_d_stream = d_stream is not None
    wrap_triton(_add_norm_backward)[(PROGRAMS,)](
        d_stream if has_d_stream else d_normed, d_normed, stream_ND, weight_D, seed, mean_N, inverse_N, dx_ND, dy_ND,
        sums, rows, STREAMED=has_d_stream, BIASED=biased, **_launch_options(width, dropout, backward=True),
    )  # fmt: skip
    return dx_ND, dy_ND, sums.sum(1)


def _save(ctx, inputs, output) -> None:
    _x, _y, added_bias, weight, _bias, seed, _eps, ctx.dropout = inputs
    stream, _normed, mean, inverse = output
    ctx.save_for_backward(stream, weight, seed, mean, inverse)
    ctx.added_bias_dtype = None if added_bias is None else added_bias.dtype
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(mean, inverse)


def _backward(ctx, d_stream, d_normed, _d_mean, _d_inverse):
    stream, weight, seed, mean, inverse = ctx.saved_tensors
    d_stream = None if d_stream is None else d_stream.contiguous()
    if d_normed is None:
        raise RuntimeError("the output of the norm has no gradient; it must be used for the loss to depend on it")
    args = (stream, weight, seed, mean, inverse, ctx.dropout, ctx.added_bias_dtype is not None)
    dx, dy, (dw, db, *rest) = _gradients(d_stream, d_normed.contiguous(), *args)
    d_added_bias = rest[0].to(ctx.added_bias_dtype) if rest else None
    return dx, dy, d_added_bias, dw.to(weight.dtype), db.to(weight.dtype), None, None, None


add_norm.register_autograd(_backward, setup_context=_save)
