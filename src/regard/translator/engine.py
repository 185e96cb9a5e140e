"""What does the arithmetic of a search: the one place where device, precision and quantisation are chosen."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode import Ensemble
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged

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


def make_engine(model: Seq2Seq, device: torch.device, precision: str = "auto") -> Engine:
    """The engine for a trained model that does not change any more."""
    if precision not in PRECISIONS:
        raise ValueError(f"there is no precision '{precision}'; choose one of {', '.join(PRECISIONS)}")
    return model.to(device)
