"""Multi-head attention: several attentions side by side, each in a small space (Vaswani et al. 2017, §3.2.2).

MultiHead(Q, K, V) = Concat(head₁, …, headₕ) Wᴼ with headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V).
The projections of all heads are one matrix: queries, keys and values together where a sequence looks at itself, keys
and values together where it looks at another.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention.dense import Inside, dense, watchable
from regard.nn.attention.kept import Kept
from regard.nn.attention.kernels import attend, attend_projected, parted
from regard.nn.attention.plan import Plan
from regard.nn.attention.scores import make_score
from regard.nn.attention.sight import Sight
from regard.nn.dropout import Dropout
from regard.nn.linear import applied, projection
from regard.nn.position import Rotary
from regard.nn.ragged import Layout
from regard.nn.tap import Tap


class MultiHeadAttention(nn.Module):
    """What `SelfAttention` and `CrossAttention` share: the heads, from projected queries to the output."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        score: str = "scaled",
        dropout: float = 0.0,
    ) -> None:
        """Attention of `heads` heads; a head's keys and values have `width / heads` numbers unless told."""
        super().__init__()
        if width % heads and (key_size is None or value_size is None):
            fits = [n for n in range(1, min(width, 64) + 1) if width % n == 0]
            raise ValueError(f"width {width} does not divide into {heads} heads; it divides into {fits}")
        self.heads = heads
        self.key_size, self.value_size = key_size or width // heads, value_size or width // heads
        self.sizes = heads, self.key_size, self.value_size
        self.score = make_score(score, self.key_size)
        self.out = projection(heads * self.value_size, [width])
        self.drop = Dropout(dropout)
        self.entered, self.q, self.k, self.v = Tap(), Tap(), Tap(), Tap()
        self.scores, self.mask, self.weights = Tap(), Tap(), Tap()
        self.mixed, self.output = Tap(), Tap()

    @property
    def last_bias(self) -> Float[Tensor, " D"] | None:
        """What `forward` adds last, and leaves out when `bare`; None where somebody watches the output."""
        return None if self.output.watched else self.out.bias

    def _mix(
        self,
        q_NHE: Float[Tensor, "N H E"],
        k_NHE: Float[Tensor, "N2 H E"],
        v_NHE: Float[Tensor, "N2 H E2"],
        plan: Plan,
    ) -> Float[Tensor, "N H E2"]:
        """Attend within a ragged batch."""
        return attend(self.q(q_NHE), self.k(k_NHE), self.v(v_NHE), plan, self._inside())

    def _mix_projected(self, projected: list[Float[Tensor, "_ _"]], plan: Plan) -> Float[Tensor, "N H E2"]:
        """The same of merged projections, which are cut only where somebody watches the parts."""
        if self.q.watched or self.k.watched or self.v.watched:
            return self._mix(*parted(projected, self.sizes), plan)
        return attend_projected(projected, self.sizes, plan, self._inside())

    def _mix_kept(
        self, q_BHQE: Float[Tensor, "B H Q E"], kept: Kept, bias: Float[Tensor, "H Q K"] | None
    ) -> Float[Tensor, "B Q D"]:
        """Attend to what a search has kept, and put the heads together."""
        inside = self._inside()
        scale = inside.score.scale
        if scale is None or inside.watched:
            mixed_BHQE = watchable(q_BHQE, kept.k_BHKE, kept.v_BHKE, kept.mask_for(q_BHQE), bias, inside)
        else:
            dropout = self.drop.p if self.training else 0.0
            mixed_BHQE = dense(q_BHQE, kept.k_BHKE, kept.v_BHKE, kept.added(bias), scale, dropout)
        return self._join(mixed_BHQE.transpose(1, 2))

    def _join(self, mixed: Float[Tensor, "*batch H E2"], bare: bool = False) -> Float[Tensor, "*batch D"]:
        """Concat(head₁, …, headₕ) Wᴼ."""
        joined: Tensor = self.output(applied(self.out, self.mixed(mixed).flatten(-2), bare))
        return joined

    def _inside(self) -> Inside:
        """What a kernel must know of this layer."""
        return Inside(self.score, self.scores, self.mask, self.weights, self.drop)


