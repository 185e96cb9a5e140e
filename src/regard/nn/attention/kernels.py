"""Choose the attention kernel for a batch. All kernels compute the same function, up to rounding.

| kernel    | used for                                                                      |
|-----------|-------------------------------------------------------------------------------|
| explicit  | any score function, and whenever scores, mask or weights are watched          |
| ragged    | CUDA with Triton: our own kernel, one program per sequence and head           |
| flex      | CUDA, compiled: FlexAttention over the packed stream                          |
| varlen    | CUDA, eager, half precision: FlashAttention with offsets                      |
| padded    | everything else: length buckets on a CPU, one padded rectangle elsewhere;      |
|           | on a CPU, a narrow window is computed in blocks                               |
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from regard.nn.attention.banded import padded_attention
from regard.nn.attention.dense import AttentionCore, dense_attention, explicit_attention
from regard.nn.attention.flex import packed_flex_attention
from regard.nn.attention.plan import AttentionPlan, LengthBuckets
from regard.nn.cuda import HAVE_TRITON, supports

if HAVE_TRITON:
    from regard.nn.cuda import attention

MIN_HEAD_SIZE, MAX_HEAD_SIZE = 16, 256  # what kernels without padding accept

HeadSizes = tuple[int, int, int]
"""Number of heads, size of a head's keys and size of a head's values."""


def attend(
    q_NHE: Float[Tensor, "N H E"],
    k_NHE: Float[Tensor, "N2 H E"],
    v_NHE: Float[Tensor, "N2 H E2"],
    plan: AttentionPlan,
    core: AttentionCore,
) -> Float[Tensor, "N H E2"]:
    """Return for each query of a ragged batch the values mixed by its attention weights."""
    scale, sizes = core.score.scale, (q_NHE.shape[1], q_NHE.shape[2], v_NHE.shape[2])
    if scale is None or core.watched:
        return _explicit(q_NHE, k_NHE, v_NHE, plan, core)
    if plan.buckets is not None:
        return _in_buckets(q_NHE, k_NHE, v_NHE, plan.buckets, scale, core.dropout)
    if _ragged_applies(q_NHE, sizes, plan, core):
        return _ragged([x.flatten(1) for x in (q_NHE, k_NHE, v_NHE)], sizes, plan, scale)
    unpadded = _unpadded_applies(sizes, core)
    if plan.block_mask is not None and unpadded:
        return packed_flex_attention(q_NHE, k_NHE, v_NHE, plan.block_mask, plan.mask, scale)
    half = q_NHE.dtype in (torch.bfloat16, torch.float16)
    if q_NHE.is_cuda and half and unpadded and not plan.mask.slopes and q_NHE.shape[2] == v_NHE.shape[2]:
        return _varlen(q_NHE, k_NHE, v_NHE, plan, scale)
    return _one_rectangle(q_NHE, k_NHE, v_NHE, plan, scale, core.dropout)


def attend_projected(
    projected: list[Float[Tensor, "_ _"]], sizes: HeadSizes, plan: AttentionPlan, core: AttentionCore
) -> Float[Tensor, "N H E2"]:
    """Attend with queries, keys and values given as the outputs of merged projections.

    Our own kernel reads the merged tensors directly and returns merged gradients, which spares a split and a copy.

    Args:
        projected: One tensor with queries, keys and values side by side, or queries in one tensor and the rest in
            another.
        sizes: Number of heads, size of a head's keys and size of a head's values.
        plan: The plan of the batch.
        core: Score function, taps and dropout.
    """
    if core.score.scale is not None and _ragged_applies(projected[0], sizes, plan, core):
        return _ragged(projected, sizes, plan, core.score.scale)
    return attend(*split_heads(projected, sizes), plan, core)


def split_heads(
    projected: list[Float[Tensor, "_ _"]], sizes: HeadSizes
) -> tuple[Float[Tensor, "N H E"], Float[Tensor, "N2 H E"], Float[Tensor, "N2 H E2"]]:
    """Split the outputs of merged projections into queries, keys and values of each head."""
    heads, head_sizes = sizes[0], [sizes[1], sizes[1], sizes[2]]
    widths = [heads * size for size in head_sizes]
    merged = len(projected) - 1  # only the last tensor holds several parts
    parts = [*projected[:merged], *torch.split_with_sizes(projected[merged], widths[merged:], dim=-1)]
    q_NHE, k_NHE, v_NHE = (part.view(-1, heads, size) for part, size in zip(parts, head_sizes, strict=True))
    return q_NHE, k_NHE, v_NHE


def _explicit(q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, plan: AttentionPlan, core: AttentionCore) -> Tensor:
    """Attend over padded rows, with every intermediate tensor passing through its tap."""
    query_Q = torch.arange(plan.queries.longest, device=q_NHE.device)
    key_K = torch.arange(plan.keys.longest, device=q_NHE.device)
    mixed_BHQE = explicit_attention(
        plan.queries.pad(q_NHE).transpose(1, 2),
        plan.keys.pad(k_NHE).transpose(1, 2),
        plan.keys.pad(v_NHE).transpose(1, 2),
        plan.padded_mask(),
        plan.mask.bias(query_Q, key_K).to(q_NHE.dtype) if plan.mask.slopes else None,
        core,
    )
    return plan.queries.unpad(mixed_BHQE.transpose(1, 2))


def _in_buckets(
    q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, buckets: LengthBuckets, scale: float, dropout: float
) -> Tensor:
    """Attend bucket after bucket of sequences of similar length."""
    mixed, dtype = [], v_NHE.dtype
    if torch.is_grad_enabled() and q_NHE.requires_grad:
        # oneDNN compiles half-precision products for each shape, which takes longer than such small products save.
        q_NHE, k_NHE, v_NHE = (x.to(torch.promote_types(dtype, torch.float32)) for x in (q_NHE, k_NHE, v_NHE))
    rectangles = zip(buckets.queries.pad(q_NHE), buckets.keys.pad(k_NHE), buckets.keys.pad(v_NHE), strict=True)
    with torch.autocast("cpu", enabled=False):
        for (q, k, v), limit in zip(rectangles, buckets.limits, strict=True):
            if q.shape[1] == 0 or k.shape[1] == 0:
                mixed.append(q.new_zeros(*q.shape[:3], v.shape[3]))
            else:
                mixed.append(padded_attention(q, k, v, limit, scale, dropout))
    return buckets.queries.unpad(mixed).to(dtype)


def _unpadded_applies(sizes: HeadSizes, core: AttentionCore) -> bool:
    """Return whether kernels without padding support these heads; none of them drops weights."""
    dropped = core.drop.training and core.drop.p > 0
    return not dropped and min(sizes[1:]) >= MIN_HEAD_SIZE and max(sizes[1:]) <= MAX_HEAD_SIZE


def _ragged_applies(like: Tensor, sizes: HeadSizes, plan: AttentionPlan, core: AttentionCore) -> bool:
    """Return whether our own Triton kernel applies: short sequences, and head sizes that fill tiles."""
    fills_tiles = all(size in (16, 32, 64, 128) for size in sizes[1:])
    prepared = plan.length_classes is not None and not plan.mask.slopes and not core.watched
    return prepared and fills_tiles and _unpadded_applies(sizes, core) and supports(like)


def _ragged(tensors: list[Tensor], sizes: HeadSizes, plan: AttentionPlan, scale: float) -> Tensor:
    """Attend by our own Triton kernel over the packed stream."""
    classes = plan.length_classes
    assert classes is not None, "checked by `_ragged_applies`"
    window = attention.NO_WINDOW if plan.mask.window is None else plan.mask.window
    offsets = plan.queries.offsets, plan.keys.offsets
    settings = classes.order_B, classes.bounds, classes.longest, sizes, scale, plan.mask.causal, window
    mixed_NHE, _ = attention.ragged_attention([x.contiguous() for x in tensors], *offsets, *settings)
    assert isinstance(mixed_NHE, Tensor)
    return mixed_NHE


def _varlen(q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Attend by FlashAttention over the packed stream."""
    before = -1 if plan.mask.window is None else plan.mask.window  # -1 is no limit
    mixed_NHE = varlen_attn(
        q_NHE,
        k_NHE,
        v_NHE,
        plan.queries.offsets,
        plan.keys.offsets,
        plan.queries.longest,
        plan.keys.longest,
        scale=scale,
        window_size=(before, 0 if plan.mask.causal else before),
    )
    assert isinstance(mixed_NHE, Tensor)
    return mixed_NHE


