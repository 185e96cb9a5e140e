"""Attention over padded rows: softmax(scores) · values (Vaswani et al. 2017, §3.2.1, eq. 1).

`explicit_attention` materialises scores, mask and weights and works with any score function. `dense_attention` computes
the same for dot products only, by the fastest kernel of the device.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention.scores import ScoreFunction
from regard.nn.dropout import dropout as drop
from regard.nn.tap import Tap


@dataclass(frozen=True, eq=False)
class AttentionCore:
    """The parts of an attention layer between its projections: score function, taps and dropout."""

    score: ScoreFunction
    scores: Tap
    mask: Tap
    weights: Tap
    drop: nn.Dropout

    @property
    def watched(self) -> bool:
        """Return whether a tap inside the softmax is watched, which rules out fused kernels."""
        return self.scores.watched or self.mask.watched or self.weights.watched

    @property
    def dropout(self) -> float:
        """Return the dropout probability of the weights now: 0 outside training."""
        return self.drop.p if self.drop.training else 0.0


def explicit_attention(
    q_BHQE: Float[Tensor, "B H Q E"],
    k_BHKE: Float[Tensor, "B H K E"],
    v_BHKE: Float[Tensor, "B H K E2"],
    mask_BHQK: Bool[Tensor, "B #H Q K"],
    bias: Float[Tensor, "H Q K"] | None,
    core: AttentionCore,
) -> Float[Tensor, "B H Q E2"]:
    """Attend with any score function and pass every intermediate tensor through its tap.

    A query that may attend to no key gets zero.
    """
    scores_BHQK = core.score(q_BHQE, k_BHKE)
    scores_BHQK = core.scores(scores_BHQK if bias is None else scores_BHQK + bias)
    hidden_BHQK = ~core.mask(mask_BHQK)
    # Filling with the smallest finite number instead of -inf keeps fully masked rows free of NaN, forward and backward.
    # The second fill makes masked weights exactly zero.
    scores_BHQK = scores_BHQK.masked_fill(hidden_BHQK, torch.finfo(scores_BHQK.dtype).min)
    weights_BHQK = core.weights(scores_BHQK.softmax(-1).masked_fill(hidden_BHQK, 0).to(v_BHKE.dtype))
    mixed_BHQE: Tensor = core.drop(weights_BHQK) @ v_BHKE
    return mixed_BHQE


def dense_attention(
    q_BHQE: Float[Tensor, "B H Q E"],
    k_BHKE: Float[Tensor, "B H K E"],
    v_BHKE: Float[Tensor, "B H K E2"],
    additive_mask: Float[Tensor, "#B #H #Q K"] | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H Q E2"]:
    """Attend by scaled dot products; `additive_mask` is added to the scores and must allow every query some key."""
    additive_mask = None if additive_mask is None else additive_mask.to(q_BHQE.dtype)
    if q_BHQE.device.type != "cpu" or not (torch.is_grad_enabled() and q_BHQE.requires_grad):
        return functional.scaled_dot_product_attention(
            q_BHQE, k_BHKE, v_BHKE, attn_mask=additive_mask, dropout_p=dropout, scale=scale
        )
    # On a CPU, the backward pass of the fused kernel is three times slower in bfloat16 than two plain products.
    scores_BHQK = (q_BHQE * scale) @ k_BHKE.transpose(-1, -2)
    if additive_mask is not None:
        scores_BHQK = scores_BHQK + additive_mask
    weights_BHQK = functional.softmax(scores_BHQK, -1, dtype=scores_BHQK.dtype)
    return drop(weights_BHQK, dropout) @ v_BHKE
