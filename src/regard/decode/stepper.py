"""What a search asks of whatever it searches in: the log-probabilities of the next token, row by row.

A row is one hypothesis. The W rows of a sentence lie in a line, sentences one after the other: R = B times W rows.
Anything with `step` and `select` can be searched: a model of any family, an ensemble, a table of numbers.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float, Int
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

    listed: float
    """How many at most are said quicker than all are said and looked through."""

    def top(
        self, tokens_R: Int[Tensor, " R"], state: State, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], State]:
        """The k greatest log-probabilities `step` would give for each row, greatest first, and their tokens."""
        ...


@runtime_checkable
class Board(Protocol):
    """Decides what rows go on with, in tables of fixed shape, so that whoever steps can capture it with the step."""

    token_R: Tensor
    """What each row reads next."""

    @property
    def tables(self) -> Sequence[Tensor]:
        """All that a step changes, `token_R` among it."""
        ...

    def decide(self, logprobs_RV: Float[Tensor, "R V"]) -> Int[Tensor, "B W"] | None:
        """Decide by what may come next, which may be written into; always by the same operations, blindly.

        Says which row of its sentence each row goes on from; None if each from itself.
        """
        ...


@runtime_checkable
class StraightLimit(Protocol):
    """What rows that go straight on may not go on with."""

    end: int
    banned: Tensor | None
    """Tokens that never come."""

    @property
    def short_B(self) -> Bool[Tensor, " B"]:
        """Which rows may not end yet."""
        ...


@runtime_checkable
class Straight(Board, Protocol):
    """A board where each row goes on with its most probable token, which whoever steps may find by itself."""

    limit: StraightLimit

    def go_on(self, token_B: Int[Tensor, " B"], logprob_B: Float[Tensor, " B"], end_B: Float[Tensor, " B"]) -> None:
        """Go on with the most probable tokens that are allowed; `end_B` is what an end would have been worth."""
        ...


@runtime_checkable
class Runner(Stepper[State], Protocol[State]):
    """A stepper that makes many steps in a row without anybody looking, where a board decides in between.

    It may have more lines than sentences: boards have room for all, and the first are the sentences.
    """

    def board(self, state: State, key: Hashable, make: Callable[[int, int], Board]) -> Any:
        """The board where this search takes place, made for so many lines and steps if there is none of this key."""
        ...

    def ready(self, state: State, steps: int) -> State:
        """The state with room for so many more steps; it may be at another board then."""
        ...

    def run(self, state: State, board: Board, steps: int) -> State:
        """Make so many steps."""
        ...
