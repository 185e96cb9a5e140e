"""What an encoder leaves and every decoder looks at, and what the two must be able to do to make a model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.embedding import Embedding
from regard.nn.ragged import Layout, Ragged

State = Any
"""How far a search has come; only the decoder that made it looks inside."""


@dataclass(frozen=True, eq=False)
class Memory:
    """A state for each source token, end to end, and whose it is."""

    states_ND: Float[Tensor, "N D"]
    layout: Layout
    values_ND: Float[Tensor, "N D2"] | None = None
    """What attention mixes where that is not the states themselves (Gehring et al. 2017, §3.3)."""
    last: tuple[Float[Tensor, "L B D3"], ...] = ()
    """The state in which a recurrent encoder stopped, layer by layer; two parts for an LSTM."""


@runtime_checkable
class Encoder(Protocol):
    """Reads sources."""

    if TYPE_CHECKING:  # at run time only methods are asked for: from Python 3.12 on, a module's parts are not seen
        embedding: Embedding

    def encode(self, tokens: Ragged) -> Memory:
        """What is left of each source."""


@runtime_checkable
class Decoder(Protocol):
    """Writes targets, all at once where they are known, else step by step."""

    if TYPE_CHECKING:  # at run time only methods are asked for: from Python 3.12 on, a module's parts are not seen
        embedding: Embedding

    def __call__(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """The state of every target token, from which the next one is told."""

    def start(self, rows: int, memory: Memory) -> State:
        """A search of `rows` rows that has seen nothing but the memory."""

    def step(self, tokens_R: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R D"], State]:
        """The state of one new token in each row, and the search with it."""

    def select(self, state: State, rows_R: Int[Tensor, " R"]) -> State:
        """The search that goes on with these rows. The W rows in a line that share a memory stay in a line."""
