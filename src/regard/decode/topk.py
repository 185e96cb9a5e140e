"""The greatest of many values, found block by block: a plain top-k would write and sort far more than it needs."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 64
"""Values in a block. The k greatest values lie in the k blocks with the greatest maxima, and those are one pass."""
FEW = 1024
"""Values in a row below which there is nothing to be won."""


class Top(NamedTuple):
    """The greatest of some rows together, greatest first."""

    sum_BK: Tensor
    """The values with what was added to their rows."""
    value_BK: Tensor
    row_BK: Tensor
    """The row each stands in, counted within its beam."""
    column_BK: Tensor


def top(values_RV: Float[Tensor, "R V"], added_BW: Float[Tensor, "B W"], k: int) -> Top:
    """The k greatest of W rows together, something added to each row; with fewer than k values, all of them."""
    (beams, rows), size = added_BW.shape, values_RV.shape[1]
    k = min(k, rows * size)
    if size < FEW or k * BLOCK > size:
        values_BWV = values_RV.reshape(beams, rows, size)
        sum_BK, at_BK = (values_BWV + added_BW[:, :, None]).flatten(1).topk(k)
        return Top(sum_BK, values_BWV.flatten(1).gather(1, at_BK), at_BK // size, at_BK % size)
    greatest_BWN = maxima(values_RV).view(beams, rows, -1) + added_BW[:, :, None]
    blocks = greatest_BWN.shape[2]
    block_BK = greatest_BWN.flatten(1).topk(k, sorted=False).indices
    row_BK = block_BK // blocks
    column = ((block_BK - row_BK * blocks) * BLOCK)[:, :, None] + torch.arange(BLOCK, device=values_RV.device)
    # Rows may be part of a wider table: they lie as far apart as that says, and are not copied for it.
    apart = values_RV.stride(0)
    lines_BV = values_RV.as_strided((beams, (rows - 1) * apart + size), (rows * apart, 1))
    value = lines_BV.gather(1, (row_BK[:, :, None] * apart + column.clamp(max=size - 1)).flatten(1))
    sums = value.view_as(column) + added_BW.gather(1, row_BK)[:, :, None]
    sum_BK, at_BK = sums.masked_fill_(column >= size, -torch.inf).flatten(1).topk(k)
    return Top(sum_BK, value.gather(1, at_BK), row_BK.gather(1, at_BK // BLOCK), column.flatten(1).gather(1, at_BK))


def greatest(values_RV: Float[Tensor, "R V"]) -> tuple[Float[Tensor, " R"], Int[Tensor, " R"]]:
    """The greatest value of each row, and where it stands."""
    size = values_RV.shape[1]
    if size < FEW or values_RV.device.type != "cpu":
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
