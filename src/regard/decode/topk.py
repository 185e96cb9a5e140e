"""The k greatest of each row, found block by block."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCKS = 128
"""Blocks a row is cut into; their maxima are one pass, and only k blocks are looked into."""


def top(values_RV: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"]]:
    """The k greatest values of each row, greatest first, and where they stand.

    They lie in the k blocks with the greatest maxima. A block is every 128th column, so that the maxima of all blocks
    are found side by side.
    """
    if k == 1:
        best_R, at_R = values_RV.max(-1)
        return best_R[:, None], at_R[:, None]
    whole = values_RV.shape[1] // BLOCKS
    if whole < 8 or k > BLOCKS // 4:
        value_RK, at_RK = values_RV.topk(k)
        return value_RK, at_RK
    cut = whole * BLOCKS
    blocks_RVK = values_RV[:, :cut].view(-1, whole, BLOCKS)
    block_RK = blocks_RVK.amax(1).topk(k, sorted=False).indices
    inside_RVK = blocks_RVK.gather(2, block_RK[:, None].expand(-1, whole, -1))
    # What is left over at the end of a row is less than one column of blocks, and always looked at.
    looked = torch.cat([inside_RVK.flatten(1), values_RV[:, cut:]], 1)
    value_RK, within_RK = looked.topk(k)
    line, column = within_RK // k, within_RK % k
    in_blocks = line * BLOCKS + block_RK.gather(1, column)
    left_over = within_RK - whole * k + cut
    return value_RK, torch.where(within_RK < whole * k, in_blocks, left_over)
