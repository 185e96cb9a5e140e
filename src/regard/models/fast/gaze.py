"""Attention by index: each query is told which rows of a table of keys and values it looks at.

Nothing of a table is ever moved or copied to be looked at, so beams that change places exchange numbers, not keys.
The scores are a sampled matrix product, of which only the wanted entries are computed; the mix is a weighted sum of
rows of the table, as bags of embeddings are. Both read every key and every value once, in place.
"""

import warnings
from functools import cache
from typing import no_type_check

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LINE = 16  # places a query is given at least: the softmax of fewer is ten times slower

Gaze = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Where the heads of N queries look, K places each, the same in all layers.

1. For each query, head and place, the line of the table: its row times the heads plus the head.
2. Where the places of each query and head begin among them.
3. What is added to each score, minus infinity where there is nothing.
4. A sparse matrix, queries by lines, in which the scores of one layer after the other are computed.
5. Its entries, a row for each query and head.
"""


@no_type_check
def gaze(rows_NK: Tensor, shade_NHK: Tensor, heads: int, lines: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Let queries look at these rows of a table of so many lines, a line for each row and head.

    There must be at least as many lines as places: torch holds no sparse matrix fuller than full.
    """
    many, places = rows_NK.shape
    lines_NHK = (rows_NK * heads).unsqueeze(1) + torch.arange(heads).unsqueeze(1)
    begins = torch.arange(0, lines_NHK.numel() + 1, places)
    flat = lines_NHK.flatten()
    shade = shade_NHK.expand(many, heads, places).reshape(-1, places)
    blank = torch.empty_like(flat, dtype=shade.dtype)
    matrix = torch.sparse_csr_tensor(begins, flat, blank, [many * heads, lines], dtype=shade.dtype)
    return flat, begins[:-1], shade, matrix, matrix.values().view(-1, places)


@no_type_check
def own_gaze(
    rows_RT: Tensor, shade_RT: Tensor, clock: int, new: int, heads: int, lines: int, slopes_H: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Let rows look at their own tokens, of which the newest are in the rows of the table from `new` on.

    These are noted in column `clock` of the rows' lists. Slopes are what distance costs each head.
    """
    rows_RT.select(1, clock).copy_(torch.arange(new, new + rows_RT.shape[0]))
    shade_RT.select(1, clock).zero_()
    places = max(clock + 1, 16)
    shade_RHT = shade_RT.narrow(1, 0, places).unsqueeze(1)
    if slopes_H.numel() > 0:
        ahead_T = (torch.arange(places) - clock).abs()
        shade_RHT = shade_RHT - slopes_H.unsqueeze(1) * ahead_T
    return gaze(rows_RT.narrow(1, 0, places), shade_RHT, heads, lines)


@no_type_check
def mix(
    q_NF: Tensor, keys: Tensor, values: Tensor, scale: float, at: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
) -> Tensor:
    """softmax(scale · q·k + shade) · v for each query and head, the heads side by side."""
    places, begins, shade, matrix, scores = at
    scores.copy_(shade)
    # Told to write where it reads, the kernel allocates nothing.
    torch.sparse.sampled_addmm(matrix, q_NF.reshape(-1, keys.shape[0]), keys, alpha=scale, out=matrix)
    weights = torch._softmax(scores, -1, False).view(-1)
    mixed = torch._embedding_bag_forward_only(values, places, begins, False, 0, False, weights)[0]
    return mixed.view(q_NF.shape[0], -1)


def lines_of(places: int) -> int:
    """So many places, filled up to whole lines."""
    return max(1, -(-places // LINE)) * LINE


def seats_of(places: int) -> int:
    """So many places, or as many as a query is given at least."""
    return max(places, LINE)


def shaded(seen: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Zero where one may look, minus infinity elsewhere."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)


@cache
def available() -> bool:
    """Whether this build of torch has the kernels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once in a process that sparse matrices are young
            at = gaze(torch.zeros(1, LINE, dtype=torch.int64), torch.zeros(1, 1, LINE), 1, LINE)
            mix(torch.ones(1, 1), torch.ones(1, LINE), torch.ones(LINE, 1), 1.0, at)
    except RuntimeError:
        return False
    return True
