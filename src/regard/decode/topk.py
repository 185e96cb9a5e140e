"""The greatest of many values, found block by block: a plain top-k would write and sort far more than it needs."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 64
"""Values in a block. The k greatest values lie in the k blocks with the greatest maxima, and those are one pass."""
FEW = 1024
"""Values in a row below which there is nothing to be won."""


def top(
    values_RV: Float[Tensor, "R V"], added_BW: Float[Tensor, "B W"], k: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The k greatest of W rows together, something added to each row, the greatest first; and where they stand.

    Place p of a line stands for value p % V of its row p // V. With fewer than k values, all of them.
    """
    (beams, rows), size = added_BW.shape, values_RV.shape[1]
    line_BV = values_RV.reshape(beams, rows * size)
    k = min(k, rows * size)
    if size < FEW or k * BLOCK > size:
        sums = values_RV.view(beams, rows, size) + added_BW[:, :, None]
        best_BK, at_BK = sums.flatten(1).topk(k)
        return best_BK, at_BK
    greatest_BWN = maxima(values_RV).view(beams, rows, -1) + added_BW[:, :, None]
    blocks = greatest_BWN.shape[2]
    block_BK = greatest_BWN.flatten(1).topk(k, sorted=False).indices
    row_BK = block_BK // blocks
    inside = torch.arange(BLOCK, device=values_RV.device)
    within = ((block_BK - row_BK * blocks) * BLOCK)[:, :, None] + inside
    at = row_BK[:, :, None] * size + within.clamp(max=size - 1)
    looked = line_BV.gather(1, at.flatten(1)).view(at.shape) + added_BW.gather(1, row_BK)[:, :, None]
    looked = looked.masked_fill_(within >= size, -torch.inf)
    best_BK, chosen_BK = looked.flatten(1).topk(k)
    return best_BK, at.flatten(1).gather(1, chosen_BK)


def greatest(values_RV: Float[Tensor, "R V"]) -> tuple[Float[Tensor, " R"], Int[Tensor, " R"]]:
    """The greatest value of each row, and where it stands."""
    size = values_RV.shape[1]
    if size < FEW:
        best_R, at_R = values_RV.max(1)
        return best_R, at_R
    block_R = maxima(values_RV).argmax(1)
    at = (block_R[:, None] * BLOCK + torch.arange(BLOCK, device=values_RV.device)).clamp_(max=size - 1)
    best_R, chosen_R = values_RV.gather(1, at).max(1)
    return best_R, at.gather(1, chosen_R[:, None])[:, 0]


def maxima(values_RV: Float[Tensor, "R V"]) -> Float[Tensor, "R N"]:
    """The greatest value of each block of a row; the last block may be short."""
    whole = values_RV.shape[1] // BLOCK
    cut = whole * BLOCK
    found = values_RV[:, :cut].view(-1, whole, BLOCK).amax(2)
    if cut == values_RV.shape[1]:
        return found
    return torch.cat([found, values_RV[:, cut:].amax(1, keepdim=True)], 1)
