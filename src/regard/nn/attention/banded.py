"""Attention within a window, in blocks, so that it costs what the window holds and not what the sequence does.

Rows are cut into blocks of queries. A block looks at itself and at the window's width of its neighbours on each side,
and a mask takes off what is still too far (restricted self-attention, Vaswani et al. 2017, §4: O(r·n·d)).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.nn.attention.dense import dense
from regard.nn.attention.sight import Sight

BLOCK = 32  # queries at least: smaller blocks see less in vain, but products of them are slow
WORTH = 2.5  # times as many keys in a row as a block sees, from which on blocks are quicker than a mask over all pairs


@dataclass(frozen=True, eq=False)
class Band:
    """How rows of one length are cut. Build one with `band`."""

    block: int
    """Queries of a block."""
    before: int
    """Keys a block sees before itself."""
    behind: int
    """Keys it sees behind itself."""
    mask: Float[Tensor, "blocks #H Q K"]
    """What is added to the scores, for every block of every row: zero or the bias, or minus infinity."""


def pays(sight: Sight, columns: int) -> bool:
    """Whether blocks are quicker than a mask over all pairs of a row this long."""
    if sight.window is None:
        return False
    block, before, behind = _sizes(sight, sight.window)
    return columns >= WORTH * (before + block + behind)


def band(sight: Sight, columns: int, lengths_B: Int[Tensor, " B"]) -> Band:
    """Cut rows with so many columns, of which the first `lengths_B` hold tokens."""
    assert sight.window is not None, "without a window there is nothing to gain"
    block, before, behind = _sizes(sight, sight.window)
    first_C = torch.arange(0, columns, block)
    query_Q, key_K = torch.arange(block), torch.arange(-before, block + behind)
    place_CK = first_C[:, None] + key_K
    real_BCK = (place_CK >= 0) & (place_CK < lengths_B[:, None, None])
    allowed = sight.allows(query_Q[:, None], key_K) & real_BCK[:, :, None]
    # A query behind its row's end may see nothing, and would be no number; nobody asks what it sees.
    allowed = allowed | ~allowed.any(-1, keepdim=True)
    mask = torch.where(allowed[:, :, None], sight.bias(query_Q, key_K), -torch.inf)
    return Band(block, before, behind, mask.flatten(0, 1))


def banded(
    q_BQHE: Float[Tensor, "B Q H E"],
    k_BKHE: Float[Tensor, "B K H E"],
    v_BKHE: Float[Tensor, "B K H E2"],
    band: Band,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B Q H E2"]:
    """Attend by the dot product, each query to the keys in its window."""
    rows, columns = q_BQHE.shape[:2]
    q = _blocks(q_BQHE, band.block).flatten(0, 1)
    k, v = (_seen(each, band).flatten(0, 1) for each in (k_BKHE, v_BKHE))
    mixed = dense(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), band.mask, scale, dropout)
    return mixed.transpose(1, 2).reshape(rows, -1, *v_BKHE.shape[2:])[:, :columns]


def within(
    q_BQHE: Float[Tensor, "B Q H E"],
    k_BKHE: Float[Tensor, "B K H E"],
    v_BKHE: Float[Tensor, "B K H E2"],
    limit: Band | Float[Tensor, "#B #H #Q K"] | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B Q H E2"]:
    """Attend by the dot product within rows of one length: in blocks, under a mask, or to everything."""
    if isinstance(limit, Band):
        return banded(q_BQHE, k_BKHE, v_BKHE, limit, scale, dropout)
    q_BHQE, k_BHKE, v_BHKE = (each.transpose(1, 2) for each in (q_BQHE, k_BKHE, v_BKHE))
    return dense(q_BHQE, k_BHKE, v_BHKE, limit, scale, dropout).transpose(1, 2)


def _sizes(sight: Sight, window: int) -> tuple[int, int, int]:
    """Queries of a block, and the keys it sees before and behind itself."""
    return max(BLOCK, window), window, 0 if sight.causal else window


def _blocks(x_BKHE: Float[Tensor, "B K H E"], block: int) -> Float[Tensor, "B blocks K2 H E"]:
    """Rows cut into blocks, filled up with zeros."""
    missing = -x_BKHE.shape[1] % block
    filled = pad(x_BKHE, (0, 0, 0, 0, 0, missing))
    return filled.view(filled.shape[0], -1, block, *filled.shape[2:])


def _seen(x_BKHE: Float[Tensor, "B K H E"], band: Band) -> Float[Tensor, "B blocks K2 H E"]:
    """What each block sees: the end of the one before it, itself, and the beginning of the next."""
    own = _blocks(x_BKHE, band.block)
    before = pad(own[:, :-1, band.block - band.before :], (0, 0, 0, 0, 0, 0, 1, 0))
    parts = [before, own]
    if band.behind:
        parts.append(pad(own[:, 1:, : band.behind], (0, 0, 0, 0, 0, 0, 0, 1)))
    return torch.cat(parts, 2)
