"""Windowed attention in blocks, so that its cost grows with the window and not with the sequence.

Rows are cut into blocks of queries. A block attends to itself and to one window of neighbours on each side; a mask
removes the keys that are still too far away (restricted self-attention, Vaswani et al. 2017, §4: O(r·n·d)).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.nn.attention.dense import dense_attention
from regard.nn.attention.mask import AttentionMask

BLOCK = 32  # fewest queries of a block: smaller blocks mask fewer keys, but their matrix products are slow
MIN_SPEEDUP = 2.5  # keys of a row over keys of a block from which blocks are faster than one mask over all pairs


@dataclass(frozen=True, eq=False)
class Band:
    """The blocks that rows of one length are cut into. Create one with `make_band`."""

    block: int
    """Number of queries in a block."""
    before: int
    """Number of keys that a block sees before its own."""
    after: int
    """Number of keys that a block sees after its own."""
    additive_mask: Float[Tensor, "blocks #H Q K"]
    """What is added to the scores, for every block of every row: the bias where allowed, minus infinity elsewhere."""


def banded_is_faster(mask: AttentionMask, columns: int) -> bool:
    """Return whether blocks are faster than a mask over all pairs for rows of `columns` tokens."""
    if mask.window is None:
        return False
    block, before, after = _sizes(mask, mask.window)
    return columns >= MIN_SPEEDUP * (before + block + after)


def make_band(mask: AttentionMask, columns: int, lengths_B: Int[Tensor, " B"]) -> Band:
    """Cut padded rows of `columns` tokens, the first `lengths_B` of which are real, into blocks."""
    assert mask.window is not None, "blocks need a window"
    block, before, after = _sizes(mask, mask.window)
    start_C = torch.arange(0, columns, block)
    # Positions relative to the block's first query; the same for every block.
    query_Q, key_K = torch.arange(block), torch.arange(-before, block + after)
    column_CK = start_C[:, None] + key_K
    real_BCK = (column_CK >= 0) & (column_CK < lengths_B[:, None, None])
    allowed = mask.allows(query_Q[:, None], key_K) & real_BCK[:, :, None]
    # A padding query may have no allowed key, and its softmax would be NaN: allow it all keys. Its result is not used.
    allowed = allowed | ~allowed.any(-1, keepdim=True)
    additive_mask = torch.where(allowed[:, :, None], mask.bias(query_Q, key_K), -torch.inf)
    return Band(block, before, after, additive_mask.flatten(0, 1))


def padded_attention(
    q_BQHE: Float[Tensor, "B Q H E"],
    k_BKHE: Float[Tensor, "B K H E"],
    v_BKHE: Float[Tensor, "B K H E2"],
    limit: Band | Float[Tensor, "#B #H #Q K"] | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B Q H E2"]:
    """Attend by scaled dot products within padded rows.

    Args:
        q_BQHE: Queries.
        k_BKHE: Keys.
        v_BKHE: Values.
        limit: A band for attention in blocks, an additive mask over all pairs, or None for full attention.
        scale: Factor on the dot products.
        dropout: Probability with which a weight is dropped.
    """
    if isinstance(limit, Band):
        rows, columns = q_BQHE.shape[:2]
        q = _blocks(q_BQHE, limit.block).flatten(0, 1)
        k, v = (_with_neighbours(x, limit).flatten(0, 1) for x in (k_BKHE, v_BKHE))
        mixed = dense_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), limit.additive_mask, scale, dropout
        )
        return mixed.transpose(1, 2).reshape(rows, -1, *v_BKHE.shape[2:])[:, :columns]
    q_BHQE, k_BHKE, v_BHKE = (x.transpose(1, 2) for x in (q_BQHE, k_BKHE, v_BKHE))
    return dense_attention(q_BHQE, k_BHKE, v_BHKE, limit, scale, dropout).transpose(1, 2)


def _sizes(mask: AttentionMask, window: int) -> tuple[int, int, int]:
    """Return the queries of a block and the number of keys it sees before and after its own."""
    return max(BLOCK, window), window, 0 if mask.causal else window


def _blocks(x_BKHE: Float[Tensor, "B K H E"], block: int) -> Float[Tensor, "B blocks K2 H E"]:
    """Cut rows into blocks and pad the last one with zeros."""
    missing = -x_BKHE.shape[1] % block
    filled = pad(x_BKHE, (0, 0, 0, 0, 0, missing))
    return filled.view(filled.shape[0], -1, block, *filled.shape[2:])


def _with_neighbours(x_BKHE: Float[Tensor, "B K H E"], band: Band) -> Float[Tensor, "B blocks K2 H E"]:
    """Return for each block the end of the previous block, its own tokens and the beginning of the next block."""
    own = _blocks(x_BKHE, band.block)
    before = pad(own[:, :-1, band.block - band.before :], (0, 0, 0, 0, 0, 0, 1, 0))
    parts = [before, own]
    if band.after:
        parts.append(pad(own[:, 1:, : band.after], (0, 0, 0, 0, 0, 0, 0, 1)))
    return torch.cat(parts, 2)
