"""Multi-head attention (Vaswani et al. 2017, §3.2.2).

MultiHead(Q, K, V) = Concat(head₁, …, headₕ) Wᴼ with headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V).
The projections of all heads are one matrix: queries, keys and values together in self-attention, keys and values
together in cross-attention.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention.dense import AttentionCore, dense_attention, explicit_attention
from regard.nn.attention.kernels import attend, attend_projected, split_heads
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.plan import AttentionPlan
from regard.nn.attention.scores import make_score_function
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.linear import apply_linear, make_projection
from regard.nn.position import RotaryPositions
from regard.nn.ragged import Layout
from regard.nn.tap import Tap


class MultiHeadAttention(nn.Module):
    """Base class of self- and cross-attention: everything between the input projections and the output."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        score: str = "scaled",
        dropout: float = 0.0,
    ) -> None:
        """Create the heads and the output projection Wᴼ.

        Args:
            width: Size of a token's vector.
            heads: Number of heads.
            key_size: Size of a head's queries and keys, `width / heads` by default.
            value_size: Size of a head's values, `width / heads` by default.
            score: A name that `make_score_function` knows.
            dropout: Probability with which an attention weight is dropped during training.
        """
        super().__init__()
        if width % heads and (key_size is None or value_size is None):
            divisors = [n for n in range(1, min(width, 64) + 1) if width % n == 0]
            raise ValueError(f"a width of {width} does not divide into {heads} heads; use one of {divisors} heads")
        self.heads = heads
        self.key_size, self.value_size = key_size or width // heads, value_size or width // heads
        self.sizes = heads, self.key_size, self.value_size
        self.score = make_score_function(score, self.key_size)
        self.out = make_projection(heads * self.value_size, [width])
        self.drop = Dropout(dropout)
        self.entered, self.q, self.k, self.v = Tap(), Tap(), Tap(), Tap()
        self.scores, self.mask, self.weights = Tap(), Tap(), Tap()
        self.mixed, self.output = Tap(), Tap()

    @property
    def output_bias(self) -> Float[Tensor, " D"] | None:
        """Return the bias that `forward` adds last and omits with `skip_bias`; None while the output is watched."""
        return None if self.output.watched else self.out.bias

    def _attend(
        self,
        q_NHE: Float[Tensor, "N H E"],
        k_NHE: Float[Tensor, "N2 H E"],
        v_NHE: Float[Tensor, "N2 H E2"],
        plan: AttentionPlan,
    ) -> Float[Tensor, "N H E2"]:
        """Attend within a ragged batch."""
        return attend(self.q(q_NHE), self.k(k_NHE), self.v(v_NHE), plan, self._core())

    def _attend_projected(self, projected: list[Float[Tensor, "_ _"]], plan: AttentionPlan) -> Float[Tensor, "N H E2"]:
        """Attend with merged projections, which are split here only if queries, keys or values are watched."""
        if self.q.watched or self.k.watched or self.v.watched:
            return self._attend(*split_heads(projected, self.sizes), plan)
        return attend_projected(projected, self.sizes, plan, self._core())

    def _attend_cached(
        self, q_BHQE: Float[Tensor, "B H Q E"], cache: KVCache, bias: Float[Tensor, "H Q K"] | None
    ) -> Float[Tensor, "B Q D"]:
        """Attend to cached keys and values, and apply the output projection."""
        core = self._core()
        scale = core.score.scale
        if scale is None or core.watched:
            mixed_BHQE = explicit_attention(q_BHQE, cache.k_BHKE, cache.v_BHKE, cache.mask_for(q_BHQE), bias, core)
        else:
            mask = cache.additive_mask(bias)
            mixed_BHQE = dense_attention(q_BHQE, cache.k_BHKE, cache.v_BHKE, mask, scale, core.dropout)
        return self._join_heads(mixed_BHQE.transpose(1, 2))

    def _join_heads(self, mixed: Float[Tensor, "*batch H E2"], skip_bias: bool = False) -> Float[Tensor, "*batch D"]:
        """Compute Concat(head₁, …, headₕ) Wᴼ."""
        joined: Tensor = self.output(apply_linear(self.out, self.mixed(mixed).flatten(-2), skip_bias))
        return joined

    def _core(self) -> AttentionCore:
        return AttentionCore(self.score, self.scores, self.mask, self.weights, self.drop)

    def _pair_flops(self, queries: int, keys: int, pairs: int) -> int:
        """Return the operations of scores and of the weighted sums of values, in all heads."""
        scores = self.score.score_flops(self.key_size, queries, keys, pairs)
        return self.heads * (scores + 2 * pairs * self.value_size)


