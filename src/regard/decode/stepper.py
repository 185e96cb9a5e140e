"""What a search asks of whatever it searches in: the log-probabilities of the next token, row by row.

A row is one hypothesis. The W rows of a sentence lie in a line, sentences one after the other: R = B times W rows.
Anything with `step` and `select` can be searched: a model of any family, an ensemble, a table of numbers.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class Stepper(Protocol[State]):
    """Goes from token to token; what it must remember is a `State`, which a search only hands back."""

    def step(self, tokens_R: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Log-probabilities of the next token in each row, given its last one, and the state with that.

        They are the search's from then on: it may write into the tensor. The old state is not used again.
        """
        ...

    def select(self, state: State, rows_R: Int[Tensor, " R"]) -> State:
        """The state that goes on with these rows.

        Rows of a sentence stay with it, and sentences keep their order; fewer rows mean that whole sentences leave.
        """
        ...


@runtime_checkable
class Joiner(Stepper[State], Protocol[State]):
    """A stepper whose searches can be put together, so that new sentences take the place of those that are done."""

    def join(self, states: Sequence[State]) -> State:
        """One state of the sentences of several, in order; all have as many rows a sentence.

        Rows may have come differently far: each goes on from its own position.
        """
        ...


@runtime_checkable
class Attender(Stepper[State], Protocol[State]):
    """A stepper that can say where it looked, which a coverage penalty asks for."""

    def attention(self, state: State) -> Float[Tensor, "R S"]:
        """The weights with which each row looked at its source in the step that led to this state.

        They sum to one in each row, and are zero behind the end of a source.
        """
        ...


@runtime_checkable
class Shortlister(Stepper[State], Protocol[State]):
    """A stepper that can say the best few of a step quicker than all of it; it is asked where these are enough."""

    def top(
        self, tokens_R: Int[Tensor, " R"], state: State, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], State]:
        """The k greatest log-probabilities `step` would give for each row, greatest first, and their tokens."""
        ...
