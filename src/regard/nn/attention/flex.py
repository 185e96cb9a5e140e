"""Attention over the packed stream: FlexAttention with a block mask over sequence numbers (CUDA, compiled).

All tokens of the batch are one long row; a query sees the keys of its own sequence number. Blocks of the stream that
share no sequence are never visited, so the cost is that of the sequences, not of the stream squared.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.nn.attention.sight import Sight
from regard.nn.ragged import Layout

BLOCK = 128  # the tile of torch's kernel


def block_mask(sight: Sight, queries: Layout, keys: Layout) -> BlockMask:
    """Which blocks of the stream to visit, and what to see within them.

    Built from the first and last sequence of each block; torch's own `create_block_mask` would look at every pair of
    tokens. Nothing waits for the device.
    """

    def visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = queries.sequence_N[query] == keys.sequence_N[key]
        # Within a sequence, distance in the stream is distance in the sequence.
        return same if sight.unlimited else same & sight.allows(query, key)

    visit = _blocks_that_meet(sight, queries, keys)
    kept = visit.sum(-1, dtype=torch.int32)
    order = visit.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return BlockMask.from_kv_blocks(
        kept[None, None],
        order[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=visible,
        seq_lengths=(queries.tokens, keys.tokens),
    )


def flex(
    q_NHE: Float[Tensor, "N H E"],
    k_NHE: Float[Tensor, "N2 H E"],
    v_NHE: Float[Tensor, "N2 H E2"],
    blocks: BlockMask,
    sight: Sight,
    scale: float,
) -> Float[Tensor, "N H E2"]:
    """Attend within the packed stream."""
    slopes_H = sight.slopes_on(q_NHE.device, torch.get_default_dtype()) if sight.slopes else q_NHE.new_empty(0)

    def further_counts_less(score: Tensor, _batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score - slopes_H[head] * (key - query).abs()

    mixed = flex_attention(
        q_NHE.transpose(0, 1)[None],
        k_NHE.transpose(0, 1)[None],
        v_NHE.transpose(0, 1)[None],
        score_mod=further_counts_less if sight.slopes else None,
        block_mask=blocks,
        scale=scale,
    )
    return mixed[0].transpose(0, 1)


def _blocks_that_meet(sight: Sight, queries: Layout, keys: Layout) -> Bool[Tensor, "blocks blocks2"]:
    """Whether a block of queries holds a sequence that a block of keys holds too, and may see it."""
    first_query, last_query = _ends(queries.sequence_N)
    first_key, last_key = _ends(keys.sequence_N)
    meet = (first_query[:, None] <= last_key) & (first_key <= last_query[:, None])
    if sight.unlimited:
        return meet
    block = torch.arange(first_query.shape[0], device=first_query.device)
    ahead = block - block[:, None]
    if sight.causal:
        meet = meet & (ahead <= 0)
    if sight.window is not None:
        meet = meet & ((ahead.abs() - 1) * BLOCK < sight.window)
    return meet


def _ends(sequence_N: Int[Tensor, " N"]) -> tuple[Int[Tensor, " blocks"], Int[Tensor, " blocks"]]:
    """The first and the last sequence number of each block of the stream."""
    tokens = sequence_N.shape[0]
    begin = torch.arange(0, tokens, BLOCK, device=sequence_N.device)
    return sequence_N[begin], sequence_N[(begin + BLOCK - 1).clamp(max=tokens - 1)]
