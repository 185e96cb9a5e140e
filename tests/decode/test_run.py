"""Searches in tables of fixed shape find what the searches that look at every step find."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table, TableState
from tests.decode.test_beam import PLAIN, penalties, seeds

from regard.decode import Board, Hypothesis, Limits, Options, Runner, Wish, search


@dataclass(frozen=True)
class Seats:
    """What rows have read, and how many lines and steps there is room for."""

    read: TableState
    beams: int
    lines: int
    steps: int
    gone: int = 0


class RunningTable(Table):
    """A table that makes steps by itself, with more lines than sentences, and little room."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        super().__init__(vocabulary, seed)
        self.boards: dict[Hashable, Any] = {}
        self.moves = 0

    def begin(self, sentences: int, beams: int) -> Seats:
        return Seats(self.start(range(sentences), beams), beams, sentences + 2, 4)

    def board(self, state: Seats, key: Hashable, make: Callable[[int, int], Board]) -> Any:
        where = state.lines, state.steps, key
        if where not in self.boards:
            self.boards[where] = make(state.lines, state.steps)
        return self.boards[where]

    def ready(self, state: Seats, steps: int) -> Seats:
        self.moves += state.gone + steps > state.steps
        return replace(state, steps=max(state.steps, state.gone + steps))

    def select(self, state: Any, rows_R: torch.Tensor) -> Any:
        if not isinstance(state, Seats):
            return super().select(state, rows_R)
        self.moves += 1
        kept = super().select(state.read, rows_R)
        return replace(state, read=kept, lines=len(rows_R) // state.beams + 1)

    def run(self, state: Seats, board: Board, steps: int) -> Seats:
        real = len(state.read.histories)
        for _ in range(steps):
            said, read = self.step(board.token_R[:real], state.read)
            padded = torch.full((state.lines * state.beams, self.vocabulary), 0.1).log().double()
            padded[:real] = said
            parent_BW = board.decide(padded)
            if parent_BW is not None:
                first = torch.arange(0, state.lines * state.beams, state.beams)[:, None]
                read = super().select(read, (parent_BW + first).flatten()[:real])
            state = replace(state, read=read, gone=state.gone + 1)
        return state


def alike(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert [(each.tokens, each.cut) for each in ours] == [(each.tokens, each.cut) for each in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert (one.score, one.logprob) == pytest.approx((other.score, other.logprob))
            assert one.token_logprobs == pytest.approx(other.token_logprobs)


@given(
    seeds,
    st.integers(1, 4),
    penalties,
    st.sampled_from([(), (3,), (0, 4)]),
    st.sampled_from([Limits(most=9), Limits(least=2, most=6), Limits(9, 9), Limits(most=30, most_per_source=1.5)]),
    st.sampled_from(["exact", "full"]),
)
@settings(max_examples=60)
def test_a_runner_finds_what_a_stepper_finds(
    seed: int,
    beam: int,
    penalty: float,
    banned: tuple[int, ...],
    limits: Limits,
    stopping: Literal["exact", "full"],
) -> None:
    options: Options = replace(PLAIN, beam=beam, nbest=max(1, beam - 1), length_penalty=penalty, banned=banned)
    options = replace(options, limits=limits, stopping=stopping)
    wishes = [Wish(source=2 * number) for number in range(5)]
    table, runner = Table(12, seed), RunningTable(12, seed)
    assert isinstance(runner, Runner)
    assert not isinstance(table, Runner)
    expected = search(table, table.start(range(5), beam), wishes, options)
    alike(search(runner, runner.begin(5, beam), wishes, options), expected)
    # The second time everything has been used before.
    runner.seed, table.seed = seed + 1, seed + 1
    expected = search(table, table.start(range(5), beam), wishes, options)
    alike(search(runner, runner.begin(5, beam), wishes, options), expected)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_last_few_sentences_move_to_smaller_boards_and_long_ones_to_longer(beam: int) -> None:
    options = replace(PLAIN, beam=beam, nbest=1, limits=Limits(most_per_source=1.0, least_per_source=1.0, spare=0))
    wishes = [Wish(source=size) for size in (3, 50, 4, 4, 4, 20, 4, 4, 4)]
    table, runner = Table(12, 5), RunningTable(12, 5)
    expected = search(table, table.start(range(9), beam), wishes, options)
    found = search(runner, runner.begin(9, beam), wishes, options)
    alike(found, expected)
    assert [len(each[0].tokens) for each in found] == [wish.source for wish in wishes]
    assert runner.moves > 6
    assert runner.asked < 0.5 * 9 * beam * 51


def test_a_runner_that_is_asked_for_more_than_the_most_probable_steps_as_others_do() -> None:
    runner = RunningTable(12, 3)
    wish = Wish(prefix=(4, 5))
    (found,) = search(runner, runner.start([0], 2), [wish], replace(PLAIN, beam=2, nbest=1))
    assert found[0].tokens[:2] == (4, 5)
    assert not runner.boards


@pytest.mark.parametrize("beam", [1, 2])
def test_numbers_that_are_none_are_refused(beam: int) -> None:
    runner = RunningTable(12, 3)
    runner.sharpness = float("nan")
    with pytest.raises(ValueError, match="not numbers"):
        search(runner, runner.begin(1, beam), [Wish()], replace(PLAIN, beam=beam, nbest=1))
