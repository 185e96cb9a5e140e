"""One attention of a batch, prepared once and shared by all layers: who may look where, among which tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from regard.nn.attention.banded import Band, band, pays
from regard.nn.attention.buckets import Grouping, group
from regard.nn.attention.flex import block_mask
from regard.nn.attention.sight import Sight
from regard.nn.cuda import HAVE_TRITON
from regard.nn.cuda.turns import LONGEST, Turns, turns
from regard.nn.ragged import Layout


@dataclass(frozen=True, eq=False)
class Cells:
    """A batch cut into cells of like length, with the mask each needs; for kernels that pad."""

    queries: Grouping
    keys: Grouping
    limits: tuple[Band | Tensor | None, ...]
    """Who may look where in each cell: in blocks, or by what is added to the scores (zero or the bias where one may
    look, minus infinity elsewhere), or everywhere."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which queries look at which keys. Build one with `plan`."""

    sight: Sight
    queries: Layout
    keys: Layout
    cells: Cells | None
    """Prepared on a CPU."""
    blocks: BlockMask | None
    """Prepared on CUDA while compiling."""
    turns: Turns | None = None
    """Prepared on CUDA with Triton, where no sequence is long."""

    def mask(self) -> Bool[Tensor, "B 1 Q K"]:
        """True where a query may look at a key, with padding on both sides false."""
        query_Q = torch.arange(self.queries.longest, device=self.queries.offsets.device)
        key_K = torch.arange(self.keys.longest, device=self.keys.offsets.device)
        real_BQ = query_Q < self.queries.lengths_B[:, None]
        real_BK = key_K < self.keys.lengths_B[:, None]
        allowed_QK = self.sight.allows(query_Q[:, None], key_K)
        return (real_BQ[:, :, None] & real_BK[:, None, :] & allowed_QK)[:, None]


def plan(sight: Sight, queries: Layout, keys: Layout) -> Plan:
    """Prepare an attention in which `queries` look at `keys` of the same sequence number."""
    if len(queries) != len(keys):
        raise ValueError(f"{len(queries)} sequences cannot look at {len(keys)}; give each its own")
    assert not sight.relative or queries is keys, "places are compared within one sequence only"
    on_cpu, compiling = queries.offsets.device.type == "cpu", torch.compiler.is_compiling()
    cells = _cut(sight, queries, keys) if on_cpu and not compiling else None
    blocks = block_mask(sight, queries, keys) if compiling and not on_cpu else None
    short = max(queries.longest, keys.longest) <= LONGEST
    by_length = turns(queries, keys) if HAVE_TRITON and queries.offsets.is_cuda and short else None
    return Plan(sight, queries, keys, cells, blocks, by_length)


def _cut(sight: Sight, queries: Layout, keys: Layout) -> Cells:
    """Cells of like length, and who may look where in them."""
    by_query, by_key, members = group(queries, keys)
    limits = []
    for each, (_, columns), (_, key_columns) in zip(members, by_query.shapes, by_key.shapes, strict=True):
        lengths_B = keys.lengths_B[torch.from_numpy(each)]
        limits.append(_limit(sight, columns, key_columns, lengths_B))
    return Cells(by_query, by_key, tuple(limits))


def _limit(sight: Sight, columns: int, key_columns: int, lengths_B: Int[Tensor, " B"]) -> Band | Tensor | None:
    """Who may look where in rows of so many queries and keys, of which the first `lengths_B` keys are real."""
    if pays(sight, columns):
        return band(sight, columns, lengths_B)
    # A causal query never reaches the padding behind its sequence, so only the others must be kept from it.
    padded = not sight.causal and bool((lengths_B < key_columns).any())
    if not padded and not sight.relative:
        return None
    query_Q, key_K = torch.arange(columns), torch.arange(key_columns)
    allowed = sight.allows(query_Q[:, None], key_K)[None, None]
    if padded:
        allowed = allowed & (key_K < lengths_B[:, None, None, None])
        # A query behind its row's end may see nothing, and its gradient would be no number; nobody asks what it sees.
        allowed = allowed | ~allowed.any(-1, keepdim=True)
    return torch.where(allowed, sight.bias(query_Q, key_K), -torch.inf)
