"""Options of a search for language models: a begin token for each sentence, free cuts and stop conditions."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import END, Table, assert_same_hypotheses, forced
from tests.decode.test_beam import PLAIN, run, seeds
from tests.decode.test_static_search import RunningTable

from regard.decode import (
    Hypothesis,
    IncrementalSearch,
    LengthLimits,
    SamplingOptions,
    SearchOptions,
    SentenceOptions,
    search,
)

KINDS = {
    "greedy": replace(PLAIN, beam=1),
    "beam": replace(PLAIN, beam=3, nbest=2),
    "groups": replace(PLAIN, beam=4, groups=2, nbest=2, diversity=0.5),
    "samples": replace(PLAIN, nbest=2, sampling=SamplingOptions(temperature=0.8)),
}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())


def incrementally(table: Table, options: SearchOptions, requests: list[SentenceOptions]) -> list[list[Hypothesis]]:
    """Search with `IncrementalSearch`, one token at a time."""
    running = IncrementalSearch(table, options)
    running.add(table.start(range(len(requests)), options.rows), requests)
    found: dict[int, list[Hypothesis]] = {}
    while running.sentences:
        running.advance()
        found |= dict(running.leave())
    return [found[number] for number in range(len(requests))]


@kinds
def test_every_sentence_starts_with_its_own_begin_token(options: SearchOptions) -> None:
    table = Table(6, 3)
    begins = [0, 4, 5, 4]
    together = run(table, options, [SentenceOptions(begin=begin) for begin in begins])
    for number, begin in enumerate(begins):
        assert run(table, replace(options, begin=begin), [SentenceOptions()], number)[0] == together[number]
    assert len({hypotheses[0].logprob for hypotheses in together}) == 4


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("free_cut", [False, True])
def test_a_static_search_has_the_same_begin_tokens_and_scores(beam: int, free_cut: bool) -> None:
    options = replace(PLAIN, beam=beam, nbest=beam, free_cut=free_cut, limits=LengthLimits(maximum=5))
    table, runner = Table(12, 5, sharpness=3.0), RunningTable(12, 5)
    runner.sharpness = 3.0
    requests = [SentenceOptions(begin=begin, max_length=1 + begin % 4) for begin in (3, 0, 7, 9, 2)]
    expected = incrementally(table, options, requests)
    assert any(hypothesis.truncated for hypotheses in expected for hypothesis in hypotheses)
    assert_same_hypotheses(search(runner, runner.begin(5, beam), requests, options), expected)
    assert runner.searches


@kinds
@given(seed=seeds)
@settings(max_examples=15)
def test_a_free_cut_adds_no_log_probability_and_an_end_symbol_its_own(seed: int, options: SearchOptions) -> None:
    table = Table(5, seed)
    options = replace(options, free_cut=True, limits=LengthLimits(maximum=3))
    for hypothesis in run(table, options, [SentenceOptions()])[0]:
        logprobs = forced(table, 0, hypothesis.tokens)
        assert hypothesis.truncated == (len(hypothesis.tokens) == 3)
        if hypothesis.truncated:
            logprobs[-1] = 0.0
        assert hypothesis.token_logprobs == pytest.approx(logprobs)
        assert hypothesis.logprob == pytest.approx(sum(logprobs))


@kinds
@given(seed=seeds)
@settings(max_examples=15)
def test_a_complete_hypothesis_ends_without_the_log_probability_of_an_end_symbol(
    seed: int, options: SearchOptions
) -> None:
    table = Table(6, seed, sharpness=0.5)
    options = replace(options, limits=LengthLimits(maximum=20))
    complete = SentenceOptions(is_complete=lambda tokens: tuple(tokens[-2:]) == (3, 3) or tokens[-1:] == [4])
    stopped, free = run(table, options, [complete, SentenceOptions()])
    assert free == run(table, options, [SentenceOptions()], 1)[0]
    for hypothesis in stopped:
        tokens = hypothesis.tokens
        assert 4 not in tokens[:-1]
        assert (3, 3) not in pairwise(tokens[:-1])
        if tokens[-1:] == (4,) or tokens[-2:] == (3, 3):
            assert hypothesis.token_logprobs[-1] == 0.0
            assert hypothesis.token_logprobs[:-1] == pytest.approx(forced(table, 0, tokens)[:-1])


@given(
    seeds,
    st.builds(
        SentenceOptions,
        prefix=st.lists(st.integers(2, 5), max_size=2).map(tuple),
        avoid=st.lists(st.lists(st.integers(2, 5), min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
        begin=st.sampled_from([None, 3]),
        max_length=st.sampled_from([None, 4]),
    ),
    st.integers(0, 2),
    st.booleans(),
)
@settings(max_examples=40)
def test_greedy_search_of_a_batch_obeys_the_rules_of_other_searches(
    seed: int, requested: SentenceOptions, no_repeat: int, stops: bool
) -> None:
    table = Table(6, seed)
    options = replace(PLAIN, beam=1, no_repeat=no_repeat, banned=(2,), limits=LengthLimits(minimum=1, maximum=6))
    if stops:
        requested = replace(requested, is_complete=lambda tokens: END + 2 in tokens)
    requests = [requested, SentenceOptions(), replace(requested, prefix=())]
    assert run(table, options, requests) == incrementally(table, options, requests)


def test_a_rule_that_is_not_static_is_never_searched_statically() -> None:
    runner = RunningTable(12, 3)
    requests = [SentenceOptions(is_complete=lambda tokens: True)]
    (found,) = search(runner, runner.start([0], 1), requests, replace(PLAIN, beam=1))
    assert found[0].tokens == ()
    assert not runner.searches
