"""Keys and values a search keeps, so that each step computes only what is new."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention.sight import Sight
from regard.nn.ragged import Layout


@dataclass(frozen=True, eq=False)
class Kept:
    """Keys and values, one row a sequence, and which of them may be looked at."""

    k_BHKE: Float[Tensor, "B H K E"]
    v_BHKE: Float[Tensor, "B H K E2"]
    mask_BK: Bool[Tensor, "#B K"] | None
    """True where one may look; None if everywhere."""
    shade_BK: Float[Tensor, "#B K"] | None
    """The same to be added to scores, 0 or minus infinity. A row with nothing to see sees its first padding, whose
    value is zero: no kernel then gives NaN."""

    @classmethod
    def nothing(cls, like: Float[Tensor, "R ..."], heads: int, key_size: int, value_size: int) -> "Kept":
        """Rows with nothing in them yet."""
        rows = like.shape[0]
        return cls(like.new_empty(rows, heads, 0, key_size), like.new_empty(rows, heads, 0, value_size), None, None)

    @classmethod
    def of(cls, k_NHE: Float[Tensor, "N H E"], v_NHE: Float[Tensor, "N H E2"], layout: Layout) -> "Kept":
        """Rows of a ragged batch, padded."""
        k_BKHE, v_BKHE = layout.pad(k_NHE), layout.pad(v_NHE)
        if layout.longest == 0:
            k_BKHE, v_BKHE = (each.new_zeros(each.shape[0], 1, *each.shape[2:]) for each in (k_BKHE, v_BKHE))
        mask_BK = torch.arange(k_BKHE.shape[1], device=k_NHE.device) < layout.lengths_B[:, None]
        shade_BK = torch.zeros_like(mask_BK, dtype=k_NHE.dtype).masked_fill_(~mask_BK, -torch.inf)
        shade_BK[:, 0] = 0
        return cls(k_BKHE.transpose(1, 2).contiguous(), v_BKHE.transpose(1, 2).contiguous(), mask_BK, shade_BK)

    def grown(self, k_RHE: Float[Tensor, "R H E"], v_RHE: Float[Tensor, "R H E2"]) -> "Kept":
        """With one more key and value in each row."""
        return Kept(
            torch.cat([self.k_BHKE, k_RHE[:, :, None]], 2), torch.cat([self.v_BHKE, v_RHE[:, :, None]], 2), None, None
        )

    def in_sight(self, sight: Sight) -> "Kept":
        """With only those places in sight that the last one may look at; it comes after all the others."""
        if sight.window is None:
            return self
        place_K = self._places()
        mask_BK = sight.allows(place_K[-1:], place_K)[None]
        shade_BK = torch.zeros_like(mask_BK, dtype=self.k_BHKE.dtype).masked_fill_(~mask_BK, -torch.inf)
        return Kept(self.k_BHKE, self.v_BHKE, mask_BK, shade_BK)

    def bias(self, sight: Sight) -> Float[Tensor, "H 1 K"] | None:
        """What the distance to the last place adds to the scores."""
        place_K = self._places()
        return sight.bias(place_K[-1:], place_K).to(self.k_BHKE.dtype) if sight.slopes else None

    def _places(self) -> Int[Tensor, " K"]:
        return torch.arange(self.k_BHKE.shape[2], device=self.k_BHKE.device)

    def rows(self, rows: Int[Tensor, " R"]) -> "Kept":
        """Only these rows, in this order."""
        k_BHKE, v_BHKE = self.k_BHKE.index_select(0, rows), self.v_BHKE.index_select(0, rows)
        if self.mask_BK is None or self.shade_BK is None:
            return Kept(k_BHKE, v_BHKE, None, None)
        return Kept(k_BHKE, v_BHKE, self.mask_BK.index_select(0, rows), self.shade_BK.index_select(0, rows))

    @classmethod
    def joined(cls, several: Sequence["Kept"]) -> "Kept":
        """The rows of several memories, made equally long by places nobody may look at."""
        keys = max(each.k_BHKE.shape[2] for each in several)

        def longer(x: Tensor, dim: int, fill: float | bool) -> Tensor:
            behind = [0, 0] * (x.ndim - 1 - dim) + [0, keys - x.shape[dim]]
            return nn.functional.pad(x, behind, value=fill)

        masks = [each.mask_BK for each in several if each.mask_BK is not None]
        shades = [each.shade_BK for each in several if each.shade_BK is not None]
        assert len(masks) == len(shades) == len(several), "memories have an end"
        return cls(
            torch.cat([longer(each.k_BHKE, 2, 0.0) for each in several]),
            torch.cat([longer(each.v_BHKE, 2, 0.0) for each in several]),
            torch.cat([longer(each, 1, False) for each in masks]),
            torch.cat([longer(each, 1, -torch.inf) for each in shades]),
        )

    def first(self, rows: int) -> "Kept":
        """Only the first rows, as views."""
        if self.mask_BK is None or self.shade_BK is None:
            return Kept(self.k_BHKE[:rows], self.v_BHKE[:rows], None, None)
        return Kept(self.k_BHKE[:rows], self.v_BHKE[:rows], self.mask_BK[:rows], self.shade_BK[:rows])

    def mask_for(self, q_BHQE: Float[Tensor, "B H Q E"]) -> Bool[Tensor, "B 1 Q K"]:
        """True where each query may look."""
        rows, _, queries, _ = q_BHQE.shape
        mask = torch.ones(1, self.k_BHKE.shape[2], dtype=torch.bool, device=q_BHQE.device)
        mask = mask if self.mask_BK is None else self.mask_BK
        return mask[:, None, None].expand(rows, 1, queries, -1)

    def added(self, bias: Float[Tensor, "H Q K"] | None) -> Tensor | None:
        """Mask and bias in the one form a fused kernel takes."""
        if self.shade_BK is None:
            return None if bias is None else bias[None]
        shade = self.shade_BK[:, None, None]
        return shade if bias is None else shade + bias
