"""Indexed attention: each query is given the rows of a table of keys and values that it attends to.

No key or value is moved or copied to be attended to, so beams that change places exchange row numbers. The scores are
a sampled matrix product, of which only the wanted entries are computed; the weighted sum of values is an embedding
bag. Both read every key and every value once, in place.

A table has one row for each token. Seen by head it has one line for each row and head: line = row * heads + head.
"""

import warnings
from functools import cache
from typing import no_type_check

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MIN_KEYS = 16  # keys of each query at least, padding included: the softmax over fewer is ten times slower

AttentionIndex = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Where the heads of N queries attend, K keys each, in all layers alike.

1. For each query, head and key, the line of the table.
2. Where the keys of each query and head begin in that list.
3. What is added to each score: minus infinity where there is no key.
4. A sparse matrix, queries by lines, in which the scores of one layer after the other are computed.
5. The entries of that matrix, a row for each query and head.
"""


@no_type_check
def attention_index(
    rows_NK: Tensor, bias_NHK: Tensor, heads: int, table_lines: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Let queries attend to these rows of a table.

    The table must have at least as many lines as a query has keys: torch rejects a sparse row with more entries than
    columns.
    """
    queries, keys = rows_NK.shape
    lines_NHK = (rows_NK * heads).unsqueeze(1) + torch.arange(heads).unsqueeze(1)
    begins = torch.arange(0, lines_NHK.numel() + 1, keys)
    lines = lines_NHK.flatten()
    bias = bias_NHK.expand(queries, heads, keys).reshape(-1, keys)
    scores = torch.empty_like(lines, dtype=bias.dtype)
    matrix = torch.sparse_csr_tensor(begins, lines, scores, [queries * heads, table_lines], dtype=bias.dtype)
    return lines, begins[:-1], bias, matrix, matrix.values().view(-1, keys)


@no_type_check
def self_attention_index(
    rows_RT: Tensor, bias_RT: Tensor, column: int, new: int, heads: int, table_lines: int, slopes_H: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Let rows attend to their own tokens, of which the newest are in the table's rows from `new` on.

    The newest tokens are noted in this column of `rows_RT`. `slopes_H` are ALiBi's, or empty.
    """
    rows_RT.select(1, column).copy_(torch.arange(new, new + rows_RT.shape[0]))
    bias_RT.select(1, column).zero_()
    keys = max(column + 1, 16)  # MIN_KEYS, but TorchScript reads no global number
    bias_RHT = bias_RT.narrow(1, 0, keys).unsqueeze(1)
    if slopes_H.numel() > 0:
        distance_T = (torch.arange(keys) - column).abs()
        bias_RHT = bias_RHT - slopes_H.unsqueeze(1) * distance_T
    return attention_index(rows_RT.narrow(1, 0, keys), bias_RHT, heads, table_lines)


@no_type_check
def attend(
    q_NF: Tensor, keys: Tensor, values: Tensor, scale: float, index: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
) -> Tensor:
    """Return softmax(scale · q·k + bias) · v for each query and head, the heads side by side.

    Keys are given transposed, E by lines; values as lines by E.
    """
    lines, begins, bias, matrix, scores = index
    scores.copy_(bias)
    # With `out` the matrix it reads, the kernel allocates nothing.
    torch.sparse.sampled_addmm(matrix, q_NF.reshape(-1, keys.shape[0]), keys, alpha=scale, out=matrix)
    weights = torch._softmax(scores, -1, False).view(-1)
    mixed = torch._embedding_bag_forward_only(values, lines, begins, False, 0, False, weights)[0]
    return mixed.view(q_NF.shape[0], -1)


def round_up(keys: int) -> int:
    """Round a number of keys up to whole multiples of `MIN_KEYS`."""
    return max(1, -(-keys // MIN_KEYS)) * MIN_KEYS


def mask_to_bias(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Return what a mask adds to scores: zero where it is true, minus infinity elsewhere."""
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -torch.inf)


@cache
def is_available() -> bool:
    """Return whether this build of torch has the kernels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns once in a process that sparse tensors are in beta
            row, bias = torch.zeros(1, MIN_KEYS, dtype=torch.int64), torch.zeros(1, 1, MIN_KEYS)
            index = attention_index(row, bias, 1, MIN_KEYS)
            attend(torch.ones(1, 1), torch.ones(1, MIN_KEYS), torch.ones(MIN_KEYS, 1), 1.0, index)
    except RuntimeError:
        return False
    return True
