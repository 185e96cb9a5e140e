"""FlexAttention over the packed stream of a batch (CUDA, compiled).

All tokens of the batch form one long row, and a query may attend only to keys of its own sequence. Blocks of the stream
without a common sequence are never visited, so the cost is that of the sequences and not of the stream squared.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.nn.attention.mask import AttentionMask
from regard.nn.ragged import Layout

BLOCK = 128  # the tile size of torch's kernel


def block_mask(mask: AttentionMask, queries: Layout, keys: Layout) -> BlockMask:
    """Return which blocks of the stream to visit, and which pairs to allow within them.

    The mask is computed from the first and last sequence of each block, without a synchronisation with the device;
    torch's own `create_block_mask` would evaluate every pair of tokens.
    """

    def allowed(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = queries.sequence_N[query] == keys.sequence_N[key]
        # Within a sequence, the distance in the stream is the distance in the sequence.
        return same if mask.full else same & mask.allows(query, key)

    visited = _overlapping_blocks(mask, queries, keys)
    count = visited.sum(-1, dtype=torch.int32)
    # A stable sort brings the visited key blocks of each query block to the front, in order.
    order = visited.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return BlockMask.from_kv_blocks(
        count[None, None],
        order[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=allowed,
        seq_lengths=(queries.tokens, keys.tokens),
    )


def packed_flex_attention(
    q_NHE: Float[Tensor, "N H E"],
    k_NHE: Float[Tensor, "N2 H E"],
    v_NHE: Float[Tensor, "N2 H E2"],
    blocks: BlockMask,
    mask: AttentionMask,
    scale: float,
) -> Float[Tensor, "N H E2"]:
    """Attend by scaled dot products within the packed stream."""
    slopes_H = mask.slopes_on(q_NHE.device, torch.get_default_dtype()) if mask.slopes else q_NHE.new_empty(0)

    def add_alibi(score: Tensor, _batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score - slopes_H[head] * (key - query).abs()

    mixed = flex_attention(
        q_NHE.transpose(0, 1)[None],
        k_NHE.transpose(0, 1)[None],
        v_NHE.transpose(0, 1)[None],
        score_mod=add_alibi if mask.slopes else None,
        block_mask=blocks,
        scale=scale,
    )
    return mixed[0].transpose(0, 1)


def _overlapping_blocks(mask: AttentionMask, queries: Layout, keys: Layout) -> Bool[Tensor, "blocks blocks2"]:
    """Return whether a block of queries and a block of keys share a sequence and may hold an allowed pair."""
    first_query, last_query = _first_and_last_sequence(queries.sequence_N)
    first_key, last_key = _first_and_last_sequence(keys.sequence_N)
    overlap = (first_query[:, None] <= last_key) & (first_key <= last_query[:, None])
    if mask.full:
        return overlap
    block = torch.arange(first_query.shape[0], device=first_query.device)
    ahead = block - block[:, None]
    if mask.causal:
        overlap = overlap & (ahead <= 0)
    if mask.window is not None:
        # Between blocks n apart, the closest pair of tokens is (n - 1) · BLOCK + 1 apart.
        overlap = overlap & ((ahead.abs() - 1) * BLOCK < mask.window)
    return overlap


def _first_and_last_sequence(sequence_N: Int[Tensor, " N"]) -> tuple[Int[Tensor, " blocks"], Int[Tensor, " blocks"]]:
    """Return the numbers of the first and the last sequence in each block of the stream."""
    tokens = sequence_N.shape[0]
    start = torch.arange(0, tokens, BLOCK, device=sequence_N.device)
    return sequence_N[start], sequence_N[(start + BLOCK - 1).clamp(max=tokens - 1)]
