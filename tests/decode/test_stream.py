"""A batch to which sentences are added during the search gives the hypotheses of each sentence alone."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table, TableState
from tests.decode.test_beam import NORMALISATIONS, PLAIN, STOPPINGS, run, seeds
from torch.nn.functional import pad

from regard.decode import (
    Hypothesis,
    IncrementalSearch,
    LengthLimits,
    SamplingOptions,
    SearchOptions,
    SentenceOptions,
    stream,
)
from regard.decode.ranking import length_divisors, lost_coverage


class StepperWithoutJoin:
    """A table without `join`, which records the largest number of rows."""

    def __init__(self, table: Table) -> None:
        self.table, self.widest = table, 0

    def step(self, tokens_R: torch.Tensor, state: TableState) -> tuple[torch.Tensor, TableState]:
        self.widest = max(self.widest, len(tokens_R))
        return self.table.step(tokens_R, state)

    def select(self, state: TableState, rows_R: torch.Tensor) -> TableState:
        return self.table.select(state, rows_R)


class StepperWithJoin(StepperWithoutJoin):
    """A table with `join`, which records the largest number of rows."""

    def join(self, states: list[TableState]) -> TableState:
        return self.table.join(states)


def arriving(
    table: Table, requests: list[SentenceOptions], sizes: list[int], options: SearchOptions
) -> Iterator[tuple[TableState, list[SentenceOptions]]]:
    """Yield the sentences 0, 1, …, some at a time."""
    at = 0
    for size in sizes:
        numbers = range(at, min(at + size, len(requests)))
        yield table.start(numbers, options.rows), [requests[i] for i in numbers]
        at += size


def alone(table: Table, options: SearchOptions, requests: list[SentenceOptions]) -> list[list[Hypothesis]]:
    return [run(table, options, [requested], first)[0] for first, requested in enumerate(requests)]


@st.composite
def sentence_options(draw: st.DrawFn) -> SentenceOptions:
    token = st.sampled_from([0, 2, 3])
    return SentenceOptions(
        source_length=draw(st.sampled_from([1, 2, 3, 4, 5, 6, 12, 20])),
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
    replace(PLAIN, beam=3, nbest=3, length_penalty=0.6),
]


@given(
    seeds, st.lists(sentence_options(), min_size=1, max_size=12), st.sampled_from(KINDS), st.integers(1, 5), st.data()
)
@settings(max_examples=20)
def test_a_stream_gives_the_hypotheses_of_each_sentence_alone_bit_for_bit(
    seed: int, requests: list[SentenceOptions], kind: SearchOptions, room: int, data: st.DataObject
) -> None:
    table = Table(4, seed, sources=[requested.source_length for requested in requests])
    options = replace(kind, limits=LengthLimits(maximum=9, max_ratio=1.0, max_extra=2))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=13, max_size=13)) + [1] * len(requests)
    found = dict(stream(table, arriving(table, requests, sizes, options), options, room))
    assert [found[number] for number in range(len(requests))] == alone(table, options, requests)


@st.composite
def any_search(draw: st.DrawFn) -> tuple[SentenceOptions, SearchOptions]:
    """Options of a sentence and of its search, of any shape."""
    sentence = draw(sentence_options())
    groups, beam = draw(st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 4)]))
    top_k, top_p = draw(st.sampled_from([None, 2, 3])), draw(st.sampled_from([1.0, 0.8]))
    sampling = SamplingOptions(draw(st.sampled_from([0.7, 1.0])), top_k, top_p, draw(st.sampled_from([0.0, 0.1])))
    options = SearchOptions(
        begin=0,
        end=1,
        beam=beam,
        groups=groups,
        nbest=draw(st.integers(1, beam)),
        length_penalty=draw(st.sampled_from([1.0, 0.6, -0.5])),
        normalise=draw(st.sampled_from(NORMALISATIONS)),
        diversity=draw(st.sampled_from([0.0, 0.5])) if groups > 1 else 0.0,
        stopping=draw(st.sampled_from(STOPPINGS)),
        no_repeat=draw(st.sampled_from([0, 0, 2])),
        coverage_penalty=draw(st.sampled_from([0.0, 0.2, 0.4])),
        limits=LengthLimits(draw(st.integers(0, 2)), draw(st.integers(6, 9)), max_ratio=1.0, max_extra=2),
    )
    if draw(st.booleans()):
        options = replace(options, groups=1, diversity=0.0, nbest=draw(st.integers(1, 3)), sampling=sampling)
    if options.sampling is not None or options.diversity:
        sentence = replace(sentence, constraints=())
    return sentence, options


@given(seeds, st.lists(any_search(), min_size=1, max_size=10), st.data())
def test_sentences_with_different_options_find_together_what_they_find_alone_bit_for_bit(
    seed: int, requests: list[tuple[SentenceOptions, SearchOptions]], data: st.DataObject
) -> None:
    table = Table(4, seed, sources=[sentence.source_length for sentence, _ in requests])
    running, found = IncrementalSearch(table, PLAIN), dict[int, list[Hypothesis]]()
    for number, (sentence, options) in enumerate(requests):
        running.add(table.start([number], options.rows), [sentence], [options])
        for _ in range(data.draw(st.integers(0, 3))):
            running.advance()
            found |= dict(running.leave())
    while running.sentences:
        running.advance()
        found |= dict(running.leave())
    expected = [run(table, options, [sentence], first)[0] for first, (sentence, options) in enumerate(requests)]
    assert [found[number] for number in range(len(requests))] == expected


def test_sentences_with_different_options_share_every_step() -> None:
    table = Table(5, 3)
    searches = [replace(PLAIN, beam=beam, length_penalty=beam / 4) for beam in (1, 2, 3, 4, 5)]
    searches += [replace(PLAIN, nbest=2, sampling=SamplingOptions(temperature=t / 4, top_k=t)) for t in (2, 3, 4)]
    running = IncrementalSearch(table, PLAIN)
    for number, options in enumerate(searches):
        running.add(table.start([number], options.rows), [SentenceOptions()], [options])
    running.advance()
    assert table.steps == 1
    assert table.computed_rows == sum(options.rows for options in searches)


def test_options_that_differ_only_in_numbers_share_a_table() -> None:
    table, running = Table(5, 3), IncrementalSearch(Table(5, 3), PLAIN)
    searches = [
        replace(PLAIN, length_penalty=number / 10, nbest=1 + number % 3, limits=LengthLimits(maximum=4 + number))
        for number in range(6)
    ]
    running.add(table.start(range(6), 3), [SentenceOptions() for _ in searches], searches)
    assert len(running.groups) == 1


def test_a_history_that_is_no_longer_read_does_not_limit_longer_sentences() -> None:
    """Only the first sentence needs the tokens of hypotheses. When it has left, a longer one joins the second."""
    lengths = (2, 8, 12)
    requests = [SentenceOptions(source_length=length, avoid=((0, 2),) if length == 2 else ()) for length in lengths]
    limits = LengthLimits(maximum=12, min_ratio=1.0, max_ratio=1.0, max_extra=0)
    table, options = Table(4, 1), replace(PLAIN, limits=limits)
    running, found = IncrementalSearch(table, options), dict[int, list[Hypothesis]]()
    running.add(table.start([0, 1], 3), requests[:2])
    while running.sentences:
        running.advance()
        found |= dict(running.leave())
        if running.steps == 4:
            assert [*found] == [0]
            running.add(table.start([2], 3), requests[2:])
    assert [found[number] for number in range(3)] == alone(table, options, requests)


def test_a_sentence_that_nothing_satisfies_leaves_while_others_go_on() -> None:
    """It never ends a hypothesis, and others that began later have more steps to go than its history has places."""
    impossible = SentenceOptions(source_length=1, avoid=((0,), (2,), (3,)), constraints=((2,),))
    requests = [impossible, SentenceOptions(source_length=9, prefix=(2, 3, 0, 2, 3, 0, 2))]
    table, options = Table(4, 1), replace(PLAIN, limits=LengthLimits(maximum=9, max_ratio=1.0, max_extra=0))
    running = IncrementalSearch(table, options)
    running.add(table.start([0], 3), requests[:1])
    running.advance()
    running.add(table.start([1], 3), requests[1:])
    found = dict(running.leave())
    assert found == {0: []}
    while running.sentences:
        running.advance()
        found |= dict(running.leave())
    assert [found[0], found[1]] == alone(table, options, requests)


@given(st.floats(-10, 10), st.integers(1, 64), st.integers(1, 64))
def test_the_length_penalty_of_a_hypothesis_is_the_same_in_every_batch(penalty: float, longest: int, more: int) -> None:
    options = replace(PLAIN, length_penalty=penalty)
    alone, together = length_divisors(longest, options), length_divisors(longest + more, options)
    assert alone[: longest + 1] == together[: longest + 1]


@given(seeds, st.integers(1, 40), st.integers(0, 40))
def test_the_coverage_penalty_of_a_hypothesis_is_the_same_in_every_batch(seed: int, source: int, padding: int) -> None:
    torch.manual_seed(seed)
    coverage_BWS, length_B = torch.rand(1, 3, source, dtype=torch.float64), torch.tensor([source])
    assert torch.equal(lost_coverage(pad(coverage_BWS, (0, padding)), length_B), lost_coverage(coverage_BWS, length_B))


@given(seeds, st.integers(1, 8))
@settings(max_examples=20)
def test_a_stream_does_not_change_samples(seed: int, sentences: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, nbest=2, sampling=SamplingOptions())
    requests = [SentenceOptions(seed=seed + i) for i in range(sentences)]
    found = dict(stream(table, arriving(table, requests, [1] * sentences, options), options, 3))
    assert [found[number] for number in range(sentences)] == alone(table, options, requests)


def test_a_stream_keeps_its_batch_full_and_never_exceeds_its_size() -> None:
    table, options = Table(6, 5), replace(PLAIN, beam=2)
    requests = [SentenceOptions() for _ in range(40)]
    stepper = StepperWithJoin(table)
    found = dict(stream(stepper, arriving(table, requests, [1] * 40, options), options, room=8))
    assert len(found) == 40
    assert stepper.widest == 16
    with_joins, table.steps = table.steps, 0
    assert (
        dict(stream(StepperWithoutJoin(table), arriving(table, requests, [8] * 5, options), options, room=8)) == found
    )
    assert with_joins < table.steps


def test_without_join_one_group_of_sentences_is_searched_after_another() -> None:
    table, options = Table(5, 2), replace(PLAIN, beam=2)
    requests = [SentenceOptions() for _ in range(7)]
    stepper = StepperWithoutJoin(table)
    found = dict(stream(stepper, arriving(table, requests, [3, 3, 1], options), options, room=100))
    assert [found[number] for number in range(7)] == alone(table, options, requests)
    assert stepper.widest == 6


def test_adding_sentences_without_join_is_an_error() -> None:
    table = Table(5, 2)
    running = IncrementalSearch(StepperWithoutJoin(table), PLAIN)
    running.add(table.start([0], 3), [SentenceOptions()])
    with pytest.raises(ValueError, match="cannot take new sentences during a search"):
        running.add(table.start([1], 3), [SentenceOptions()])


def test_a_coverage_penalty_without_attention_weights_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs attention weights"):
        IncrementalSearch(StepperWithoutJoin(Table()), replace(PLAIN, coverage_penalty=0.2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_sentence_that_waits_for_others_does_not_change(kind: SearchOptions) -> None:
    """In a wide batch, finished sentences leave together, so one may wait for more steps than its maximal length."""
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


@given(seeds, st.integers(0, 3))
@settings(max_examples=10)
def test_a_finished_sentence_waits_for_others_no_longer_than_it_is_told(seed: int, patience: int) -> None:
    requests = [SentenceOptions(source_length=2), *[SentenceOptions(source_length=12)] * 23]
    table, limits = Table(4, seed), LengthLimits(maximum=12, min_ratio=1.0, max_ratio=1.0, max_extra=0)
    running, left = IncrementalSearch(table, replace(PLAIN, limits=limits)), dict[int, int]()
    running.add(table.start(range(24), 3), requests)
    while running.sentences:
        running.advance()
        left |= {number: running.steps for number, _ in running.leave(patience)}
    assert left == {0: 3 + patience, **dict.fromkeys(range(1, 24), 13)}


def test_an_empty_stream_gives_no_hypotheses() -> None:
    assert list(stream(Table(), iter(()), PLAIN)) == []


def test_a_long_stream_frees_the_history_of_finished_sentences() -> None:
    table, options = Table(5, 9), replace(PLAIN, beam=2)
    running = IncrementalSearch(table, options)
    for sentence in range(60):
        running.add(table.start([sentence], 2), [SentenceOptions()])
        for _ in range(2):
            running.advance()
            running.leave()
    assert sum(len(group.trellis) for group in running.groups) < 40