class SelfAttention(MultiHeadAttention):
    """Attention of a sequence to itself, with one merged projection for queries, keys and values."""

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
        """Create the layer; the arguments are those of `MultiHeadAttention`, and `rotary` adds rotary positions."""
        super().__init__(width, heads, key_size, value_size, score, dropout)
        self.qkv = make_projection(width, [heads * self.key_size, heads * self.key_size, heads * self.value_size])
        self.rotary = RotaryPositions(self.key_size) if rotary else None

    def forward(self, x_ND: Float[Tensor, "N D"], plan: AttentionPlan, skip_bias: bool = False) -> Float[Tensor, "N D"]:
        """Attend within each sequence of a ragged batch."""
        qkv_NF = self.qkv(self.entered(x_ND))
        if self.rotary is None:
            return self._join_heads(self._attend_projected([qkv_NF], plan), skip_bias)
        return self._join_heads(self._attend(*self._rotate(qkv_NF, plan.queries.position_N), plan), skip_bias)

    def prefill(self, x_ND: Float[Tensor, "N D"], plan: AttentionPlan) -> tuple[Float[Tensor, "N D"], KVCache]:
        """Attend within each prompt of a ragged batch, and return the KV cache of the prompts too."""
        q_NHE, k_NHE, v_NHE = self._rotate(self.qkv(self.entered(x_ND)), plan.queries.position_N)
        k_NHE, v_NHE = self.k(k_NHE), self.v(v_NHE)  # the cache holds what a watcher may have replaced
        mixed_NHE = attend(self.q(q_NHE), k_NHE, v_NHE, plan, self._core())
        return self._join_heads(mixed_NHE), KVCache.from_prompts(k_NHE, v_NHE, plan.keys)

    def step(
        self, x_RD: Float[Tensor, "R D"], position_R: Int[Tensor, " R"], cache: KVCache, mask: AttentionMask
    ) -> tuple[Float[Tensor, "R D"], KVCache]:
        """Attend with one new token a row to the cached tokens and itself.

        Args:
            x_RD: The new token of each row.
            position_R: Its position.
            cache: Keys and values of the earlier positions.
            mask: The mask of the layer; a window excludes keys that are too far back.

        Returns:
            The output of each row, and the cache with the new keys and values.
        """
        q_RHE, k_RHE, v_RHE = self._rotate(self.qkv(self.entered(x_RD)), position_R)
        cache = cache.append(self.k(k_RHE), self.v(v_RHE))
        mixed_RQD = self._attend_cached(self.q(q_RHE)[:, :, None], cache.masked(mask), cache.alibi_bias(mask))
        return mixed_RQD[:, 0], cache

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        projections = count_flops(self.qkv, counts) + count_flops(self.out, counts)
        return projections + self._pair_flops(counts.tokens, counts.tokens, counts.self_pairs)

    def _rotate(
        self, qkv_NF: Float[Tensor, "N F"], position_N: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N H E"], Float[Tensor, "N H E"], Float[Tensor, "N H E2"]]:
        """Split a merged projection into heads and apply rotary positions, if any, to queries and keys."""
        q_NHE, k_NHE, v_NHE = split_heads([qkv_NF], self.sizes)
        if self.rotary is not None:
            q_NHE, k_NHE = self.rotary(q_NHE, position_N), self.rotary(k_NHE, position_N)
        return q_NHE, k_NHE, v_NHE


class CrossAttention(MultiHeadAttention):
    """Attention to another sequence, with one merged projection for its keys and values (§3.2.3)."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        score: str = "scaled",
        dropout: float = 0.0,
    ) -> None:
        """Create the layer; the arguments are those of `MultiHeadAttention`."""
        super().__init__(width, heads, key_size, value_size, score, dropout)
        self.query = make_projection(width, [heads * self.key_size])
        self.kv = make_projection(width, [heads * self.key_size, heads * self.value_size])

    def forward(
        self, x_ND: Float[Tensor, "N D"], memory: Float[Tensor, "N2 D"], plan: AttentionPlan, skip_bias: bool = False
    ) -> Float[Tensor, "N D"]:
        """Attend with each sequence of a ragged batch to the memory of the same number."""
        projected = [self.query(self.entered(x_ND)), self.kv(memory)]
        return self._join_heads(self._attend_projected(projected, plan), skip_bias)

    def make_cache(self, memory: Float[Tensor, "N2 D"], layout: Layout) -> KVCache:
        """Return the KV cache of a memory, computed once for a whole search."""
        k_NF, v_NF = self.kv(memory).split([self.heads * self.key_size, self.heads * self.value_size], -1)
        k_NHE, v_NHE = (x_NF.unflatten(-1, (self.heads, -1)) for x_NF in (k_NF, v_NF))
        return KVCache.from_ragged(self.k(k_NHE), self.v(v_NHE), layout)

    def step(self, x_RD: Float[Tensor, "R D"], cache: KVCache) -> Float[Tensor, "R D"]:
        """Attend with one token a row; the R / B rows of a beam share one of B cached memories."""
        q_RHE = self.query(self.entered(x_RD)).unflatten(-1, (self.heads, self.key_size))
        q_BWHE = self.q(q_RHE).view(cache.k_BHKE.shape[0], -1, *q_RHE.shape[1:])
        return self._attend_cached(q_BWHE.transpose(1, 2), cache, None).flatten(0, 1)

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass; keys and values are projected once for each token of the memory."""
        projections = count_flops(self.query, counts) + count_flops(self.out, counts)
        projections += 2 * self.kv.weight.numel() * counts.memory_tokens
        return projections + self._pair_flops(counts.tokens, counts.memory_tokens, counts.cross_pairs)
