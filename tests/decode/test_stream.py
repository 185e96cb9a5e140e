"""A batch that is kept full finds what each sentence would find alone."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table, TableState
from tests.decode.test_beam import PLAIN, run, seeds

from regard.decode import (
    Hypothesis,
    IncrementalSearch,
    LengthLimits,
    SamplingOptions,
    SearchOptions,
    SentenceOptions,
    stream,
)


class Walker:
    """A table without `join`."""

    def __init__(self, table: Table) -> None:
        self.table, self.widest = table, 0

    def step(self, tokens_R: torch.Tensor, state: TableState) -> tuple[torch.Tensor, TableState]:
        self.widest = max(self.widest, len(tokens_R))
        return self.table.step(tokens_R, state)

    def select(self, state: TableState, rows_R: torch.Tensor) -> TableState:
        return self.table.select(state, rows_R)


class Joining(Walker):
    """The same with it."""

    def join(self, states: list[TableState]) -> TableState:
        return self.table.join(states)


def arriving(
    table: Table, requests: list[SentenceOptions], sizes: list[int], options: SearchOptions
) -> Iterator[tuple[TableState, list[SentenceOptions]]]:
    """Sentences 0, 1, …, a few at a time."""
    at = 0
    for size in sizes:
        here = range(at, min(at + size, len(requests)))
        yield table.start(here, options.rows), [requests[i] for i in here]
        at += size


def alone(table: Table, options: SearchOptions, requests: list[SentenceOptions]) -> list[list[Hypothesis]]:
    return [run(table, options, [requested], first)[0] for first, requested in enumerate(requests)]


@st.composite
def any_wish(draw: st.DrawFn) -> SentenceOptions:
    token = st.sampled_from([0, 2, 3])
    return SentenceOptions(
        source_length=draw(st.integers(1, 6)),
        prefix=draw(st.lists(token, max_size=2).map(tuple)),
        constraints=draw(st.sampled_from([(), (), ((2, 3),)])),
        avoid=draw(st.sampled_from([(), ((0, 2),)])),
        seed=draw(st.integers(0, 9)),
    )


KINDS = [
    replace(PLAIN, beam=3, nbest=3, coverage_penalty=0.2),
    replace(PLAIN, beam=1),
    replace(PLAIN, beam=4, groups=2, nbest=2),
    replace(PLAIN, beam=2, stopping="full", no_repeat=2),
]


@given(seeds, st.lists(any_wish(), min_size=1, max_size=12), st.sampled_from(KINDS), st.integers(1, 5), st.data())
@settings(max_examples=20)
def test_a_full_batch_finds_what_each_sentence_finds_alone_bit_for_bit(
    seed: int, requests: list[SentenceOptions], kind: SearchOptions, room: int, data: st.DataObject
) -> None:
    table = Table(4, seed, sources=[requested.source_length for requested in requests])
    options = replace(kind, limits=LengthLimits(maximum=9, max_ratio=1.0, max_extra=2))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=13, max_size=13)) + [1] * len(requests)
    found = dict(stream(table, arriving(table, requests, sizes, options), options, room))
    assert [found[number] for number in range(len(requests))] == alone(table, options, requests)


@given(seeds, st.integers(1, 8))
@settings(max_examples=20)
def test_samples_stay_the_same_in_a_stream(seed: int, sentences: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, nbest=2, sampling=SamplingOptions())
    requests = [SentenceOptions(seed=seed + i) for i in range(sentences)]
    found = dict(stream(table, arriving(table, requests, [1] * sentences, options), options, 3))
    assert [found[number] for number in range(sentences)] == alone(table, options, requests)


def test_a_joiner_is_never_asked_for_more_rows_than_there_is_room_and_hardly_for_fewer() -> None:
    table, options = Table(6, 5), replace(PLAIN, beam=2)
    requests = [SentenceOptions() for _ in range(40)]
    joining = Joining(table)
    found = dict(stream(joining, arriving(table, requests, [1] * 40, options), options, room=8))
    assert len(found) == 40
    assert joining.widest == 16
    with_joins, table.steps = table.steps, 0
    walker = Walker(table)
    assert dict(stream(walker, arriving(table, requests, [8] * 5, options), options, room=8)) == found
    assert with_joins < table.steps


def test_a_stepper_that_joins_nothing_takes_one_arrival_after_the_other() -> None:
    table, options = Table(5, 2), replace(PLAIN, beam=2)
    requests = [SentenceOptions() for _ in range(7)]
    walker = Walker(table)
    found = dict(stream(walker, arriving(table, requests, [3, 3, 1], options), options, room=100))
    assert [found[number] for number in range(7)] == alone(table, options, requests)
    assert walker.widest == 6


def test_a_stepper_that_joins_nothing_says_so() -> None:
    table = Table(5, 2)
    running = IncrementalSearch(Walker(table), PLAIN)
    running.add(table.start([0], 3), [SentenceOptions()])
    with pytest.raises(ValueError, match="cannot take new sentences during a search"):
        running.add(table.start([1], 3), [SentenceOptions()])


def test_a_stepper_that_does_not_say_where_it_looks_knows_no_coverage() -> None:
    with pytest.raises(ValueError, match="needs attention weights"):
        IncrementalSearch(Walker(Table()), replace(PLAIN, coverage_penalty=0.2))


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_done_and_waits_for_others_to_leave_with_stays_as_it_is(kind: SearchOptions) -> None:
    """In a wide batch those that are done leave together, so one may wait longer than it could ever have grown."""
    requests = [SentenceOptions(source_length=10), *[SentenceOptions(source_length=12)] * 23]
    table = Table(4, 7, sharpness=0.2, sources=[requested.source_length for requested in requests])
    options = replace(kind, limits=LengthLimits(maximum=12, min_ratio=0.9, max_ratio=1.0, max_extra=0))
    running = IncrementalSearch(table, options)
    running.add(table.start([0], options.rows), requests[:1])
    for _ in range(8):
        running.advance()
        assert running.leave() == []
    running.add(table.start(range(1, 24), options.rows), requests[1:])
    found: dict[int, list[Hypothesis]] = {}
    while running.sentences:
        running.advance()
        found |= dict(running.leave())
    assert [found[number] for number in range(24)] == alone(table, options, requests)


def test_nothing_arrives_and_nothing_is_found() -> None:
    assert list(stream(Table(), iter(()), PLAIN)) == []


def test_a_long_stream_forgets_what_is_done() -> None:
    table, options = Table(5, 9), replace(PLAIN, beam=2)
    running = IncrementalSearch(table, options)
    for sentence in range(60):
        running.add(table.start([sentence], 2), [SentenceOptions()])
        for _ in range(2):
            running.advance()
            running.leave()
    assert len(running.trellis) < 40
