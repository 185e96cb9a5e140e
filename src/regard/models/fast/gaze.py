"""Attention by index: each query is told which rows of a table of keys and values it looks at.

Nothing of a table is ever moved or copied to be looked at, so beams that change places exchange numbers, not keys.
The scores are a sampled matrix product, of which only the wanted entries are computed; the mix is a weighted sum of
rows of the table, as bags of embeddings are. Both read every key and every value once, in place.
"""

import warnings
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LINE = 16  # places a query is given come in lines of so many: the softmax of shorter ones is ten times slower


@dataclass(frozen=True, eq=False)
class Gaze:
    """Where the heads of N queries look, K places each, the same in all layers."""

    places: Int[Tensor, " places"]
    """For each query, head and place, the line of the table: its row times the heads plus the head."""
    begins: Int[Tensor, " queries"]
    """Where the places of each query and head begin among them, and at last their number."""
    shade: Float[Tensor, " places"]
    """What is added to each score, minus infinity where there is nothing."""
    scores: Tensor
    """A sparse matrix, queries by lines, in which the scores of one layer after the other are computed."""

    @classmethod
    def over(cls, rows_NK: Int[Tensor, "N K"], shade_NHK: Float[Tensor, "N #H K"], heads: int, lines: int) -> "Gaze":
        """Queries that look at these rows of a table of so many lines, a line for each row and head.

        There must be at least as many lines as places: torch holds no sparse matrix fuller than full.
        """
        many, places = rows_NK.shape
        lines_NHK = (rows_NK * heads)[:, None] + torch.arange(heads)[:, None]
        begins = torch.arange(0, lines_NHK.numel() + 1, places)
        flat = lines_NHK.flatten()
        shade = shade_NHK.expand(many, heads, places).flatten()
        shape = (many * heads, lines)
        scores = torch.sparse_csr_tensor(begins, flat, torch.empty_like(shade), shape, check_invariants=False)
        return cls(flat, begins[:-1], shade, scores)

    def mix(
        self,
        q_NHE: Float[Tensor, "N H E"],
        keys: Float[Tensor, "E lines"],
        values: Float[Tensor, "lines E2"],
        scale: float,
    ) -> Float[Tensor, "N F"]:
        """softmax(scale · q·k + shade) · v for each query and head, the heads side by side."""
        scores = self.scores.values().copy_(self.shade)
        # Told to write where it reads, the kernel allocates nothing.
        torch.sparse.sampled_addmm(self.scores, q_NHE.reshape(-1, q_NHE.shape[2]), keys, alpha=scale, out=self.scores)
        weights = scores.view(self.begins.shape[0], -1).softmax(-1).flatten()
        mixed, *_ = torch._embedding_bag_forward_only(values, self.places, self.begins, False, 0, False, weights)
        return mixed.view(q_NHE.shape[0], -1)


def lines_of(places: int) -> int:
    """So many places, filled up to whole lines."""
    return max(1, -(-places // LINE)) * LINE


def shaded(seen: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Zero where one may look, minus infinity elsewhere."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)


@cache
def available() -> bool:
    """Whether this build of torch has the kernels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once in a process that sparse matrices are young
            one = Gaze.over(torch.zeros(1, LINE, dtype=torch.int64), torch.zeros(1, 1, LINE), 1, LINE)
            one.mix(torch.ones(1, 1, 1), torch.ones(1, LINE), torch.ones(LINE, 1), 1.0)
    except RuntimeError:
        return False
    return True
