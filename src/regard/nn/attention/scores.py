"""Score functions: how well a key matches a query, behind one interface.

Queries `(…, Q, E)` and keys `(…, K, E)` come in, scores `(…, Q, K)` go out. Attention weights are their softmax over
the keys.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn


@runtime_checkable
class ScoreFunction(Protocol):
    """A function that scores every key for every query, and can prepare keys before the queries are known."""

    @property
    def scale(self) -> float | None:
        """The factor on q·k if the score is a scaled dot product, which fused kernels compute; None otherwise."""

    @property
    def formula(self) -> str:
        """The score of one key as a formula, for people to read."""

    def __call__(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""

    def prepare(self, key: Float[Tensor, "... E2"]) -> Float[Tensor, "... E3"]:
        """Compute the part of the score that depends on the keys alone; decoding does it once per memory."""

    def match(self, query: Float[Tensor, "... Q E"], prepared: Float[Tensor, "... K E3"]) -> Float[Tensor, "... Q K"]:
        """Score every prepared key for every query."""

    def score_flops(self, size: int, queries: int, keys: int, pairs: int) -> int:
        """Return the operations that score so many pairs of queries and keys of this size."""


class _WithoutPreparation(nn.Module):
    """Base of score functions that use keys as they are."""

    def prepare(self, key: Float[Tensor, "... E2"]) -> Float[Tensor, "... E2"]:
        """Return the keys unchanged."""
        return key

    def match(self, query: Float[Tensor, "... Q E"], prepared: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        scores: Tensor = self(query, prepared)
        return scores


class DotScore(_WithoutPreparation):
    """score(q, k) = c · q·k; c = 1 is the plain dot product (Luong et al. 2015, §3.1)."""

    def __init__(self, scale: float = 1.0) -> None:
        """Set the factor c."""
        super().__init__()
        self.scale = scale

    @property
    def formula(self) -> str:
        """The dot product, with its factor as a root: 1 / √size in a Transformer."""
        return "q·k" if self.scale == 1.0 else f"q·k / √{self.scale**-2:.4g}"

    def forward(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        return query @ key.transpose(-1, -2) * self.scale

    def score_flops(self, size: int, queries: int, keys: int, pairs: int) -> int:
        """Return the operations of the dot products."""
        return 2 * size * pairs


class BilinearScore(_WithoutPreparation):
    """score(q, k) = qᵀ W k (Luong et al. 2015, «general», eq. 8)."""

    scale: float | None = None
    formula: str = "qᵀ W k"

    def __init__(self, query_width: int, key_width: int) -> None:
        """Create the matrix W between queries and keys, which may differ in width."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(query_width, key_width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        return query @ self.weight @ key.transpose(-1, -2)

    def score_flops(self, size: int, queries: int, keys: int, pairs: int) -> int:
        """Return the operations of the product with W and of the dot products."""
        return 2 * self.weight.numel() * queries + 2 * self.weight.shape[1] * pairs


class AdditiveScore(nn.Module):
    """score(q, k) = w₂ᵀ tanh(W₁ [q, k]) (Bahdanau et al. 2015, §A.1.2).

    W₁ is stored as two matrices, one for queries and one for keys, so that the keys' half is computed only once.
    """

    scale: float | None = None
    formula: str = "w₂ᵀ tanh(W_q q + W_k k)"

    def __init__(self, query_width: int, key_width: int, inner: int) -> None:
        """Create a hidden layer of `inner` units over the concatenation of query and key."""
        super().__init__()
        self.from_query = nn.Linear(query_width, inner, bias=False)
        self.from_key = nn.Linear(key_width, inner, bias=False)
        self.outer = nn.Linear(inner, 1, bias=False)

    def forward(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        return self.match(query, self.prepare(key))

    def prepare(self, key: Float[Tensor, "... E2"]) -> Float[Tensor, "... E3"]:
        """Multiply the keys by their half of W₁."""
        prepared: Tensor = self.from_key(key)
        return prepared

    def match(self, query: Float[Tensor, "... Q E"], prepared: Float[Tensor, "... K E3"]) -> Float[Tensor, "... Q K"]:
        """Score every prepared key for every query."""
        return self.compare(self.from_query(query), prepared)

    def compare(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query, given their halves of the hidden layer."""
        scores: Tensor = self.outer(torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))).squeeze(-1)
        return scores

    def score_flops(self, size: int, queries: int, keys: int, pairs: int) -> int:
        """Return the operations of the hidden layer, whose halves are computed once, and of the layer after it."""
        hidden = self.from_query.weight.numel() * queries + self.from_key.weight.numel() * keys
        return 2 * hidden + 2 * self.outer.weight.numel() * pairs


def make_score_function(kind: str, size: int) -> ScoreFunction:
    """Create the score function of this name for queries and keys of one size."""
    match kind:
        case "dot":
            return DotScore()
        case "scaled":
            # Vaswani et al. 2017, eq. 1: without the factor, large heads saturate the softmax.
            return DotScore(1 / math.sqrt(size))
        case "bilinear":
            return BilinearScore(size, size)
        case "additive":
            return AdditiveScore(size, size, size)
    raise ValueError(f"unknown attention score '{kind}'; choose dot, scaled, bilinear or additive")
