"""Searches in tensors of fixed shape find the same hypotheses as searches that synchronise at every step."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table, TableState, assert_same_hypotheses
from tests.decode.test_beam import PLAIN, penalties, seeds

from regard.decode import LengthLimits, MultiStepper, SearchOptions, SentenceOptions, StaticSearch, search


@dataclass(frozen=True)
class StaticState:
    """The tokens that rows have read, and the lines and steps that are allocated."""

    read: TableState
    beams: int
    lines: int
    steps: int
    done: int = 0


class RunningTable(Table):
    """A table that runs several steps at once, with more lines than sentences, and few steps allocated."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        super().__init__(vocabulary, seed)
        self.searches: dict[Hashable, Any] = {}
        self.moves = 0

    def begin(self, sentences: int, beams: int) -> StaticState:
        return StaticState(self.start(range(sentences), beams), beams, sentences + 2, 4)

    def static_search(self, state: StaticState, key: Hashable, make: Callable[[int, int], StaticSearch]) -> Any:
        where = state.lines, state.steps, key
        if where not in self.searches:
            self.searches[where] = make(state.lines, state.steps)
        return self.searches[where]

    def reserve(self, state: StaticState, steps: int) -> StaticState:
        self.moves += state.done + steps > state.steps
        return replace(state, steps=max(state.steps, state.done + steps))

    def select(self, state: Any, rows_R: torch.Tensor) -> Any:
        if not isinstance(state, StaticState):
            return super().select(state, rows_R)
        self.moves += 1
        kept = super().select(state.read, rows_R)
        return replace(state, read=kept, lines=len(rows_R) // state.beams + 1)

    def run_steps(self, state: StaticState, running: StaticSearch, steps: int) -> StaticState:
        real = len(state.read.histories)
        for _ in range(steps):
            logprobs, read = self.step(running.token_R[:real], state.read)
            padded = torch.full((state.lines * state.beams, self.vocabulary), 0.1).log().double()
            padded[:real] = logprobs
            parent_BW = running.advance(padded)
            if parent_BW is not None:
                first = torch.arange(0, state.lines * state.beams, state.beams)[:, None]
                read = super().select(read, (parent_BW + first).flatten()[:real])
            state = replace(state, read=read, done=state.done + 1)
        return state


@given(
    seeds,
    st.integers(1, 4),
    penalties,
    st.sampled_from([(), (3,), (0, 4)]),
    st.sampled_from(
        [
            LengthLimits(maximum=9),
            LengthLimits(minimum=2, maximum=6),
            LengthLimits(9, 9),
            LengthLimits(maximum=30, max_ratio=1.5),
        ]
    ),
    st.sampled_from(["exact", "full"]),
)
@settings(max_examples=60)
def test_a_static_search_finds_the_hypotheses_of_a_search_by_steps(
    seed: int,
    beam: int,
    penalty: float,
    banned: tuple[int, ...],
    limits: LengthLimits,
    stopping: Literal["exact", "full"],
) -> None:
    options: SearchOptions = replace(PLAIN, beam=beam, nbest=max(1, beam - 1), length_penalty=penalty, banned=banned)
    options = replace(options, limits=limits, stopping=stopping)
    requests = [SentenceOptions(source_length=2 * number) for number in range(5)]
    table, runner = Table(12, seed), RunningTable(12, seed)
    assert isinstance(runner, MultiStepper)
    assert not isinstance(table, MultiStepper)
    expected = search(table, table.start(range(5), beam), requests, options)
    assert_same_hypotheses(search(runner, runner.begin(5, beam), requests, options), expected)
    # The second search reuses the tensors of the first.
    runner.seed, table.seed = seed + 1, seed + 1
    expected = search(table, table.start(range(5), beam), requests, options)
    assert_same_hypotheses(search(runner, runner.begin(5, beam), requests, options), expected)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_last_sentences_move_to_fewer_lines_and_long_ones_to_more_steps(beam: int) -> None:
    options = replace(PLAIN, beam=beam, nbest=1, limits=LengthLimits(max_ratio=1.0, min_ratio=1.0, max_extra=0))
    requests = [SentenceOptions(source_length=size) for size in (3, 50, 4, 4, 4, 20, 4, 4, 4)]
    table, runner = Table(12, 5), RunningTable(12, 5)
    expected = search(table, table.start(range(9), beam), requests, options)
    found = search(runner, runner.begin(9, beam), requests, options)
    assert_same_hypotheses(found, expected)
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [requested.source_length for requested in requests]
    assert runner.moves > 6
    assert runner.computed_rows < 0.5 * 9 * beam * 51


def test_a_search_with_a_prefix_is_not_static() -> None:
    runner = RunningTable(12, 3)
    requested = SentenceOptions(prefix=(4, 5))
    (found,) = search(runner, runner.start([0], 2), [requested], replace(PLAIN, beam=2, nbest=1))
    assert found[0].tokens[:2] == (4, 5)
    assert not runner.searches


@pytest.mark.parametrize("beam", [1, 2])
def test_log_probabilities_that_are_nan_are_refused(beam: int) -> None:
    runner = RunningTable(12, 3)
    runner.sharpness = float("nan")
    with pytest.raises(ValueError, match="are NaN"):
        search(runner, runner.begin(1, beam), [SentenceOptions()], replace(PLAIN, beam=beam, nbest=1))
