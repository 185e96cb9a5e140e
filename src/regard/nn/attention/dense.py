"""Attention over rows of one length: softmax(scores) · values (Vaswani et al. 2017, §3.2.1, eq. 1).

`watchable` forms every step by itself and works with any score; `dense` computes the same for the dot product only,
the quickest way the device has.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention.scores import Score
from regard.nn.dropout import dropout as drop
from regard.nn.tap import Tap


@dataclass(frozen=True, eq=False)
class Inside:
    """What happens between queries and mixed values: the score and the taps on it."""

    score: Score
    scores: Tap
    mask: Tap
    weights: Tap
    drop: nn.Dropout

    @property
    def watched(self) -> bool:
        """Whether anybody watches what a fused kernel never forms."""
        return self.scores.watched or self.mask.watched or self.weights.watched


def watchable(
    q_BHQE: Float[Tensor, "B H Q E"],
    k_BHKE: Float[Tensor, "B H K E"],
    v_BHKE: Float[Tensor, "B H K E2"],
    mask_BHQK: Bool[Tensor, "B #H Q K"],
    bias: Float[Tensor, "H Q K"] | None,
    inside: Inside,
) -> Float[Tensor, "B H Q E2"]:
    """Attend by any score, each step through its tap; a query that may look nowhere gets zero."""
    scores_BHQK = inside.score(q_BHQE, k_BHKE)
    scores_BHQK = inside.scores(scores_BHQK if bias is None else scores_BHQK + bias)
    hidden_BHQK = ~inside.mask(mask_BHQK)
    # A finite filling keeps rows that see nothing free of NaN, forward and backward; the second makes zero exact.
    scores_BHQK = scores_BHQK.masked_fill(hidden_BHQK, torch.finfo(scores_BHQK.dtype).min)
    weights_BHQK = inside.weights(scores_BHQK.softmax(-1).masked_fill(hidden_BHQK, 0).to(v_BHKE.dtype))
    mixed_BHQE: Tensor = inside.drop(weights_BHQK) @ v_BHKE
    return mixed_BHQE


def dense(
    q_BHQE: Float[Tensor, "B H Q E"],
    k_BHKE: Float[Tensor, "B H K E"],
    v_BHKE: Float[Tensor, "B H K E2"],
    mask: Float[Tensor, "#B #H #Q K"] | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H Q E2"]:
    """Attend by the dot product; `mask` is added to the scores, and leaves every query something to see."""
    mask = None if mask is None else mask.to(q_BHQE.dtype)
    if q_BHQE.device.type != "cpu" or not (torch.is_grad_enabled() and q_BHQE.requires_grad):
        return functional.scaled_dot_product_attention(
            q_BHQE, k_BHKE, v_BHKE, attn_mask=mask, dropout_p=dropout, scale=scale
        )
    # The CPU's fused kernel has a backward pass three times slower in bfloat16 than these two products.
    scores_BHQK = (q_BHQE * scale) @ k_BHKE.transpose(-1, -2)
    if mask is not None:
        scores_BHQK = scores_BHQK + mask
    weights_BHQK = functional.softmax(scores_BHQK, -1, dtype=scores_BHQK.dtype)
    return drop(weights_BHQK, dropout) @ v_BHKE
