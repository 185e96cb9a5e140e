"""Protocols of steppers: anything that gives the log-probabilities of the next token, row by row, can be searched.

A row is one hypothesis. The W rows of a sentence are adjacent, sentences follow each other: R = B · W rows. In states
that a `MixedStepper` has joined, sentences may have different W.
Anything with `step` and `select` can be searched: a model of any family, an ensemble, or a table of numbers.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

State = TypeVar("State")


@runtime_checkable
class Stepper(Protocol[State]):
    """Gives the log-probabilities of the next token. Its state, such as a KV cache, is passed through the search."""

    def step(self, tokens_R: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Append a token to each row; return the log-probabilities of the next one, and the new state.

        The search may write into the log-probabilities. It does not use the old state again.
        """
        ...

    def select(self, state: State, rows_R: Int[Tensor, " R"]) -> State:
        """Return the state that continues with these rows.

        The rows of a sentence stay adjacent, and sentences keep their order; with fewer rows, whole sentences leave.
        """
        ...


@runtime_checkable
class JoinableStepper(Stepper[State], Protocol[State]):
    """A stepper that can take new sentences during a search (continuous batching)."""

    def join(self, states: Sequence[State]) -> State:
        """Return one state with the sentences of several, in order.

        All states have the same number of rows for each sentence, unless this is a `MixedStepper`. Rows may differ in
        length: each continues from its own position.
        """
        ...


@runtime_checkable
class MixedStepper(JoinableStepper[State], Protocol[State]):
    """A stepper that can join states with different numbers of rows for each sentence, such as beam widths."""

    mixes_rows: Literal[True]


@runtime_checkable
class AttentionStepper(Stepper[State], Protocol[State]):
    """A stepper that can return attention weights, which a coverage penalty needs."""

    def attention(self, state: State) -> Float[Tensor, "R S"]:
        """Return the attention weights of each row to its source, in the step that led to this state.

        They sum to one in each row, and are zero at padding.
        """
        ...


@runtime_checkable
class TopKStepper(Stepper[State], Protocol[State]):
    """A stepper that can find the best tokens of a step faster than all log-probabilities."""

    max_top_k: float
    """Largest k for which `top_k` is faster than `step`."""

    def top_k(
        self, tokens_R: Int[Tensor, " R"], state: State, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], State]:
        """Return the k greatest log-probabilities that `step` would return, in descending order, and their tokens."""
        ...


@runtime_checkable
class StaticSearch(Protocol):
    """A search in tensors of fixed shape, so that a stepper can capture its steps in a CUDA graph."""

    token_R: Tensor
    """The token that each row is fed next."""

    @property
    def buffers(self) -> Sequence[Tensor]:
        """All tensors that a step changes, `token_R` among them."""
        ...

    def advance(self, logprobs_RV: Float[Tensor, "R V"]) -> Int[Tensor, "B W"] | None:
        """Choose the next token of each row, always by the same operations; may write into the log-probabilities.

        Returns:
            The row of its sentence that each row continues; None if every row continues itself.
        """
        ...


@runtime_checkable
class GreedyLimits(Protocol):
    """The limits that a kernel needs to choose the best allowed token of a row."""

    end: int
    """Id of the end symbol."""
    banned: Tensor | None
    """Ids that no hypothesis contains."""

    @property
    def short_B(self) -> Bool[Tensor, " B"]:
        """Whether the row is below its minimum length, so that it may not end."""
        ...


@runtime_checkable
class StaticGreedy(StaticSearch, Protocol):
    """A static greedy search; the stepper may find the best allowed token by a kernel of its own."""

    limits: GreedyLimits

    def append(self, token_B: Int[Tensor, " B"], logprob_B: Float[Tensor, " B"], end_B: Float[Tensor, " B"]) -> None:
        """Append the best allowed tokens.

        Args:
            token_B: The tokens.
            logprob_B: Their log-probabilities.
            end_B: Log-probabilities of the end symbol, which rows of maximum length end with.
        """
        ...


@runtime_checkable
class MultiStepper(Stepper[State], Protocol[State]):
    """A stepper that makes many steps without the host, while a static search chooses the tokens.

    It may have more lines than there are sentences: the search has room for all lines, and the sentences come first.
    """

    def static_search(self, state: State, key: Hashable, make: Callable[[int, int], StaticSearch]) -> Any:
        """Return the static search for this state; call `make(lines, steps)` if there is none with this key."""
        ...

    def reserve(self, state: State, steps: int) -> State:
        """Return the state with room for this many more steps; it may have another static search then."""
        ...

    def run_steps(self, state: State, search: StaticSearch, steps: int) -> State:
        """Make this many steps."""
        ...
