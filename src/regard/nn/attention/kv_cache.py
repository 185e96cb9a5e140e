"""The KV cache: keys and values computed once and reused at every decoding step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention.mask import AttentionMask
from regard.nn.ragged import Layout


@dataclass(frozen=True, eq=False)
class KVCache:
    """Keys and values of several rows, padded to one length, with the mask of their padding.

    A cache is immutable: every method returns a new one. The cache of a memory is padded on the right and never grows.
    The cache of self-attention grows by one column a step; after prompts of unequal length it is padded on the left.
    """

    k_BHKE: Float[Tensor, "B H K E"]
    v_BHKE: Float[Tensor, "B H K E2"]
    mask_BK: Bool[Tensor, "#B K"] | None
    """True where a query may attend; None if everywhere."""
    additive_mask_BK: Float[Tensor, "#B K"] | None
    """The mask as a summand of the scores: 0 or minus infinity. A row of no tokens allows its first padding key, whose
    value is zero: the softmax of a row of minus infinities would be NaN."""

    @classmethod
    def empty(cls, like: Float[Tensor, "R ..."], heads: int, key_size: int, value_size: int) -> "KVCache":
        """Create a cache without keys, with the rows, dtype and device of `like`."""
        rows = like.shape[0]
        return cls(like.new_empty(rows, heads, 0, key_size), like.new_empty(rows, heads, 0, value_size), None, None)

    @classmethod
    def from_ragged(cls, k_NHE: Float[Tensor, "N H E"], v_NHE: Float[Tensor, "N H E2"], layout: Layout) -> "KVCache":
        """Create a cache from the keys and values of a ragged batch, one row a sequence."""
        k_BKHE, v_BKHE = layout.pad(k_NHE), layout.pad(v_NHE)
        if layout.longest == 0:
            k_BKHE, v_BKHE = (x.new_zeros(x.shape[0], 1, *x.shape[2:]) for x in (k_BKHE, v_BKHE))
        mask_BK = torch.arange(k_BKHE.shape[1], device=k_NHE.device) < layout.lengths_B[:, None]
        additive_mask_BK = torch.zeros_like(mask_BK, dtype=k_NHE.dtype).masked_fill_(~mask_BK, -torch.inf)
        additive_mask_BK[:, 0] = 0
        return cls(k_BKHE.transpose(1, 2).contiguous(), v_BKHE.transpose(1, 2).contiguous(), mask_BK, additive_mask_BK)

    @classmethod
    def from_prompts(cls, k_NHE: Float[Tensor, "N H E"], v_NHE: Float[Tensor, "N H E2"], layout: Layout) -> "KVCache":
        """Create a cache from the keys and values of a ragged batch of prompts, padded on the left.

        Every row ends in the last column, so all rows write their next token into the same column and distances to it
        count from the right. An empty prompt has no allowed key until `append` adds one.
        """
        rows, longest = len(layout), layout.longest
        if layout.tokens == rows * longest:  # all prompts have the same length
            k_BHKE, v_BHKE = (x_NHE.view(rows, longest, *x_NHE.shape[1:]).transpose(1, 2) for x_NHE in (k_NHE, v_NHE))
            return cls(k_BHKE.contiguous(), v_BHKE.contiguous(), None, None)
        column_N = layout.position_N + (longest - layout.lengths_B)[layout.sequence_N]
        padded = []
        for x_NHE in (k_NHE, v_NHE):
            x_BKHE = x_NHE.new_zeros(rows, longest, *x_NHE.shape[1:])
            x_BKHE[layout.sequence_N, column_N] = x_NHE
            padded.append(x_BKHE.transpose(1, 2).contiguous())
        mask_BK = torch.arange(longest, device=k_NHE.device) >= longest - layout.lengths_B[:, None]
        additive_mask_BK = torch.zeros_like(mask_BK, dtype=k_NHE.dtype).masked_fill_(~mask_BK, -torch.inf)
        return cls(padded[0], padded[1], mask_BK, additive_mask_BK)

    def append(self, k_RHE: Float[Tensor, "R H E"], v_RHE: Float[Tensor, "R H E2"]) -> "KVCache":
        """Return a cache with one more key and value in each row."""
        mask_BK, additive_mask_BK = self.mask_BK, self.additive_mask_BK
        if mask_BK is not None and additive_mask_BK is not None:
            mask_BK = nn.functional.pad(mask_BK, (0, 1), value=True)
            additive_mask_BK = nn.functional.pad(additive_mask_BK, (0, 1))
        k_BHKE = torch.cat([self.k_BHKE, k_RHE[:, :, None]], 2)
        return KVCache(k_BHKE, torch.cat([self.v_BHKE, v_RHE[:, :, None]], 2), mask_BK, additive_mask_BK)

    def last_columns(self, columns: int) -> "KVCache":
        """Return a cache of the last columns, as views."""
        first = self.k_BHKE.shape[2] - columns
        mask_BK = None if self.mask_BK is None else self.mask_BK[:, first:]
        additive_mask_BK = None if self.additive_mask_BK is None else self.additive_mask_BK[:, first:]
        return KVCache(self.k_BHKE[:, :, first:], self.v_BHKE[:, :, first:], mask_BK, additive_mask_BK)

    def masked(self, mask: AttentionMask) -> "KVCache":
        """Return a cache that allows only the keys which the last position may attend to."""
        # The last position comes after all others, so causality holds by itself and only a window excludes keys.
        if mask.window is None:
            return self
        position_K = self._positions()
        mask_BK = mask.allows(position_K[-1:], position_K)[None]
        if self.mask_BK is not None:
            mask_BK = mask_BK & self.mask_BK
        additive_mask_BK = torch.zeros_like(mask_BK, dtype=self.k_BHKE.dtype).masked_fill_(~mask_BK, -torch.inf)
        return KVCache(self.k_BHKE, self.v_BHKE, mask_BK, additive_mask_BK)

    def alibi_bias(self, mask: AttentionMask) -> Float[Tensor, "H 1 K"] | None:
        """Return what ALiBi adds to the scores of the last position; None without slopes."""
        position_K = self._positions()
        return mask.bias(position_K[-1:], position_K).to(self.k_BHKE.dtype) if mask.slopes else None

    def _positions(self) -> Int[Tensor, " K"]:
        return torch.arange(self.k_BHKE.shape[2], device=self.k_BHKE.device)

    def select_rows(self, rows: Int[Tensor, " R"]) -> "KVCache":
        """Return a cache of these rows, in this order."""
        k_BHKE, v_BHKE = self.k_BHKE.index_select(0, rows), self.v_BHKE.index_select(0, rows)
        if self.mask_BK is None or self.additive_mask_BK is None:
            return KVCache(k_BHKE, v_BHKE, None, None)
        return KVCache(k_BHKE, v_BHKE, self.mask_BK.index_select(0, rows), self.additive_mask_BK.index_select(0, rows))

    @classmethod
    def concatenate(cls, caches: Sequence["KVCache"]) -> "KVCache":
        """Return one cache with the rows of several memories, padded to the longest of them."""
        keys = max(cache.k_BHKE.shape[2] for cache in caches)

        def pad(x: Tensor, dim: int, fill: float | bool) -> Tensor:
            amounts = [0, 0] * (x.ndim - 1 - dim) + [0, keys - x.shape[dim]]
            return nn.functional.pad(x, amounts, value=fill)

        masks = [cache.mask_BK for cache in caches if cache.mask_BK is not None]
        additive_masks = [cache.additive_mask_BK for cache in caches if cache.additive_mask_BK is not None]
        assert len(masks) == len(additive_masks) == len(caches), "only caches of memories are concatenated"
        return cls(
            torch.cat([pad(cache.k_BHKE, 2, 0.0) for cache in caches]),
            torch.cat([pad(cache.v_BHKE, 2, 0.0) for cache in caches]),
            torch.cat([pad(mask_BK, 1, False) for mask_BK in masks]),
            torch.cat([pad(mask_BK, 1, -torch.inf) for mask_BK in additive_masks]),
        )

    def first_rows(self, rows: int) -> "KVCache":
        """Return a cache of the first rows, as views."""
        if self.mask_BK is None or self.additive_mask_BK is None:
            return KVCache(self.k_BHKE[:rows], self.v_BHKE[:rows], None, None)
        return KVCache(self.k_BHKE[:rows], self.v_BHKE[:rows], self.mask_BK[:rows], self.additive_mask_BK[:rows])

    def mask_for(self, q_BHQE: Float[Tensor, "B H Q E"]) -> Bool[Tensor, "B 1 Q K"]:
        """Return the boolean mask of these queries, true where they may attend."""
        rows, _, queries, _ = q_BHQE.shape
        mask = torch.ones(1, self.k_BHKE.shape[2], dtype=torch.bool, device=q_BHQE.device)
        mask = mask if self.mask_BK is None else self.mask_BK
        return mask[:, None, None].expand(rows, 1, queries, -1)

    def additive_mask(self, bias: Float[Tensor, "H Q K"] | None) -> Tensor | None:
        """Return mask and bias as the one tensor that a fused kernel adds to the scores; None if both are absent."""
        if self.additive_mask_BK is None:
            return None if bias is None else bias[None]
        mask = self.additive_mask_BK[:, None, None]
        return mask if bias is None else mask + bias
