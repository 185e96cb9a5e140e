"""Single-head attention over a memory, as in models before the Transformer: only the score function has parameters.

weights = softmax(score(query, keys)), context = weights · values (Bahdanau et al. 2015, eq. 5 and 6). Global attention
covers the whole source; local attention first predicts a position and covers a window around it (Luong et al. 2015,
§3.2).
"""

from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention.dense import AttentionCore
from regard.nn.attention.kernels import attend
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.plan import AttentionPlan
from regard.nn.attention.scores import ScoreFunction
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.ragged import Layout
from regard.nn.tap import Tap


class AttentionFormulas(NamedTuple):
    """Formulas to show: of a decoder's query, and of the vector that it computes from the context."""

    query: str
    """The formula of the query."""
    query_note: str
    tap: str
    """Name, in the module that owns the attention, of the tap that records the vector."""
    name: str
    """Name of the vector."""
    result: str
    """The formula of the vector."""
    result_note: str = ""


@runtime_checkable
class AttentionOwner(Protocol):
    """A module with single-head attention that says how it computes the query, and how it uses the context."""

    formulas: ClassVar[AttentionFormulas]


class PredictedWindow(nn.Module):
    """The predicted window of local attention with predictive alignment, "local-p" (Luong et al. 2015, §3.2).

    p = S · sigmoid(vᵀ tanh(W h)) (eq. 9) is a position in a source of S tokens, counted from 0. Only the keys from
    p - D to p + D are attended to, and their weights are multiplied by a Gaussian of deviation D / 2 around p (eq. 10).
    """

    def __init__(self, width: int, reach: int) -> None:
        """Create the predictor.

        Args:
            width: Width of the queries.
            reach: Half the window's width, the paper's D.
        """
        super().__init__()
        self.inner = nn.Linear(width, width, bias=False)
        self.outer = nn.Linear(width, 1, bias=False)
        self.reach = reach
        self.place = Tap()

    def forward(
        self, q_BHQE: Float[Tensor, "B H Q E"], lengths_B: Int[Tensor, " B"], keys: int
    ) -> tuple[Bool[Tensor, "B H Q K"], Float[Tensor, "B H Q K"]]:
        """Return which of `keys` keys are in each query's window, and the Gaussian factors of their weights."""
        share = torch.sigmoid(self.outer(torch.tanh(self.inner(q_BHQE))))
        share = share.to(torch.promote_types(share.dtype, torch.float32))  # half precision cannot count to 1000
        position = self.place(lengths_B.to(share.dtype)[:, None, None, None] * share)
        distance_BHQK = torch.arange(keys, device=position.device, dtype=position.dtype) - position
        gaussian_BHQK = torch.exp(-2 * (distance_BHQK / self.reach) ** 2)  # (s - p)² / 2σ² with σ = D / 2
        return distance_BHQK.abs() <= self.reach, gaussian_BHQK


