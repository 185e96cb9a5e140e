"""Groups of beams: diverse beam search, and alternatives after a prefix."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import BEGIN, END, Table, numbers
from tests.decode.test_beam import PLAIN, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SentenceOptions, alternatives, branching


def diverse(table: Table, groups: int, penalty: float, most: int) -> list[tuple[int, ...]]:
    """Diverse beam search with one beam in each group, as a plain loop."""
    lines: list[tuple[int, ...]] = [() for _ in range(groups)]
    ended = [False] * groups
    for position in range(most + 1):
        chosen: list[int] = []
        for group in (number for number in range(groups) if not ended[number]):
            logits = list(numbers((table.seed, 0, BEGIN, *lines[group]), table.vocabulary, table.sharpness))
            ranked = sorted(range(table.vocabulary), key=lambda token: penalty * chosen.count(token) - logits[token])
            token = END if position == most else ranked[0]
            chosen.append(token)
            ended[group] = token == END
            lines[group] += () if token == END else (token,)
    return lines


@given(seeds, st.integers(1, 4), st.sampled_from([0.0, 0.5, 2.0, 100.0]), st.integers(1, 6))
def test_groups_of_one_beam_equal_a_plain_loop(seed: int, groups: int, penalty: float, most: int) -> None:
    table = Table(8, seed)
    options = replace(
        PLAIN, beam=groups, nbest=groups, groups=groups, diversity=penalty, limits=LengthLimits(maximum=most)
    )
    (found,) = run(table, options, [SentenceOptions()])
    assert sorted(hypothesis.tokens for hypothesis in found) == sorted(diverse(table, groups, penalty, most))


@given(seeds, st.integers(1, 3))
def test_groups_without_a_diversity_penalty_all_find_the_same(seed: int, width: int) -> None:
    table = Table(5, seed)
    options = replace(PLAIN, beam=3 * width, groups=3, nbest=3)
    alone = run(table, replace(options, beam=width, groups=1, nbest=1), [SentenceOptions()] * 2)
    assert run(table, options, [SentenceOptions()] * 2) == [found * 3 for found in alone]


@given(seeds, st.integers(1, 3), st.integers(2, 4))
def test_diversity_changes_which_hypotheses_are_found_but_not_their_scores(seed: int, width: int, groups: int) -> None:
    table = Table(6, seed)
    options = replace(PLAIN, beam=groups * width, groups=groups, nbest=groups, diversity=1.5, length_penalty=0.0)
    for hypotheses in run(table, options, [SentenceOptions()] * 2):
        assert len(hypotheses) == groups
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == pytest.approx([sum(hypothesis.token_logprobs) for hypothesis in hypotheses])
        assert scores == sorted(scores, reverse=True)


@given(seeds, st.integers(2, 4), st.integers(1, 6))
@settings(max_examples=20)
def test_groups_of_one_sentence_do_not_affect_those_of_another(seed: int, groups: int, sentences: int) -> None:
    table = Table(5, seed)
    options = replace(PLAIN, beam=2 * groups, groups=groups, nbest=groups, diversity=1.0)
    together = run(table, options, [SentenceOptions()] * sentences)
    assert together == [run(table, options, [SentenceOptions()], first)[0] for first in range(sentences)]


@given(seeds, st.integers(1, 4), st.integers(1, 3), st.lists(st.sampled_from([0, 2, 3, 4]), max_size=3).map(tuple))
@settings(max_examples=30)
def test_alternatives_continue_the_most_probable_tokens(
    seed: int, count: int, beam: int, prefix: tuple[int, ...]
) -> None:
    table, options = Table(6, seed), replace(PLAIN, beam=beam)
    requests = [SentenceOptions(prefix=prefix), SentenceOptions()]
    branches = branching(options, count)
    found = alternatives(table, table.start([0, 1], branches.rows), requests, branches)
    for sentence, (requested, hypotheses) in enumerate(zip(requests, found, strict=True)):
        logprobs = table.logprobs((seed, sentence, BEGIN, *requested.prefix))
        for token, hypothesis in zip(logprobs.argsort(descending=True).tolist(), hypotheses, strict=False):
            if token == END:
                assert hypothesis.tokens == requested.prefix
            else:
                alone = replace(requested, prefix=(*requested.prefix, token))
                assert hypothesis == run(table, options, [alone], sentence)[0][0]
        assert len(hypotheses) == count


def test_there_are_no_more_alternatives_than_allowed_tokens() -> None:
    table, options = Table(4, 1), replace(PLAIN, banned=(2, 3), limits=LengthLimits(minimum=1, maximum=4))
    branches = branching(options, 3)
    (found,) = alternatives(table, table.start([0], branches.rows), [SentenceOptions()], branches)
    assert [hypothesis.tokens[0] for hypothesis in found] == [0]


def test_alternatives_with_sampling_or_without_branching_are_refused() -> None:
    with pytest.raises(ValueError, match="turn sampling and groups off"):
        branching(replace(PLAIN, sampling=SamplingOptions()), 3)
    with pytest.raises(ValueError, match="branching"):
        alternatives(Table(), Table().start([0], 3), [SentenceOptions()], PLAIN)
