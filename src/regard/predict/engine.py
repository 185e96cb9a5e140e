"""Choose the engine that decodes with a model: device, precision and quantisation.

An engine is any `SteppableModel`: the model itself, or a faster engine of `regard.engines` made from it.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import decode, engines
from regard.engines import SteppableModel
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import NestedRagged, Ragged
from regard.nn.tap import recording
from regard.options.decoding import LONGEST_OUTPUT
from regard.predict.alignment import AlignmentHead
from regard.text import END

log = logging.getLogger(__name__)

PRECISIONS = ("auto", "float32", "bfloat16", "int8")


class EnsembleEngine(decode.Ensemble):
    """Several engines that decode together: the probability of a token is the mean of theirs."""

    def __init__(self, engines: Sequence[SteppableModel]) -> None:
        """Combine engines, which must have the same vocabulary."""
        super().__init__(engines)
        self.engines = engines

    def start(self, source: Ragged, beams: int = 1) -> tuple[Any, ...]:
        """Encode the sources with each engine; return the states of all engines."""
        return tuple(engine.start(source, beams) for engine in self.engines)


class AttentionEngine:
    """The model's own steps with their attention weights, which a coverage penalty needs.

    Its state is the state of the model, and the attention weights of each row in the last step.
    """

    def __init__(self, model: Seq2Seq, head: AlignmentHead) -> None:
        """Record one attention head of a model, or the mean of a layer's heads."""
        self.model, self.head = model, head

    def start(self, source: Ragged, beams: int = 1) -> tuple[Any, Tensor | None]:
        """Encode the sources; return the state with `beams` rows for each."""
        return self.model.start(source, beams), None

    def step(self, tokens_R: Int[Tensor, " R"], state: tuple[Any, Tensor | None]) -> tuple[Tensor, tuple[Any, Tensor]]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""
        with recording(self.model, self.head.tap) as seen:
            logprobs_RV, after = self.model.step(tokens_R, state[0])
        ((weights_BHWS,),) = seen.values()
        weights_BWS = weights_BHWS.mean(1) if self.head.head is None else weights_BHWS[:, self.head.head]
        return logprobs_RV, (after, weights_BWS.flatten(0, 1))

    def attention(self, state: tuple[Any, Tensor]) -> Float[Tensor, "R S"]:
        """Return the attention weights of the step that led to this state."""
        return state[1]

    def select(self, state: tuple[Any, Tensor | None], rows_R: Int[Tensor, " R"]) -> tuple[Any, Tensor | None]:
        """Return the state that continues from these rows; before the first step there are no weights to select."""
        return self.model.select(state[0], rows_R), None if state[1] is None else state[1][rows_R]


def make_engine(model: nn.Module, device: torch.device, precision: str = "auto") -> SteppableModel:
    """Return the fastest engine for a trained model; `auto` is float32 on a CPU and bfloat16 on a GPU."""
    chosen: engines.Precision
    match precision:
        case "auto":
            chosen = "float32" if device.type == "cpu" else "bfloat16"
        case "float32" | "bfloat16" | "int8":
            chosen = precision
        case _:
            raise ValueError(f"there is no precision '{precision}'; choose one of {', '.join(PRECISIONS)}")
    engine = engines.engine(model, device, chosen)
    if engine.precision != chosen:
        log.warning("%s is not available for this model on %s; decoding in %s", chosen, device, engine.precision)
    return engine


def encoder_input(sources: Sequence[Sequence[int]], device: torch.device) -> Ragged:
    """Return a batch of sources as an encoder reads them: token ids followed by the end symbol."""
    return Ragged.from_list([[*ids, END] for ids in sources]).to(device)


def run_search(
    engine: SteppableModel,
    inputs: Ragged | NestedRagged | Tensor,
    sentences: Sequence[decode.SentenceOptions],
    options: decode.SearchOptions,
    search: Callable[..., list[list[decode.Hypothesis]]] = decode.search,
) -> list[list[decode.Hypothesis]]:
    """Encode sources or pictures, or prefill prompts, and search for the hypotheses of each in one batch."""
    # A model that is still trained must not keep tensors that were created in inference mode.
    with torch.no_grad(), torch.inference_mode(not isinstance(engine, nn.Module)):
        return search(engine, engine.start(inputs, options.rows), sentences, options, inputs.device)


def max_tokens(max_positions: int | None, reserved: int = 0) -> int:
    """Return how many tokens the positions of a model allow, besides `reserved` start or end symbols."""
    return LONGEST_OUTPUT if max_positions is None else max_positions - reserved