def _one_rectangle(
    q_NHE: Tensor, k_NHE: Tensor, v_NHE: Tensor, plan: AttentionPlan, scale: float, dropout: float
) -> Tensor:
    """Attend over all sequences padded to the longest, which needs no lengths on the host and no synchronisation."""
    if plan.queries.longest == 0 or plan.keys.longest == 0:
        return q_NHE.new_zeros(*q_NHE.shape[:2], v_NHE.shape[2])
    query_Q = torch.arange(plan.queries.longest, device=q_NHE.device)
    key_K = torch.arange(plan.keys.longest, device=q_NHE.device)
    allowed = plan.padded_mask()
    # Some kernels return NaN for a fully masked query: allow it all keys, and set its result to zero afterwards.
    blind_BHQ = ~allowed.any(-1, keepdim=True)
    additive_mask = torch.where(allowed | blind_BHQ, plan.mask.bias(query_Q, key_K), -torch.inf)
    mixed_BHQE = dense_attention(
        plan.queries.pad(q_NHE).transpose(1, 2),
        plan.keys.pad(k_NHE).transpose(1, 2),
        plan.keys.pad(v_NHE).transpose(1, 2),
        additive_mask,
        scale,
        dropout,
    )
    return plan.queries.unpad(mixed_BHQE.masked_fill(blind_BHQ, 0).transpose(1, 2))
