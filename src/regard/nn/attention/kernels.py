"""The one place where a kernel is chosen. All of them give the same numbers, to their precision.

| kernel    | serves                                                                        |
|-----------|-------------------------------------------------------------------------------|
| watchable | any score, and whenever somebody watches scores, mask or weights              |
| ragged    | CUDA with Triton: programs for each sentence and head                         |
| flex      | CUDA, compiled: the packed stream                                             |
| varlen    | CUDA, not compiled, half precision: flash attention with offsets              |
| padded    | everything else: rows of like length side by side (CPU), or one rectangle;     |
|           | on a CPU a window that is narrow for a row is computed in blocks              |
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from regard.nn.attention.banded import within
from regard.nn.attention.dense import Inside, dense, watchable
from regard.nn.attention.flex import flex
from regard.nn.attention.plan import Cells, Plan
from regard.nn.cuda import HAVE_TRITON, serves

if HAVE_TRITON:
    from regard.nn.cuda import attention

SMALLEST_HEAD, LARGEST_HEAD = 16, 256  # of the kernels that take no padding


def attend(
    q_NHE: Float[Tensor, "N H E"],
    k_NHE: Float[Tensor, "N2 H E"],
    v_NHE: Float[Tensor, "N2 H E2"],
    plan: Plan,
    inside: Inside,
) -> Float[Tensor, "N H E2"]:
    """Mix the values of a ragged batch for each query."""
    scale, sizes = inside.score.scale, (q_NHE.shape[1], q_NHE.shape[2], v_NHE.shape[2])
    dropout = inside.drop.p if inside.drop.training else 0.0
    if scale is None or inside.watched:
        return _watchable(q_NHE, k_NHE, v_NHE, plan, inside)
    if plan.cells is not None:
        return _by_cells(q_NHE, k_NHE, v_NHE, plan.cells, scale, dropout)
    if _for_programs(q_NHE, sizes, plan, inside):
        return _ragged([each.flatten(1) for each in (q_NHE, k_NHE, v_NHE)], sizes, plan, scale)
    plain = _plain(sizes, inside)
    if plan.blocks is not None and plain:
        return flex(q_NHE, k_NHE, v_NHE, plan.blocks, plan.sight, scale)
    half = q_NHE.dtype in (torch.bfloat16, torch.float16)
    if q_NHE.is_cuda and half and plain and not plan.sight.slopes and q_NHE.shape[2] == v_NHE.shape[2]:
        return _varlen(q_NHE, k_NHE, v_NHE, plan, scale)
    return _one_rectangle(q_NHE, k_NHE, v_NHE, plan, scale, dropout)


def attend_projected(
    projected: list[Float[Tensor, "_ _"]], sizes: tuple[int, int, int], plan: Plan, inside: Inside
) -> Float[Tensor, "N H E2"]:
    """The same of what merged projections made: all in one tensor, or queries in one and the rest in another.

    `sizes` are the number of heads, and how many numbers a head's keys and values have. Our own kernel gives the
    gradients back merged, where others leave them to be put together.
    """
    if inside.score.scale is not None and _for_programs(projected[0], sizes, plan, inside):
        return _ragged(projected, sizes, plan, inside.score.scale)
    return attend(*parted(projected, sizes), plan, inside)


def parted(
    projected: list[Float[Tensor, "_ _"]], sizes: tuple[int, int, int]
) -> tuple[Float[Tensor, "N H E"], Float[Tensor, "N2 H E"], Float[Tensor, "N2 H E2"]]:
    """Queries, keys and values of the heads, cut out of merged projections."""
    heads, each = sizes[0], [sizes[1], sizes[1], sizes[2]]
    wide = [heads * size for size in each]
    alone = len(projected) - 1
    cut = [*projected[:alone], *torch.split_with_sizes(projected[alone], wide[alone:], dim=-1)]
    q_NHE, k_NHE, v_NHE = (part.view(-1, heads, size) for part, size in zip(cut, each, strict=True))
    return q_NHE, k_NHE, v_NHE


def _watchable(q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, plan: Plan, inside: Inside) -> Tensor:
    """Padded rows, each step through its tap."""
    query_Q = torch.arange(plan.queries.longest, device=q_NHE.device)
    key_K = torch.arange(plan.keys.longest, device=q_NHE.device)
    mixed_BHQE = watchable(
        plan.queries.pad(q_NHE).transpose(1, 2),
        plan.keys.pad(k_NHE).transpose(1, 2),
        plan.keys.pad(v_NHE).transpose(1, 2),
        plan.mask(),
        plan.sight.bias(query_Q, key_K).to(q_NHE.dtype) if plan.sight.slopes else None,
        inside,
    )
    return plan.queries.unpad(mixed_BHQE.transpose(1, 2))


def _by_cells(q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, cells: Cells, scale: float, dropout: float) -> Tensor:
    """Cell after cell of sequences of like length."""
    mixed, dtype = [], v_NHE.dtype
    if torch.is_grad_enabled() and q_NHE.requires_grad:
        # Half-precision products are compiled for each shape, which takes longer than products as small as these.
        q_NHE, k_NHE, v_NHE = (each.to(torch.promote_types(dtype, torch.float32)) for each in (q_NHE, k_NHE, v_NHE))
    sides = zip(cells.queries.spread(q_NHE), cells.keys.spread(k_NHE), cells.keys.spread(v_NHE), strict=True)
    with torch.autocast("cpu", enabled=False):
        for (q, k, v), limit in zip(sides, cells.limits, strict=True):
            if q.shape[1] == 0 or k.shape[1] == 0:
                mixed.append(q.new_zeros(*q.shape[:3], v.shape[3]))
            else:
                mixed.append(within(q, k, v, limit, scale, dropout))
    return cells.queries.collect(mixed).to(dtype)


def _plain(sizes: tuple[int, int, int], inside: Inside) -> bool:
    """Whether kernels that take no padding can do it."""
    dropped = inside.drop.training and inside.drop.p > 0
    return not dropped and min(sizes[1:]) >= SMALLEST_HEAD and max(sizes[1:]) <= LARGEST_HEAD


def _for_programs(like: Tensor, sizes: tuple[int, int, int], plan: Plan, inside: Inside) -> bool:
    """Whether our own kernel can do it: short sequences, and heads of a size that fills tiles."""
    filled = all(size in (16, 32, 64, 128) for size in sizes[1:])
    ready = plan.turns is not None and not plan.sight.slopes and not inside.watched
    return ready and filled and _plain(sizes, inside) and serves(like)


def _ragged(tensors: list[Tensor], sizes: tuple[int, int, int], plan: Plan, scale: float) -> Tensor:
    """Our own kernel, told the offsets."""
    turns = plan.turns
    assert turns is not None, "`_for_programs` was asked"
    window = attention.NO_WINDOW if plan.sight.window is None else plan.sight.window
    offsets = plan.queries.offsets, plan.keys.offsets
    told = turns.order_B, turns.ends, turns.longest, sizes, scale, plan.sight.causal, window
    mixed_NHE, _ = attention.ragged_attention([each.contiguous() for each in tensors], *offsets, *told)
    assert isinstance(mixed_NHE, Tensor)
    return mixed_NHE


def _varlen(q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, plan: Plan, scale: float) -> Tensor:
    """Flash attention that is told the offsets."""
    behind = -1 if plan.sight.window is None else plan.sight.window
    mixed_NHE = varlen_attn(
        q_NHE,
        k_NHE,
        v_NHE,
        plan.queries.offsets,
        plan.keys.offsets,
        plan.queries.longest,
        plan.keys.longest,
        scale=scale,
        window_size=(behind, 0 if plan.sight.causal else behind),
    )
    assert isinstance(mixed_NHE, Tensor)
    return mixed_NHE


def _one_rectangle(q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, plan: Plan, scale: float, dropout: float) -> Tensor:
    """All sequences padded to the longest: needs no length on the host, so no device is waited for."""
    if plan.queries.longest == 0 or plan.keys.longest == 0:
        return q_NHE.new_zeros(*q_NHE.shape[:2], v_NHE.shape[2])
    query_Q = torch.arange(plan.queries.longest, device=q_NHE.device)
    key_K = torch.arange(plan.keys.longest, device=q_NHE.device)
    allowed = plan.mask()
    # Some kernels give NaN to a query that sees nothing: let it see the padding, and clear what it saw.
    blind_BHQ = ~allowed.any(-1, keepdim=True)
    mask = torch.where(allowed | blind_BHQ, plan.sight.bias(query_Q, key_K), -torch.inf)
    mixed_BHQE = dense(
        plan.queries.pad(q_NHE).transpose(1, 2),
        plan.keys.pad(k_NHE).transpose(1, 2),
        plan.keys.pad(v_NHE).transpose(1, 2),
        mask,
        scale,
        dropout,
    )
    return plan.queries.unpad(mixed_BHQE.masked_fill(blind_BHQ, 0).transpose(1, 2))
