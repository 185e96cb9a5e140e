"""How well a key answers a query: the score functions of the lectures, behind one interface.

Queries `(…, Q, E)` and keys `(…, K, E)` come in, scores `(…, Q, K)` go out. A softmax over the keys makes them weights.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn


@runtime_checkable
class Score(Protocol):
    """Scores every key for every query."""

    @property
    def scale(self) -> float | None:
        """The factor on q·k where the score is a plain dot product, which fused kernels compute; else None."""

    def __call__(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""


@runtime_checkable
class StepwiseScore(Score, Protocol):
    """A score whose keys can be made ready before any query comes."""

    def prepare(self, key: Float[Tensor, "... E2"]) -> Float[Tensor, "... E3"]:
        """What can be made of keys before any query comes; a search does it once."""

    def match(self, query: Float[Tensor, "... Q E"], prepared: Float[Tensor, "... K E3"]) -> Float[Tensor, "... Q K"]:
        """Score every prepared key for every query."""


class _Unprepared(nn.Module):
    """A score that takes its keys as they are."""

    def prepare(self, key: Float[Tensor, "... E2"]) -> Float[Tensor, "... E2"]:
        """The keys themselves."""
        return key

    def match(self, query: Float[Tensor, "... Q E"], prepared: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        scores: Tensor = self(query, prepared)
        return scores


class Dot(_Unprepared):
    """score(q, k) = c · q·k, with c = 1 for the plain product (Luong et al. 2015, §3.1)."""

    def __init__(self, scale: float = 1.0) -> None:
        """Multiply each product by `scale`."""
        super().__init__()
        self.scale = scale

    def forward(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        return query @ key.transpose(-1, -2) * self.scale


class Bilinear(_Unprepared):
    """score(q, k) = qᵀ W k (Luong et al. 2015, «general», eq. 8)."""

    scale: float | None = None

    def __init__(self, query_width: int, key_width: int) -> None:
        """A matrix between queries and keys, which may differ in width."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(query_width, key_width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        return query @ self.weight @ key.transpose(-1, -2)


class Additive(nn.Module):
    """score(q, k) = w₂ᵀ tanh(W₁ [q, k]) (Bahdanau et al. 2015, §A.1.2); W₁ is kept as its two halves."""

    scale: float | None = None

    def __init__(self, query_width: int, key_width: int, inner: int) -> None:
        """One hidden layer of `inner` units over query and key together."""
        super().__init__()
        self.from_query = nn.Linear(query_width, inner, bias=False)
        self.from_key = nn.Linear(key_width, inner, bias=False)
        self.outer = nn.Linear(inner, 1, bias=False)

    def forward(self, query: Float[Tensor, "... Q E"], key: Float[Tensor, "... K E2"]) -> Float[Tensor, "... Q K"]:
        """Score every key for every query."""
        return self.match(query, self.prepare(key))

    def prepare(self, key: Float[Tensor, "... E2"]) -> Float[Tensor, "... E3"]:
        """The keys' half of W₁."""
        prepared: Tensor = self.from_key(key)
        return prepared

    def match(self, query: Float[Tensor, "... Q E"], prepared: Float[Tensor, "... K E3"]) -> Float[Tensor, "... Q K"]:
        """Score every prepared key for every query."""
        hidden = self.from_query(query).unsqueeze(-2) + prepared.unsqueeze(-3)
        scores: Tensor = self.outer(torch.tanh(hidden)).squeeze(-1)
        return scores


def make_score(kind: str, size: int) -> StepwiseScore:
    """The score of this name for queries and keys of one size."""
    match kind:
        case "dot":
            return Dot()
        case "scaled":
            return Dot(1 / math.sqrt(size))  # Vaswani et al. 2017, eq. 1: without it large sizes saturate the softmax
        case "bilinear":
            return Bilinear(size, size)
        case "additive":
            return Additive(size, size, size)
    raise ValueError(f"there is no attention score '{kind}'; it may be dot, scaled, bilinear or additive")
