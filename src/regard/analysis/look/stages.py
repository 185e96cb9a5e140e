"""The steps of a computation as a page shows them: a name, a formula, the numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.nn.attention.scores import Additive, Bilinear, Dot, Score


@dataclass(frozen=True, eq=False)
class Stage:
    """One step: what it is called, how it is computed, and what came of it."""

    name: str
    formula: str
    value: NDArray[Any]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a frame's message has it; the tensor goes beside."""
        return {
            "name": self.name,
            "formula": self.formula,
            "shape": list(self.value.shape),
            "tensor": self.name,
            "note": self.note,
        }


@dataclass(frozen=True, eq=False)
class Pass:
    """What passed the taps of one attention and its surroundings, for one pair."""

    model: nn.Module
    seen: dict[str, Tensor]
    """By the tap's name."""
    memory: Memory | None
    """What the encoder left, where a decoder was watched."""

    def at(self, tap: str) -> Tensor:
        """What passed a tap."""
        return self.seen[tap]


def numbers(value: Tensor) -> NDArray[Any]:
    """Numbers as a frame takes them."""
    found: NDArray[Any] = value.detach().float().cpu().numpy()
    return found


def hidden(mask: Tensor) -> NDArray[np.uint8]:
    """Where one may not look, as ones."""
    found: NDArray[np.uint8] = (~mask).to("cpu").numpy().astype(np.uint8)
    return found


def softmax_stages(scores: Tensor, mask: Tensor) -> list[Stage]:
    """From scores of one query and who may be looked at, to what the softmax is given."""
    masked = scores.masked_fill(~mask, -float("inf"))
    return [
        Stage("mask", "1 where one may not look", hidden(mask), "what comes later or lies outside a window"),
        Stage("masked", "scores, −∞ where hidden", numbers(masked)),
    ]


def projections(score: Score, query: Tensor, keys: Tensor) -> list[Stage]:
    """What a score makes of query and keys before it compares them; nothing where it is a plain product."""
    match score:
        case Bilinear():
            return [Stage("projected_query", "qᵀ W", numbers(query @ score.weight), "brought to the keys' space")]
        case Additive():
            return [
                Stage("projected_query", "W_q q", numbers(score.from_query(query)), "the query's half of W₁"),
                Stage("projected_keys", "W_k k", numbers(score.prepare(keys)), "the keys' half of W₁"),
                Stage("outer", "w₂", numbers(score.outer.weight[0]), "learned"),
            ]
        case _:
            return []


def formula_of(score: Score, size: int) -> str:
    """How a score is computed."""
    match score:
        case Bilinear():
            return "score = qᵀ W k"
        case Additive():
            return "score = w₂ᵀ tanh(W_q q + W_k k)"
        case Dot() if score.scale != 1.0:
            return f"score = q·k / √{size}"
        case _:
            return "score = q·k"


def told(stages: Sequence[Stage]) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Stages as a message and its arrays."""
    return [each.to_json() for each in stages], {each.name: each.value for each in stages}
