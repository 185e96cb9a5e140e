"""Attention plans: masks and layouts that kernels need of a batch, prepared once and shared by all layers."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from regard.nn.attention.banded import Band, banded_is_faster, make_band
from regard.nn.attention.buckets import BucketLayout, bucket_by_length
from regard.nn.attention.flex import block_mask
from regard.nn.attention.mask import AttentionMask
from regard.nn.cuda import HAVE_TRITON
from regard.nn.cuda.length_classes import MAX_LENGTH, LengthClasses, classify_lengths
from regard.nn.ragged import Layout


@dataclass(frozen=True, eq=False)
class LengthBuckets:
    """A batch cut into buckets of similar length, for kernels that need padded rows."""

    queries: BucketLayout
    keys: BucketLayout
    limits: tuple[Band | Tensor | None, ...]
    """Which keys are allowed in each bucket: a band for attention in blocks, an additive mask (the bias where allowed,
    minus infinity elsewhere), or None for full attention."""


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Which queries of a ragged batch attend to which keys. Create one with `plan_attention`."""

    mask: AttentionMask
    queries: Layout
    keys: Layout
    buckets: LengthBuckets | None
    """Prepared on a CPU."""
    block_mask: BlockMask | None
    """Prepared on CUDA while compiling."""
    length_classes: LengthClasses | None = None
    """Prepared on CUDA with Triton if all sequences are short."""

    def padded_mask(self) -> Bool[Tensor, "B 1 Q K"]:
        """Return the boolean mask over padded rows: true where a query may attend to a key, false for padding."""
        query_Q = torch.arange(self.queries.longest, device=self.queries.offsets.device)
        key_K = torch.arange(self.keys.longest, device=self.keys.offsets.device)
        real_BQ = query_Q < self.queries.lengths_B[:, None]
        real_BK = key_K < self.keys.lengths_B[:, None]
        allowed_QK = self.mask.allows(query_Q[:, None], key_K)
        return (real_BQ[:, :, None] & real_BK[:, None, :] & allowed_QK)[:, None]


def plan_attention(mask: AttentionMask, queries: Layout, keys: Layout) -> AttentionPlan:
    """Prepare attention in which the queries of sequence i attend to the keys of sequence i.

    Example:
        >>> layout = Layout.from_lengths([3, 5])
        >>> plan = plan_attention(AttentionMask(causal=True), layout, layout)

    Raises:
        ValueError: If the two sides have different numbers of sequences.
    """
    if len(queries) != len(keys):
        raise ValueError(
            f"queries have {len(queries)} sequences but keys have {len(keys)}; give one key sequence per query sequence"
        )
    assert not mask.position_dependent or queries is keys, "a mask on positions applies within one sequence only"
    on_cpu, compiling = queries.offsets.device.type == "cpu", torch.compiler.is_compiling()
    buckets = _make_buckets(mask, queries, keys) if on_cpu and not compiling else None
    blocks = block_mask(mask, queries, keys) if compiling and not on_cpu else None
    short = max(queries.longest, keys.longest) <= MAX_LENGTH
    length_classes = classify_lengths(queries, keys) if HAVE_TRITON and queries.offsets.is_cuda and short else None
    return AttentionPlan(mask, queries, keys, buckets, blocks, length_classes)


def _make_buckets(mask: AttentionMask, queries: Layout, keys: Layout) -> LengthBuckets:
    """Cut a batch into buckets of similar length and prepare the mask of each."""
    query_layout, key_layout, members = bucket_by_length(queries, keys)
    limits = []
    for sequences, (_, columns), (_, key_columns) in zip(members, query_layout.shapes, key_layout.shapes, strict=True):
        lengths_B = keys.lengths_B[torch.from_numpy(sequences)]
        limits.append(_make_limit(mask, columns, key_columns, lengths_B))
    return LengthBuckets(query_layout, key_layout, tuple(limits))


def _make_limit(
    mask: AttentionMask, columns: int, key_columns: int, lengths_B: Int[Tensor, " B"]
) -> Band | Tensor | None:
    """Prepare the mask of padded rows whose first `lengths_B` keys are real."""
    if banded_is_faster(mask, columns):
        return make_band(mask, columns, lengths_B)
    # Causal queries never reach the padding after their sequence, so only other masks must exclude it.
    padded = not mask.causal and bool((lengths_B < key_columns).any())
    if not padded and not mask.position_dependent:
        return None
    query_Q, key_K = torch.arange(columns), torch.arange(key_columns)
    allowed = mask.allows(query_Q[:, None], key_K)[None, None]
    if padded:
        allowed = allowed & (key_K < lengths_B[:, None, None, None])
        # A padding query may have no allowed key, and its gradient would be NaN: allow it all. Its result is not used.
        allowed = allowed | ~allowed.any(-1, keepdim=True)
    return torch.where(allowed, mask.bias(query_Q, key_K), -torch.inf)
