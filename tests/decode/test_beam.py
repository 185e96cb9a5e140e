"""Beam search compared with enumeration of all sequences, and laws of beam search."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import BEGIN, END, Table, TableState, enumerated, forced, scored

from regard.decode import Hypothesis, LengthLimits, SearchOptions, SentenceOptions, search, stream

seeds = st.integers(0, 10_000)
penalties = st.sampled_from([0.0, 0.6, 1.0, -0.5])
NORMALISATIONS: list[Literal["gnmt", "average"]] = ["gnmt", "average"]
STOPPINGS: list[Literal["exact", "full"]] = ["exact", "full"]
normalisations, stoppings = st.sampled_from(NORMALISATIONS), st.sampled_from(STOPPINGS)
PLAIN = SearchOptions(begin=BEGIN, end=END, beam=3, limits=LengthLimits(maximum=6))
VOCABULARY, MOST, WHOLE_TREE = 4, 4, 121  # 1 + 3 + 9 + 27 + 81 sequences

tokens = st.sampled_from([0, 2, 3])
phrases = st.lists(tokens, min_size=1, max_size=3).map(tuple)


@st.composite
def all_options(draw: st.DrawFn) -> tuple[SearchOptions, list[SentenceOptions]]:
    """Draw options of a search and of its sentences, with any penalties, limits and rules."""
    options = SearchOptions(
        begin=BEGIN,
        end=END,
        beam=WHOLE_TREE,
        nbest=WHOLE_TREE,
        length_penalty=draw(penalties),
        normalise=draw(normalisations),
        coverage_penalty=draw(st.sampled_from([0.0, 0.3])),
        limits=LengthLimits(
            draw(st.integers(0, 2)), MOST, draw(st.sampled_from([0.0, 0.4])), draw(st.sampled_from([None, 0.9])), 1
        ),
        banned=draw(st.sampled_from([(), (3,)])),
        no_repeat=draw(st.integers(0, 3)),
    )
    requested = st.builds(
        SentenceOptions,
        source_length=st.integers(1, 4),
        prefix=st.lists(tokens, max_size=2).map(tuple),
        constraints=st.lists(phrases, max_size=2).map(tuple).filter(lambda chosen: sum(map(len, chosen)) <= 2),
        avoid=st.lists(phrases, max_size=2).map(tuple),
    )
    return options, draw(st.lists(requested, min_size=1, max_size=3))


def run(
    table: Table, options: SearchOptions, requests: list[SentenceOptions], first: int = 0
) -> list[list[Hypothesis]]:
    """Search for the sentences `first`, `first` + 1, …, one for each of the requests."""
    sentences = range(first, first + len(requests))
    return search(table, table.start(sentences, options.rows), requests, options)


@given(seeds, all_options())
@settings(max_examples=40)
def test_a_beam_as_wide_as_the_tree_equals_enumeration_of_all_sequences(
    seed: int, drawn: tuple[SearchOptions, list[SentenceOptions]]
) -> None:
    options, requests = drawn
    table = Table(VOCABULARY, seed, sources=[requested.source_length for requested in requests])
    for sentence, (hypotheses, requested) in enumerate(zip(run(table, options, requests), requests, strict=True)):
        expected = enumerated(table, sentence, requested, options)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in expected]
        scores = [score for _, score in expected]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(scores, rel=1e-9)


@given(seeds, st.integers(2, 6), penalties, normalisations, st.integers(1, 3))
@settings(max_examples=30)
def test_stopping_early_loses_no_hypothesis_that_a_longer_search_finds(
    seed: int, beam: int, penalty: float, normalise: Literal["gnmt", "average"], nbest: int
) -> None:
    table = Table(6, seed, sharpness=3.0)
    options = replace(PLAIN, beam=beam, nbest=min(beam, nbest), length_penalty=penalty, normalise=normalise)
    early = run(table, options, [SentenceOptions()] * 2)
    steps, table.steps = table.steps, 0
    to_the_end = run(table, replace(options, nbest=beam), [SentenceOptions()] * 2)
    assert early == [found[: options.nbest] for found in to_the_end]
    assert steps <= table.steps


def test_a_search_stops_once_no_live_hypothesis_can_still_win() -> None:
    table, options = (
        Table(6, 3, sharpness=4.0),
        replace(PLAIN, beam=4, length_penalty=0.0, limits=LengthLimits(maximum=40)),
    )
    run(table, options, [SentenceOptions()])
    assert table.steps < 10


@given(seeds, st.integers(1, 6))
@settings(max_examples=25)
def test_a_score_is_the_log_probability_of_its_tokens(seed: int, beam: int) -> None:
    table, options = Table(6, seed), replace(PLAIN, beam=beam, nbest=beam, length_penalty=0.0)
    for sentence, hypotheses in enumerate(run(table, options, [SentenceOptions()] * 3)):
        for hypothesis in hypotheses:
            expected = forced(table, sentence, hypothesis.tokens)
            assert hypothesis.token_logprobs == pytest.approx(expected, rel=1e-12)
            assert hypothesis.score == hypothesis.logprob == pytest.approx(sum(expected), rel=1e-12)


@given(seeds, st.integers(1, 5), penalties, stoppings, st.integers(1, 12))
@settings(max_examples=25)
def test_a_batch_finds_the_hypotheses_of_each_sentence_alone_bit_for_bit(
    seed: int, beam: int, penalty: float, stopping: Literal["exact", "full"], sentences: int
) -> None:
    table, limits = Table(5, seed), LengthLimits(max_ratio=1.5, max_extra=1)
    options = replace(PLAIN, beam=beam, nbest=beam, length_penalty=penalty, stopping=stopping, limits=limits)
    requests = [SentenceOptions(source_length=1 + (seed + i) % 5) for i in range(sentences)]
    together = run(table, options, requests)
    assert together == [run(table, options, [requested], first)[0] for first, requested in enumerate(requests)]


@given(seeds, all_options(), st.integers(1, 4))
@settings(max_examples=25)
def test_other_sentences_in_the_batch_change_nothing_with_any_options(
    seed: int, drawn: tuple[SearchOptions, list[SentenceOptions]], beam: int
) -> None:
    options, requests = replace(drawn[0], beam=beam, nbest=beam), drawn[1]
    table = Table(VOCABULARY, seed, sources=[requested.source_length for requested in requests])
    together = run(table, options, requests)
    assert together == [run(table, options, [requested], first)[0] for first, requested in enumerate(requests)]


@given(seeds, st.integers(1, 8), stoppings)
@settings(max_examples=25)
def test_a_beam_of_one_is_greedy(seed: int, most: int, stopping: Literal["exact", "full"]) -> None:
    table, limits = Table(5, seed), LengthLimits(maximum=most)
    options = replace(PLAIN, beam=1, stopping=stopping, limits=limits)
    greedy = []
    for sentence in range(3):
        history: tuple[int, ...] = (seed, sentence, BEGIN)
        while len(history) - 3 < most and (token := int(table.logprobs(history).argmax())) != END:
            history = (*history, token)
        greedy.append(history[3:])
    assert [found[0].tokens for found in run(table, options, [SentenceOptions()] * 3)] == greedy
    # The code for beams gives the same: in a stream, and with a diversity penalty but only one group.
    streamed = dict(stream(table, [(table.start([0, 1, 2], 1), [SentenceOptions()] * 3)], options))
    assert [streamed[number] for number in range(3)] == run(table, options, [SentenceOptions()] * 3)
    assert run(table, replace(options, diversity=1.0), [SentenceOptions()] * 3) == run(
        table, options, [SentenceOptions()] * 3
    )


@given(seeds, st.integers(2, 5))
@settings(max_examples=25)
def test_with_full_stopping_a_sentence_is_done_when_its_beam_is_full_of_ended_hypotheses(seed: int, beam: int) -> None:
    table = Table(4, seed, sharpness=0.5)
    options = replace(PLAIN, beam=beam, nbest=beam, stopping="full", limits=LengthLimits(maximum=30))
    (found,) = run(table, options, [SentenceOptions()])
    assert len(found) == beam
    exact = replace(options, stopping="exact")
    assert found[0].score <= run(table, exact, [SentenceOptions()])[0][0].score


def test_a_hypothesis_of_maximal_length_ends_and_is_marked_as_truncated() -> None:
    table, options = Table(5, 1), replace(PLAIN, limits=LengthLimits(maximum=2, minimum=2))
    (found,) = run(table, options, [SentenceOptions()])
    assert found[0].truncated
    assert len(found[0].tokens) == 2
    assert found[0].token_logprobs[-1] == pytest.approx(forced(table, 0, found[0].tokens)[-1])


def test_options_that_nothing_satisfies_give_no_hypothesis_and_leave_other_sentences_alone() -> None:
    table, options = Table(5, 1), replace(PLAIN, banned=(2,))
    found = run(table, options, [SentenceOptions(), SentenceOptions(constraints=((2,),)), SentenceOptions()])
    assert [len(hypotheses) for hypotheses in found] == [1, 0, 1]
    assert found[0] == run(table, options, [SentenceOptions()])[0]


def test_a_batch_without_sentences_gives_no_hypotheses() -> None:
    assert search(Table(), TableState(()), [], PLAIN) == []


def test_log_probabilities_that_are_nan_are_refused() -> None:
    class Broken(Table):
        def rows(self, histories: Sequence[tuple[int, ...]]) -> torch.Tensor:
            return torch.full((len(histories), self.vocabulary), torch.nan, dtype=torch.float64)

    with pytest.raises(ValueError, match="are NaN; check its weights"):
        run(Broken(), PLAIN, [SentenceOptions()])
    with pytest.raises(ValueError, match="are NaN"):
        run(Broken(), replace(PLAIN, beam=1), [SentenceOptions()])


def test_the_score_of_the_enumeration_is_the_formula_of_the_paper() -> None:
    """Wu et al. 2016, eq. 14, worked by hand for three tokens and the end."""
    table, tokens = Table(5, 2), (2, 3, 4)
    score = scored(table, 0, tokens, SentenceOptions(), replace(PLAIN, length_penalty=0.5))
    assert score == pytest.approx(sum(forced(table, 0, tokens)) / (9 / 6) ** 0.5)
