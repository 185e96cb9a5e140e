"""What does the arithmetic of a search: the one place where device, precision and quantisation are chosen."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode import Ensemble
from regard.models import fast
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.translator.alignment import Look

log = logging.getLogger(__name__)

PRECISIONS = ("auto", "float32", "bfloat16", "int8")


class Engine(Protocol):
    """A stepper that can begin: see `regard.decode.Stepper`."""

    def start(self, source: Ragged, beams: int = 1) -> Any:
        """Begin a search with `beams` rows for each source."""

    def step(self, tokens_R: Int[Tensor, " R"], state: Any) -> tuple[Float[Tensor, "R V"], Any]:
        """Log-probabilities of the next token in each row, and the state with its last one."""

    def select(self, state: Any, rows_R: Int[Tensor, " R"]) -> Any:
        """The state that goes on with these rows."""


class EnsembleEngine(Ensemble):
    """Several engines that translate together: each token's probability is the mean of theirs."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """The engines all know one vocabulary."""
        super().__init__(engines)
        self.engines = engines

    def start(self, source: Ragged, beams: int = 1) -> tuple[Any, ...]:
        """Begin a search in each."""
        return tuple(engine.start(source, beams) for engine in self.engines)


class WatchedEngine:
    """A model's own steps, watched at the tap that alignments are read from: what a coverage penalty asks for.

    Its state is the model's and where each row looked last.
    """

    def __init__(self, model: Seq2Seq, look: Look) -> None:
        """Watch one tap of the model."""
        self.model, self.look = model, look

    def start(self, source: Ragged, beams: int = 1) -> tuple[Any, Tensor | None]:
        """Begin a search with `beams` rows for each source."""
        return self.model.start(source, beams), None

    def step(self, tokens_R: Int[Tensor, " R"], state: tuple[Any, Tensor | None]) -> tuple[Tensor, tuple[Any, Tensor]]:
        """Log-probabilities of the next token in each row, and where the row looked."""
        with recording(self.model, self.look.tap) as seen:
            logprobs_RV, after = self.model.step(tokens_R, state[0])
        ((weights_BHWS,),) = seen.values()
        mine = weights_BHWS.mean(1) if self.look.head is None else weights_BHWS[:, self.look.head]
        return logprobs_RV, (after, mine.flatten(0, 1))

    def attention(self, state: tuple[Any, Tensor]) -> Float[Tensor, "R S"]:
        """Where each row looked in the step that led to this state."""
        return state[1]

    def select(self, state: tuple[Any, Tensor], rows_R: Int[Tensor, " R"]) -> tuple[Any, Tensor]:
        """The state that goes on with these rows."""
        return self.model.select(state[0], rows_R), state[1][rows_R]


def make_engine(model: Seq2Seq, device: torch.device, precision: str = "auto") -> Engine:
    """The engine for a trained model that does not change any more; `auto` is what suits the device."""
    wanted: fast.Precision
    match precision:
        case "auto":
            wanted = "float32" if device.type == "cpu" else "bfloat16"
        case "float32" | "bfloat16" | "int8":
            wanted = precision
        case _:
            raise ValueError(f"there is no precision '{precision}'; choose one of {', '.join(PRECISIONS)}")
    engine = fast.engine(model, device, wanted)
    if engine.precision != wanted:
        log.warning("%s is not to be had for this model on %s; translating in %s", wanted, device, engine.precision)
    return engine
