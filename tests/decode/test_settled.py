"""A running search reports what is final, and removes cancelled sentences without effect on others."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table
from tests.decode.test_beam import PLAIN, seeds
from tests.decode.test_stream import alone

from regard.decode import Hypothesis, IncrementalSearch, SentenceOptions

REQUESTS = [SentenceOptions(source_length=4), SentenceOptions(source_length=2), SentenceOptions(source_length=6)]


@settings(max_examples=20)
@given(seeds, st.integers(1, 4))
def test_settled_tokens_only_grow_and_begin_the_best_hypothesis(seed: int, beam: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam)
    search = IncrementalSearch(table, options)
    search.add(table.start(range(len(REQUESTS)), options.rows), REQUESTS)
    settled: dict[int, list[tuple[int, ...]]] = {number: [()] for number in range(len(REQUESTS))}
    found: dict[int, list[Hypothesis]] = {}
    while search.sentences:
        search.advance()
        for number in search.numbers:
            settled[number].append(search.settled(number))
        found |= dict(search.leave())
    for number, grown in settled.items():
        for before, after in pairwise(grown):
            assert after[: len(before)] == before
        assert found[number][0].tokens[: len(grown[-1])] == grown[-1]


@settings(max_examples=20)
@given(seeds, st.integers(1, 3), st.integers(0, 3), st.sets(st.integers(0, 2), max_size=3))
def test_dropped_sentences_change_nothing_for_the_others(seed: int, beam: int, steps: int, dropped: set[int]) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam)
    search = IncrementalSearch(table, options)
    search.add(table.start(range(len(REQUESTS)), options.rows), REQUESTS)
    found: dict[int, list[Hypothesis]] = {}
    for _ in range(steps):
        search.advance()
        found |= dict(search.leave())
    search.drop(dropped)
    assert not dropped & set(search.numbers)
    while search.sentences:
        search.advance()
        found |= dict(search.leave())
    expected = alone(table, options, REQUESTS)
    assert {number: expected[number] for number in found} == found
    assert set(range(len(REQUESTS))) - dropped <= set(found)
