"""max(0, h + b) in one pass over memory; the backward pass computes the gradients of h and b in one more.

The gradient of b is a sum over all tokens. Each program sums the rows it visits, and a small second kernel adds up the
programs' partial sums.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

PROGRAMS, WARPS = 1056, 4  # eight programs for each of an H200's 132 multiprocessors
ROWS, COLUMNS = 16, 256  # tile of the two main kernels
SUM_ROWS, SUM_COLUMNS = 128, 32  # tile of the kernel that adds up partial sums


# h and out are (rows, WIDTH). A program processes a tile of ROWS by COLUMNS; the grid has a column of programs for each
# COLUMNS values of the width.
@triton.jit
def _bias_relu(h, bias, out, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside, index = (row < rows) & (column < WIDTH), row * WIDTH + column
    b = tl.load(bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    total = tl.load(h + index, mask=inside, other=0.0).to(tl.float32) + b
    tl.store(out + index, tl.maximum(total, 0.0).to(out.dtype.element_ty), mask=inside)


# The mask of ReLU is read off its result: where `out` is positive, the gradient passes.
# `sums` (programs down, WIDTH) receives each program's partial gradient of the bias.
@triton.jit
def _bias_relu_backward(
    out, d_out, dh, sums, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row = (begin + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside, index = (row < rows) & (column < WIDTH), row * WIDTH + column
        d = tl.load(d_out + index, mask=inside, other=0.0)
        d = tl.where(tl.load(out + index, mask=inside, other=0.0) > 0, d, 0.0)
        tl.store(dh + index, d, mask=inside)
        total += d.to(tl.float32)
    tl.store(sums + tl.program_id(1) * WIDTH + column, tl.sum(total, 0)[None, :], mask=column < WIDTH)


# Add up partial sums over all programs: one program per SUM_COLUMNS columns walks down all rows.
@triton.jit
def _sum_rows(sums, out, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, rows, ROWS):
        row = begin + tl.arange(0, ROWS)[:, None]
        total += tl.load(sums + row * WIDTH + column, mask=(row < rows) & (column < WIDTH), other=0.0)
    tl.store(out + column, tl.sum(total, 0)[None, :], mask=column < WIDTH)


@triton_op("regard::bias_relu", mutates_args=())
def bias_relu(h_NF: Tensor, bias_F: Tensor) -> Tensor:
    """Compute max(0, h + b) in the precision of h."""
    rows, width = h_NF.shape
    out_NF = torch.empty_like(h_NF)
    grid = (triton.cdiv(width, COLUMNS), triton.cdiv(rows, ROWS))
    wrap_triton(_bias_relu)[grid](h_NF, bias_F, out_NF, rows, WIDTH=width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS)
    return out_NF


@triton_op("regard::bias_relu_backward", mutates_args=())
def _gradients(d_NF: Tensor, out_NF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of h and b."""
    rows, width = out_NF.shape
    across = triton.cdiv(width, COLUMNS)
    down = max(1, min(PROGRAMS // across, triton.cdiv(rows, ROWS)))
    dh_NF, sums = torch.empty_like(out_NF), torch.empty(down, width, dtype=torch.float32, device=out_NF.device)
    wrap_triton(_bias_relu_backward)[(across, down)](
        out_NF, d_NF, dh_NF, sums, rows, WIDTH=width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
    )
    total_F = torch.empty(width, dtype=torch.float32, device=out_NF.device)
    # A kernel of our own, because compiled code would leave a sum over few rows to a handful of programs.
    wrap_triton(_sum_rows)[(triton.cdiv(width, SUM_COLUMNS),)](
        sums, total_F, down, WIDTH=width, ROWS=SUM_ROWS, COLUMNS=SUM_COLUMNS
    )
    return dh_NF, total_F


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(output)
    ctx.dtype = inputs[1].dtype


def _backward(ctx, d_NF):
    (out_NF,) = ctx.saved_tensors
    dh_NF, d_bias_F = _gradients(d_NF.contiguous(), out_NF)
    return dh_NF, d_bias_F.to(ctx.dtype)


bias_relu.register_autograd(_backward, setup_context=_save)
