"""Beam search against the plainest search there is, and the laws it keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.table import BEGIN, END, Table, forced, scored, sequences

from regard.decode import Hypothesis, Limits, Options, Wish, search

seeds = st.integers(0, 10_000)
penalties = st.sampled_from([0.0, 0.6, 1.0, -0.5])
PLAIN = Options(begin=BEGIN, end=END, beam=3, limits=Limits(most=6))


def run(table: Table, options: Options, wishes: list[Wish], first: int = 0) -> list[list[Hypothesis]]:
    """Search for sentences `first`, `first` + 1, …, one for each wish."""
    sentences = range(first, first + len(wishes))
    return search(table, table.start(sentences, options.rows), wishes, options)


@given(seeds, penalties, st.sampled_from(["gnmt", "average"]), st.integers(0, 2))
def test_a_beam_as_wide_as_the_tree_finds_what_looking_at_every_sequence_finds(
    seed: int, penalty: float, normalise: str, least: int
) -> None:
    table, limits = Table(4, seed), Limits(least=least, most=3)
    options = replace(PLAIN, beam=40, nbest=40, length_penalty=penalty, limits=limits)
    options = replace(options, normalise="gnmt" if normalise == "gnmt" else "average")
    wishes = [Wish(), Wish()]
    for sentence, found in enumerate(run(table, options, wishes)):
        every = [each for each in sequences(4, 3) if len(each) >= least]
        ranked = sorted(every, key=lambda each: -scored(table, sentence, each, Wish(), options))
        assert [each.tokens for each in found] == ranked
        assert [each.score for each in found] == pytest.approx(
            [scored(table, sentence, each, Wish(), options) for each in ranked], rel=1e-12
        )


@given(seeds, st.integers(1, 6))
def test_a_score_is_the_log_probability_of_its_tokens(seed: int, beam: int) -> None:
    table, options = Table(6, seed), replace(PLAIN, beam=beam, nbest=beam, length_penalty=0.0)
    for sentence, found in enumerate(run(table, options, [Wish()] * 3)):
        for each in found:
            expected = forced(table, sentence, each.tokens)
            assert each.token_logprobs == pytest.approx(expected, rel=1e-12)
            assert each.score == each.logprob == pytest.approx(sum(expected), rel=1e-12)


@given(seeds, st.integers(1, 5), penalties, st.sampled_from(["exact", "full"]), st.integers(1, 12))
def test_a_batch_finds_what_each_sentence_finds_alone_bit_for_bit(
    seed: int, beam: int, penalty: float, stopping: str, sentences: int
) -> None:
    table = Table(5, seed)
    options = replace(PLAIN, beam=beam, nbest=beam, length_penalty=penalty)
    options = replace(
        options, stopping="exact" if stopping == "exact" else "full", limits=Limits(most_per_source=1.5, spare=1)
    )
    wishes = [Wish(source=1 + (seed + i) % 5) for i in range(sentences)]
    together = run(table, options, wishes)
    assert together == [run(table, options, [wish], first)[0] for first, wish in enumerate(wishes)]
