"""The k greatest values of rows, found by blocks: a plain top-k reads and sorts more than it needs."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 64
"""Values in a block. The k greatest values are in the k blocks with the greatest maxima, which one pass finds."""
SMALL = 1024
"""Values in a row below which blocks are not faster."""


class TopValues(NamedTuple):
    """The greatest values of the rows of each beam, in descending order of their sums."""

    sum_BK: Tensor
    """The values plus what was added to their rows."""
    value_BK: Tensor
    row_BK: Tensor
    """The row of each value within its beam."""
    column_BK: Tensor


def top(values_RV: Float[Tensor, "R V"], added_BW: Float[Tensor, "B W"], k: int) -> TopValues:
    """Return the k greatest sums of W rows together, with `added_BW` added to each row; all, if there are fewer."""
    (beams, rows), size = added_BW.shape, values_RV.shape[1]
    k = min(k, rows * size)
    if size < SMALL or k * BLOCK > size:
        values_BWV = values_RV.reshape(beams, rows, size)
        sum_BK, at_BK = (values_BWV + added_BW[:, :, None]).flatten(1).topk(k)
        return TopValues(sum_BK, values_BWV.flatten(1).gather(1, at_BK), torch.floor_divide(at_BK, size), at_BK % size)
    maxima_BWN = block_maxima(values_RV).view(beams, rows, -1) + added_BW[:, :, None]
    blocks = maxima_BWN.shape[2]
    block_BK = maxima_BWN.flatten(1).topk(k, sorted=False).indices
    row_BK = torch.floor_divide(block_BK, blocks)  # `//` takes 2 µs longer
    column = ((block_BK - row_BK * blocks) * BLOCK)[:, :, None] + torch.arange(BLOCK, device=values_RV.device)
    # Rows may be part of a wider table: the stride says how far apart they are, so that they need not be copied.
    stride = values_RV.stride(0)
    lines_BV = values_RV.as_strided((beams, (rows - 1) * stride + size), (rows * stride, 1))
    value = lines_BV.gather(1, (row_BK[:, :, None] * stride + column.clamp(max=size - 1)).flatten(1))
    sums = value.view_as(column) + added_BW.gather(1, row_BK)[:, :, None]
    sum_BK, at_BK = sums.masked_fill_(column >= size, -torch.inf).flatten(1).topk(k)
    row_BK = row_BK.gather(1, torch.floor_divide(at_BK, BLOCK))
    return TopValues(sum_BK, value.gather(1, at_BK), row_BK, column.flatten(1).gather(1, at_BK))


def greatest(values_RV: Float[Tensor, "R V"]) -> tuple[Float[Tensor, " R"], Int[Tensor, " R"]]:
    """Return the greatest value of each row, and its column."""
    size = values_RV.shape[1]
    if size < SMALL or values_RV.device.type != "cpu":
        best_R, at_R = values_RV.max(1)
        return best_R, at_R
    block_R = block_maxima(values_RV).argmax(1)
    at = (block_R[:, None] * BLOCK + torch.arange(BLOCK, device=values_RV.device)).clamp_(max=size - 1)
    best_R, chosen_R = values_RV.gather(1, at).max(1)
    return best_R, at.gather(1, chosen_R[:, None])[:, 0]


def block_maxima(values_RV: Float[Tensor, "R V"]) -> Float[Tensor, "R N"]:
    """Return the greatest value of each block of each row; the last block may be short."""
    blocks = values_RV.shape[1] // BLOCK
    whole = blocks * BLOCK
    maxima_RN = values_RV[:, :whole].view(-1, blocks, BLOCK).amax(2)
    if whole == values_RV.shape[1]:
        return maxima_RN
    return torch.cat([maxima_RN, values_RV[:, whole:].amax(1, keepdim=True)], 1)
