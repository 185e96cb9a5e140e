"""The interface of an engine, and the engine that serves every model: the model's own steps."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.engines.linear import Precision, stream_dtype


@runtime_checkable
class SteppableModel(Protocol):
    """A model that decodes step by step: every encoder-decoder, and a language model."""

    def start(self, inputs: Any, beams: int = 1) -> Any:
        """Encode sources, or prefill prompts, and return the decoding state with `beams` adjacent rows for each."""

    def step(self, tokens_R: Int[Tensor, " R"], state: Any) -> tuple[Float[Tensor, "R V"], Any]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""

    def select(self, state: Any, rows_R: Int[Tensor, " R"]) -> Any:
        """Return the state that continues from these rows: beams keep to their sentence, whole sentences may leave."""


@runtime_checkable
class Engine(SteppableModel, Protocol):
    """A trained model made fast to decode.

    `step`, `select` and `join` change the state they are given: use the one they return.
    """

    precision: Precision
    """What it really computes in."""

    def top_k(
        self, tokens_R: Int[Tensor, " R"], state: Any, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], Any]:
        """Make a step; return the k greatest log-probabilities of each row, greatest first, their tokens, the state."""

    def join(self, states: Sequence[Any]) -> Any:
        """Return one state of the sentences of several, in order; each row continues from its own position."""


@dataclass(frozen=True, eq=False)
class JoinedState:
    """A state of the model within a `ModelEngine`, and how many rows it has."""

    state: Any
    rows: int


class ModelEngine:
    """An engine that calls the model's own steps. States that are joined are stepped one after the other."""

    max_top_k = 0  # `top_k` computes all log-probabilities, so it saves nothing
    mixes_rows: Literal[True] = True

    def __init__(self, model: torch.nn.Module, device: torch.device | str, precision: Precision) -> None:
        """Run `model`, or a copy where the device or the number format is another."""
        self.precision: Precision = "float32" if precision == "int8" else precision
        dtype, weight = stream_dtype(self.precision), next(model.parameters())
        fits = weight.device == torch.device(device) and weight.dtype == dtype
        chosen: Any = model if fits else copy.deepcopy(model).to(device, dtype)
        self.model: SteppableModel = chosen.eval()
        self.dtype = torch.promote_types(dtype, torch.float32)

    @torch.inference_mode()
    def start(self, inputs: Any, beams: int = 1) -> list[JoinedState]:
        """Encode sources, or prefill prompts, and return the decoding state with `beams` adjacent rows for each."""
        return [JoinedState(self.model.start(inputs, beams), len(inputs) * beams)]

    @torch.inference_mode()
    def step(
        self, tokens_R: Int[Tensor, " R"], state: list[JoinedState]
    ) -> tuple[Float[Tensor, "R V"], list[JoinedState]]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""
        logprobs, after = [], []
        sizes = [joined.rows for joined in state]
        for tokens, joined in zip(torch.split_with_sizes(tokens_R, sizes), state, strict=True):
            logprobs_RV, grown = self.model.step(tokens, joined.state)
            logprobs.append(logprobs_RV.to(self.dtype))
            after.append(JoinedState(grown, joined.rows))
        return torch.cat(logprobs), after

    @torch.inference_mode()
    def top_k(
        self, tokens_R: Int[Tensor, " R"], state: list[JoinedState], k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], list[JoinedState]]:
        """Make a step; return the k greatest log-probabilities of each row, greatest first, their tokens, the state."""
        logprobs_RV, state = self.step(tokens_R, state)
        logprob_RK, token_RK = logprobs_RV.topk(k)
        return logprob_RK, token_RK, state

    @torch.inference_mode()
    def select(self, state: list[JoinedState], rows_R: Int[Tensor, " R"]) -> list[JoinedState]:
        """Return the state that continues from these rows: beams keep to their sentence, whole sentences may leave."""
        selected, begin = [], 0
        for joined in state:
            rows = rows_R[(rows_R >= begin) & (rows_R < begin + joined.rows)] - begin
            if rows.shape[0]:
                selected.append(JoinedState(self.model.select(joined.state, rows), rows.shape[0]))
            begin += joined.rows
        return selected

    def join(self, states: Sequence[list[JoinedState]]) -> list[JoinedState]:
        """Return one state of the sentences of several, in order; each row continues from its own position."""
        return [joined for state in states for joined in state]


def check_equal_beams(beams: Sequence[int]) -> None:
    """Raise an error unless all states that are to be joined have the same number of beams."""
    if len(set(beams)) > 1:
        raise ValueError(f"cannot join states with {list(beams)} beams; start all with the same number of beams")