class SingleHeadAttention(nn.Module):
    """One attention head over a memory (Bahdanau et al. 2015; Luong et al. 2015)."""

    def __init__(self, score: ScoreFunction, focus: PredictedWindow | None = None) -> None:
        """Create global attention, or local attention if `focus` predicts a window."""
        super().__init__()
        self.score, self.focus = score, focus
        self.drop = Dropout(0.0)
        self.query, self.scores, self.mask, self.weights, self.context = Tap(), Tap(), Tap(), Tap(), Tap()
        self.aligned = Tap() if focus is not None else None

    def forward(
        self,
        q_ND: Float[Tensor, "N D"],
        k_ND: Float[Tensor, "N2 D2"],
        v_ND: Float[Tensor, "N2 D3"],
        plan: AttentionPlan,
    ) -> Float[Tensor, "N D3"]:
        """Return the context vector of every query of a ragged batch."""
        q_ND = self.query(q_ND)
        # Under autocast, sums with embeddings may be float32 while the keys are not; kernels need one dtype.
        q_NHE, k_NHE, v_NHE = q_ND[:, None].to(k_ND.dtype), k_ND[:, None], v_ND[:, None].to(k_ND.dtype)
        if self.focus is None:
            context_NHE = attend(q_NHE, k_NHE, v_NHE, plan, self._core())
        else:
            q_BHQE, cache = plan.queries.pad(q_NHE).transpose(1, 2), self.make_cache(k_ND, v_ND, plan.keys)
            real_BQ = torch.arange(q_BHQE.shape[2], device=q_ND.device) < plan.queries.lengths_B[:, None]
            context_BHQE = self._attend(q_BHQE, cache, cache.mask_for(q_BHQE) & real_BQ[:, None, :, None])
            context_NHE = plan.queries.unpad(context_BHQE.transpose(1, 2))
        context_ND: Tensor = self.context(context_NHE[:, 0])
        return context_ND

    def make_cache(self, k_ND: Float[Tensor, "N D"], v_ND: Float[Tensor, "N D2"], layout: Layout) -> KVCache:
        """Return the KV cache of a memory, with its keys prepared for the score function."""
        return KVCache.from_ragged(self.score.prepare(k_ND)[:, None], v_ND[:, None], layout)

    def step(self, q_RD: Float[Tensor, "R D"], cache: KVCache) -> Float[Tensor, "R D2"]:
        """Return the context of one query a row; the R / B rows of a beam share one of B cached memories."""
        q_RD, sources = self.query(q_RD), cache.k_BHKE.shape[0]
        q_BHQE = q_RD.view(sources, 1, q_RD.shape[0] // max(1, sources), q_RD.shape[1])
        if self.focus is None and cache.additive_mask_BK is not None and not self._core().watched:
            # Few operations: at one query a row, a GPU spends its time launching kernels.
            scores_BHQK = self.score.match(q_BHQE, cache.k_BHKE) + cache.additive_mask_BK[:, None, None]
            mixed_BHQE = scores_BHQK.softmax(-1).to(cache.v_BHKE.dtype) @ cache.v_BHKE
        else:
            mixed_BHQE = self._attend(q_BHQE, cache, cache.mask_for(q_BHQE))
        context_RD: Tensor = self.context(mixed_BHQE.flatten(0, 2))
        return context_RD

    def attention_flops(self, counts: TokenCounts, query_width: int, value_width: int) -> int:
        """Return the operations of a forward pass with queries and values of these widths."""
        score = self.score.score_flops(query_width, counts.tokens, counts.memory_tokens, counts.cross_pairs)
        focus = 0 if self.focus is None else count_flops(self.focus, counts)
        return score + focus + 2 * counts.cross_pairs * value_width

    def _core(self) -> AttentionCore:
        return AttentionCore(self.score, self.scores, self.mask, self.weights, self.drop)

    def _attend(
        self, q_BHQE: Float[Tensor, "B H Q E"], cache: KVCache, mask_BHQK: Bool[Tensor, "B H Q K"]
    ) -> Float[Tensor, "B H Q E2"]:
        """Attend with every intermediate tensor passing through its tap; a fully masked query gets zero."""
        gaussian_BHQK = None
        if self.focus is not None and cache.mask_BK is not None:
            near_BHQK, gaussian_BHQK = self.focus(q_BHQE, cache.mask_BK.sum(-1), cache.k_BHKE.shape[2])
            mask_BHQK = mask_BHQK & near_BHQK
        scores_BHQK = self.scores(self.score.match(q_BHQE, cache.k_BHKE))
        hidden_BHQK = ~self.mask(mask_BHQK)
        # See `explicit_attention` for the two fills.
        scores_BHQK = scores_BHQK.masked_fill(hidden_BHQK, torch.finfo(scores_BHQK.dtype).min)
        weights_BHQK = scores_BHQK.softmax(-1).masked_fill(hidden_BHQK, 0).to(cache.v_BHKE.dtype)
        if gaussian_BHQK is not None and self.aligned is not None:
            weights_BHQK = self.aligned(weights_BHQK) * gaussian_BHQK.to(weights_BHQK.dtype)
        mixed_BHQE: Tensor = self.weights(weights_BHQK) @ cache.v_BHKE
        return mixed_BHQE
