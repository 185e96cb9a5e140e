"""Attention for recordings: the kernels for sentences of different length side by side.

Each of them leaves much of the device idle, the one for the few long sentences most of it, and none needs another.
Launched on streams of their own they overlap, which costs the host more than it gives, but nothing where they are
recorded.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from regard.nn.cuda.attention import Launch, back, forth, save


@torch.library.custom_op("regard::attention_apart", mutates_args=())
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
    """As `regard.nn.cuda.attention` has it."""
    made, launches = forth(tensors, (q_offsets, k_offsets, order_B, ends), longest, sizes, scale, causal, window)
    _side_by_side(launches, tensors[0])
    return made


@torch.library.custom_op("regard::attention_apart_backward", mutates_args=())
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
    where = q_offsets, k_offsets, order_B, ends
    made, launches = back((do_NHE, out_NHE, lse_HN), tensors, where, longest, sizes, scale, causal, window)
    _side_by_side(launches, tensors[0])
    return made


@ragged_attention.register_fake
def _(tensors, _q_offsets, _k_offsets, _order, _ends, _longest, sizes, *_settings):
    tokens, (heads, _, value_size) = tensors[0].shape[0], sizes
    lse_HN = tensors[0].new_empty(heads, tokens, dtype=torch.float32)
    return tensors[-1].new_empty(tokens, heads, value_size), lse_HN


@_gradients.register_fake
def _(_do, _out, _lse, tensors, *_told):
    return [torch.empty_like(each) for each in tensors]


def _backward_of(ctx, d_out_NHE, _d_lse):
    *tensors, q_offsets, k_offsets, order, ends, out, lse = ctx.saved_tensors
    told = (q_offsets, k_offsets, order, ends, ctx.longest, ctx.sizes, ctx.scale, ctx.causal, ctx.window)
    return _gradients(d_out_NHE.contiguous(), out, lse, tensors, *told), *[None] * 9


ragged_attention.register_autograd(_backward_of, setup_context=save)


def _side_by_side(launches: Sequence[Launch], like: Tensor) -> None:
    """Launch kernels that do not need each other: on streams of their own while they are recorded."""
    if not like.is_cuda or not torch.cuda.is_current_stream_capturing():
        for launch in launches:
            launch(_bare)
        return
    here = torch.cuda.current_stream(like.device)
    sides = [_stream(like.device, number) for number in range(len(launches) - 1)]
    for side, launch in zip(sides, launches, strict=False):
        side.wait_stream(here)
        with torch.cuda.stream(side):
            launch(_bare)
    launches[-1](_bare)
    for side in sides:
        here.wait_stream(side)


@cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """A stream of a device, made once."""
    return torch.cuda.Stream(device)


def _bare(kernel: object) -> object:
    """A kernel as it is: no compiler looks in here."""
    return kernel
