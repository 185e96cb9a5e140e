"""Pooling: the states of a sequence become one vector."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.cost import TokenCounts
from regard.nn.ragged import Layout
from regard.nn.tap import Tap


class MeanPooling(nn.Module):
    """The mean of the states; zero for an empty sequence."""

    def forward(self, x_ND: Float[Tensor, "N D"], layout: Layout) -> Float[Tensor, "B D"]:
        """Return one vector for each sequence, in float32 at least."""
        x_ND = x_ND.to(torch.promote_types(x_ND.dtype, torch.float32))  # a long sum in bfloat16 would be inexact
        sums_BD = x_ND.new_zeros(len(layout), x_ND.shape[1]).index_add(0, layout.sequence_N, x_ND)
        return sums_BD / layout.lengths_B.clamp(min=1)[:, None]


class FirstPooling(nn.Module):
    """The state of the first token, which is a symbol that every text begins with (Devlin et al. 2019)."""

    def forward(self, x_ND: Float[Tensor, "N D"], layout: Layout) -> Float[Tensor, "B D"]:
        """Return one vector for each sequence; that of an empty one, which fills up a batch, is arbitrary."""
        return x_ND.index_select(0, layout.offsets[:-1].clamp(max=x_ND.shape[0] - 1))


class AttentionPooling(nn.Module):
    """An average weighted by attention with a learned query, the context vector (Yang et al. 2016, eq. 5-7).

    u = tanh(W h + b), α = softmax over a sequence of u · c, s = Σ α h; zero for an empty sequence.
    """

    def __init__(self, width: int, attention_width: int | None = None) -> None:
        """Create the pooling of states of `width`; `attention_width` is that of u, by default the same."""
        super().__init__()
        inner = attention_width or width
        self.hidden = nn.Linear(width, inner)
        self.context = nn.Parameter(torch.empty(inner))
        nn.init.normal_(self.context, std=inner**-0.5)
        self.weights = Tap()

    def forward(self, x_ND: Float[Tensor, "N D"], layout: Layout) -> Float[Tensor, "B D"]:
        """Return one vector for each sequence, in float32 at least; all weights pass the tap `weights`."""
        scores_N = torch.tanh(self.hidden(x_ND)) @ self.context
        weights_N = self.weights(_ragged_softmax(scores_N, layout))
        weighted_ND: Tensor = weights_N[:, None] * x_ND
        pooled_BD = weighted_ND.new_zeros(len(layout), x_ND.shape[1])
        return pooled_BD.index_add(0, layout.sequence_N, weighted_ND)

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        return 2 * counts.tokens * self.hidden.weight.numel()


def _ragged_softmax(scores_N: Float[Tensor, " N"], layout: Layout) -> Float[Tensor, " N"]:
    """Return the softmax of the scores within each sequence, in float32 at least."""
    scores_N = scores_N.to(torch.promote_types(scores_N.dtype, torch.float32))
    sequence_N = layout.sequence_N.long()
    lowest_B = scores_N.new_full((len(layout),), float("-inf"))
    # The softmax does not depend on what is subtracted, so its gradient need not pass the maximum.
    max_B = lowest_B.scatter_reduce(0, sequence_N, scores_N.detach(), "amax")
    powers_N = (scores_N - max_B.index_select(0, sequence_N)).exp()
    sums_B = scores_N.new_zeros(len(layout)).index_add(0, sequence_N, powers_N)
    return powers_N / sums_B.index_select(0, sequence_N)