class SelfAttention(MultiHeadAttention):
    """Tokens of a sequence look at each other: queries, keys and values from one merged projection."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        score: str = "scaled",
        dropout: float = 0.0,
        rotary: bool = False,
    ) -> None:
        """As `MultiHeadAttention`; with `rotary`, queries and keys are turned by their position."""
        super().__init__(width, heads, key_size, value_size, score, dropout)
        self.qkv = projection(width, [heads * self.key_size, heads * self.key_size, heads * self.value_size])
        self.rotary = Rotary(self.key_size) if rotary else None

    def forward(self, x_ND: Float[Tensor, "N D"], plan: Plan, bare: bool = False) -> Float[Tensor, "N D"]:
        """Let every token look at its own sequence."""
        qkv_NF = self.qkv(self.entered(x_ND))
        if self.rotary is None:
            return self._join(self._mix_projected([qkv_NF], plan), bare)
        return self._join(self._mix(*self._turned(qkv_NF, plan.queries.position_N), plan), bare)

    def step(
        self, x_RD: Float[Tensor, "R D"], position: int, kept: Kept, sight: Sight
    ) -> tuple[Float[Tensor, "R D"], Kept]:
        """Let one new token a row look at those kept so far and at itself; what is kept grows by it."""
        place_R = torch.full(x_RD.shape[:1], position, device=x_RD.device)
        q_RHE, k_RHE, v_RHE = self._turned(self.qkv(self.entered(x_RD)), place_R)
        kept = kept.grown(self.k(k_RHE), self.v(v_RHE))
        mixed_RQD = self._mix_kept(self.q(q_RHE)[:, :, None], kept.in_sight(sight), kept.bias(sight))
        return mixed_RQD[:, 0], kept

    def _turned(
        self, qkv_NF: Float[Tensor, "N F"], position_N: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N H E"], Float[Tensor, "N H E"], Float[Tensor, "N H E2"]]:
        """Queries, keys and values, the first two turned by their position where that is wanted."""
        q_NHE, k_NHE, v_NHE = parted([qkv_NF], self.sizes)
        if self.rotary is not None:
            q_NHE, k_NHE = self.rotary(q_NHE, position_N), self.rotary(k_NHE, position_N)
        return q_NHE, k_NHE, v_NHE


class CrossAttention(MultiHeadAttention):
    """Tokens look at another sequence: keys and values from one merged projection (§3.2.3)."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        score: str = "scaled",
        dropout: float = 0.0,
    ) -> None:
        """As `MultiHeadAttention`."""
        super().__init__(width, heads, key_size, value_size, score, dropout)
        self.query = projection(width, [heads * self.key_size])
        self.kv = projection(width, [heads * self.key_size, heads * self.value_size])

    def forward(
        self, x_ND: Float[Tensor, "N D"], memory: Float[Tensor, "N2 D"], plan: Plan, bare: bool = False
    ) -> Float[Tensor, "N D"]:
        """Let every token look at the memory of its sequence number."""
        return self._join(self._mix_projected([self.query(self.entered(x_ND)), self.kv(memory)], plan), bare)

    def keep(self, memory: Float[Tensor, "N2 D"], layout: Layout) -> Kept:
        """Keys and values of a memory, computed once for a whole search."""
        k_NF, v_NF = self.kv(memory).split([self.heads * self.key_size, self.heads * self.value_size], -1)
        k_NHE, v_NHE = (each.unflatten(-1, (self.heads, -1)) for each in (k_NF, v_NF))
        return Kept.of(self.k(k_NHE), self.v(v_NHE), layout)

    def step(self, x_RD: Float[Tensor, "R D"], kept: Kept) -> Float[Tensor, "R D"]:
        """Let R rows look at B kept memories; R / B rows, the beams, share each of them."""
        q_RHE = self.query(self.entered(x_RD)).unflatten(-1, (self.heads, self.key_size))
        q_BWHE = self.q(q_RHE).view(kept.k_BHKE.shape[0], -1, *q_RHE.shape[1:])
        return self._mix_kept(q_BWHE.transpose(1, 2), kept, None).flatten(0, 1)
