"""One attention over a memory, as the models before the Transformer have it: nothing is projected but by the score.

weights = softmax(score(query, keys)), context = weights · values (Bahdanau et al. 2015, eq. 5 and 6). Global, it sees
the whole source; local, it first says where to look (Luong et al. 2015, §3.2).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention.dense import Inside
from regard.nn.attention.kept import Kept
from regard.nn.attention.kernels import attend
from regard.nn.attention.plan import Plan
from regard.nn.attention.scores import StepwiseScore
from regard.nn.dropout import Dropout
from regard.nn.ragged import Layout
from regard.nn.tap import Tap


class Focus(nn.Module):
    """Where in its source a query looks: local-p of Luong et al. 2015, §3.2.

    p = S · sigmoid(vᵀ tanh(W h)) (eq. 9) is a place in a source of S tokens, counted from 0. Only the keys from p - D
    to p + D are seen, and their weights shrink with the distance by a Gaussian of deviation D / 2 (eq. 10).
    """

    def __init__(self, width: int, reach: int) -> None:
        """For queries of this width; `reach` is the paper's D."""
        super().__init__()
        self.inner = nn.Linear(width, width, bias=False)
        self.outer = nn.Linear(width, 1, bias=False)
        self.reach = reach
        self.place = Tap()

    def forward(
        self, q_BHQE: Float[Tensor, "B H Q E"], lengths_B: Int[Tensor, " B"], keys: int
    ) -> tuple[Bool[Tensor, "B H Q K"], Float[Tensor, "B H Q K"]]:
        """Which of so many keys each query sees, and what their weights are multiplied by."""
        share = torch.sigmoid(self.outer(torch.tanh(self.inner(q_BHQE))))
        share = share.to(torch.promote_types(share.dtype, torch.float32))  # half precision cannot count to 1000
        place = self.place(lengths_B.to(share.dtype)[:, None, None, None] * share)
        away_BHQK = torch.arange(keys, device=place.device, dtype=place.dtype) - place
        bell_BHQK = torch.exp(-2 * (away_BHQK / self.reach) ** 2)  # (s - p)² / 2σ² with σ = D / 2
        return away_BHQK.abs() <= self.reach, bell_BHQK


class Alignment(nn.Module):
    """Which source tokens a target token is made of."""

    def __init__(self, score: StepwiseScore, focus: Focus | None = None) -> None:
        """Global attention, or with a `focus` local attention."""
        super().__init__()
        self.score, self.focus = score, focus
        self.drop = Dropout(0.0)
        self.query, self.scores, self.mask, self.weights, self.context = Tap(), Tap(), Tap(), Tap(), Tap()
        self.aligned = Tap() if focus is not None else None

    def forward(
        self, q_ND: Float[Tensor, "N D"], k_ND: Float[Tensor, "N2 D2"], v_ND: Float[Tensor, "N2 D3"], plan: Plan
    ) -> Float[Tensor, "N D3"]:
        """The context of every query of a ragged batch at once."""
        q_ND = self.query(q_ND)
        # Half-precision kernels take one number format, and sums with embeddings come in another.
        q_NHE, k_NHE, v_NHE = q_ND[:, None].to(k_ND.dtype), k_ND[:, None], v_ND[:, None].to(k_ND.dtype)
        if self.focus is None:
            context_NHE = attend(q_NHE, k_NHE, v_NHE, plan, self._inside())
        else:
            q_BHQE, kept = plan.queries.pad(q_NHE).transpose(1, 2), self.keep(k_ND, v_ND, plan.keys)
            real_BQ = torch.arange(q_BHQE.shape[2], device=q_ND.device) < plan.queries.lengths_B[:, None]
            context_BHQE = self._mix(q_BHQE, kept, kept.mask_for(q_BHQE) & real_BQ[:, None, :, None])
            context_NHE = plan.queries.unpad(context_BHQE.transpose(1, 2))
        context_ND: Tensor = self.context(context_NHE[:, 0])
        return context_ND

    def keep(self, k_ND: Float[Tensor, "N D"], v_ND: Float[Tensor, "N D2"], layout: Layout) -> Kept:
        """What of a memory is computed once, before any query comes."""
        return Kept.of(self.score.prepare(k_ND)[:, None], v_ND[:, None], layout)

    def step(self, q_RD: Float[Tensor, "R D"], kept: Kept) -> Float[Tensor, "R D2"]:
        """The context of one query a row; R / B rows, the beams, share each of B kept memories."""
        q_RD, sources = self.query(q_RD), kept.k_BHKE.shape[0]
        q_BHQE = q_RD.view(sources, 1, q_RD.shape[0] // max(1, sources), q_RD.shape[1])
        if self.focus is None and kept.shade_BK is not None and not self._inside().watched:
            mixed_BHQE = self._mix_unwatched(q_BHQE, kept, kept.shade_BK)
        else:
            mixed_BHQE = self._mix(q_BHQE, kept, kept.mask_for(q_BHQE))
        context_RD: Tensor = self.context(mixed_BHQE.flatten(0, 2))
        return context_RD

    def _inside(self) -> Inside:
        """What a kernel must know of this attention."""
        return Inside(self.score, self.scores, self.mask, self.weights, self.drop)

    def _mix_unwatched(
        self, q_BHQE: Float[Tensor, "B H Q E"], kept: Kept, shade_BK: Float[Tensor, "B K"]
    ) -> Float[Tensor, "B H Q E2"]:
        """The same in few operations, for steps that wait for each other: a GPU spends its time between them."""
        scores_BHQK = self.score.match(q_BHQE, kept.k_BHKE) + shade_BK[:, None, None]
        mixed_BHQE: Tensor = scores_BHQK.softmax(-1).to(kept.v_BHKE.dtype) @ kept.v_BHKE
        return mixed_BHQE

    def _mix(
        self, q_BHQE: Float[Tensor, "B H Q E"], kept: Kept, mask_BHQK: Bool[Tensor, "B H Q K"]
    ) -> Float[Tensor, "B H Q E2"]:
        """Score, weigh and mix, each step through its tap; a query that may look nowhere gets zero."""
        bell_BHQK = None
        if self.focus is not None and kept.mask_BK is not None:
            near_BHQK, bell_BHQK = self.focus(q_BHQE, kept.mask_BK.sum(-1), kept.k_BHKE.shape[2])
            mask_BHQK = mask_BHQK & near_BHQK
        scores_BHQK = self.scores(self.score.match(q_BHQE, kept.k_BHKE))
        hidden_BHQK = ~self.mask(mask_BHQK)
        scores_BHQK = scores_BHQK.masked_fill(hidden_BHQK, torch.finfo(scores_BHQK.dtype).min)
        weights_BHQK = scores_BHQK.softmax(-1).masked_fill(hidden_BHQK, 0).to(kept.v_BHKE.dtype)
        if bell_BHQK is not None and self.aligned is not None:
            weights_BHQK = self.aligned(weights_BHQK) * bell_BHQK.to(weights_BHQK.dtype)
        mixed_BHQE: Tensor = self.weights(weights_BHQK) @ kept.v_BHKE
        return mixed_BHQE
