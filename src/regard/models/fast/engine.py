"""What an engine is, and the one that serves whatever no other does: the model itself."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.fast.linear import Precision, dtype_of
from regard.nn.ragged import Ragged


@runtime_checkable
class Engine(Protocol):
    """Searches a trained model quickly.

    States are spent: one that was stepped, selected or joined is not used again.
    """

    precision: Precision
    """What it really computes in."""

    def start(self, source: Ragged, beams: int = 1) -> Any:
        """Begin a search with `beams` rows for each source, those of one source in a line."""

    def step(self, tokens_R: Int[Tensor, " R"], state: Any) -> tuple[Float[Tensor, "R V"], Any]:
        """Log-probabilities of the next token in each row, given its last one, and the search with that."""

    def top(
        self, tokens_R: Int[Tensor, " R"], state: Any, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], Any]:
        """The k greatest of what `step` says, greatest first, and their tokens."""

    def select(self, state: Any, rows_R: Int[Tensor, " R"]) -> Any:
        """The search that goes on with these rows: the rows of a sentence stay together; whole sentences may leave."""

    def join(self, states: Sequence[Any]) -> Any:
        """One search of the sentences of several, in order; each row goes on from its own position."""


@runtime_checkable
class Steps(Protocol):
    """What every family of models offers."""

    def start(self, source: Ragged, beams: int = 1) -> Any:
        """Begin a search."""

    def step(self, tokens_R: Int[Tensor, " R"], state: Any) -> tuple[Float[Tensor, "R V"], Any]:
        """Log-probabilities of the next token in each row."""

    def select(self, state: Any, rows_R: Int[Tensor, " R"]) -> Any:
        """Go on with these rows."""


@dataclass(frozen=True, eq=False)
class Part:
    """A state of the model, and how many rows it has."""

    state: Any
    rows: int
    beams: int


class OwnEngine:
    """A model's own steps. Searches that are joined go on side by side, each by itself."""

    listed = 0  # its lists are made of all

    def __init__(self, model: torch.nn.Module, device: torch.device | str, precision: Precision) -> None:
        """Run `model`, or a copy where the device or the number format is another."""
        self.precision: Precision = "float32" if precision == "int8" else precision
        weight = next(model.parameters())
        here = weight.device == torch.device(device) and weight.dtype == dtype_of(self.precision)
        chosen: Any = model if here else copy.deepcopy(model).to(device, dtype_of(self.precision))
        self.model: Steps = chosen.eval()
        self.exact = torch.promote_types(dtype_of(self.precision), torch.float32)

    @torch.inference_mode()
    def start(self, source: Ragged, beams: int = 1) -> list[Part]:
        """Begin a search with `beams` rows for each source, those of one source in a line."""
        return [Part(self.model.start(source, beams), len(source) * beams, beams)]

    @torch.inference_mode()
    def step(self, tokens_R: Int[Tensor, " R"], state: list[Part]) -> tuple[Float[Tensor, "R V"], list[Part]]:
        """Log-probabilities of the next token in each row, given its last one, and the search with that."""
        said, after = [], []
        for tokens, part in zip(torch.split_with_sizes(tokens_R, [part.rows for part in state]), state, strict=True):
            logprobs_RV, grown = self.model.step(tokens, part.state)
            said.append(logprobs_RV.to(self.exact))
            after.append(Part(grown, part.rows, part.beams))
        return torch.cat(said), after

    @torch.inference_mode()
    def top(
        self, tokens_R: Int[Tensor, " R"], state: list[Part], k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], list[Part]]:
        """The k greatest of what `step` says, greatest first, and their tokens."""
        said_RV, state = self.step(tokens_R, state)
        best_RK, token_RK = said_RV.topk(k)
        return best_RK, token_RK, state

    @torch.inference_mode()
    def select(self, state: list[Part], rows_R: Int[Tensor, " R"]) -> list[Part]:
        """The search that goes on with these rows: the rows of a sentence stay together; whole sentences may leave."""
        chosen, begin = [], 0
        for part in state:
            mine = rows_R[(rows_R >= begin) & (rows_R < begin + part.rows)] - begin
            if mine.shape[0]:
                chosen.append(Part(self.model.select(part.state, mine), mine.shape[0], part.beams))
            begin += part.rows
        return chosen

    def join(self, states: Sequence[list[Part]]) -> list[Part]:
        """One search of the sentences of several, in order; each row goes on from its own position."""
        parts = [part for state in states for part in state]
        check_beams([part.beams for part in parts])
        return parts


def check_beams(beams: Sequence[int]) -> None:
    """Refuse to join searches of unlike width."""
    if len(set(beams)) > 1:
        raise ValueError(f"searches of {list(beams)} rows a sentence cannot be one; give all as many")
