"""Required phrases appear in every hypothesis, however narrow the beam."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import END, Table, contains, contains_whole, enumerated, forced
from tests.decode.test_beam import PLAIN, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SearchOptions, SentenceOptions, WordBoundaries
from regard.decode.constraints import BoundaryTable, progress

tokens = st.sampled_from([0, 2, 3, 4, 5])
phrase_lists = st.lists(st.lists(tokens, min_size=1, max_size=4).map(tuple), max_size=3).map(tuple)


@given(seeds, phrase_lists, st.integers(1, 6), st.integers(0, 3), st.lists(tokens, max_size=2).map(tuple))
def test_every_hypothesis_contains_every_required_phrase(
    seed: int, phrases: tuple[tuple[int, ...], ...], beam: int, extra: int, prefix: tuple[int, ...]
) -> None:
    table, needed = Table(6, seed, sharpness=3.0), len(prefix) + sum(map(len, phrases))
    options = replace(PLAIN, beam=beam, nbest=beam, limits=LengthLimits(maximum=needed + extra))
    requests = [SentenceOptions(prefix=prefix, constraints=phrases), SentenceOptions()]
    constrained, free = run(table, options, requests)
    assert constrained
    for hypothesis in constrained:
        assert all(contains(hypothesis.tokens, phrase) for phrase in phrases)
        assert hypothesis.tokens[: len(prefix)] == prefix
        assert hypothesis.token_logprobs == pytest.approx(forced(table, 0, hypothesis.tokens))
    assert free == run(table, options, [SentenceOptions()], 1)[0]


@given(seeds, st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=30)
def test_a_required_phrase_of_the_best_hypothesis_loses_no_score_in_a_wider_beam(
    seed: int, beam: int, size: int
) -> None:
    table, options = Table(6, seed), replace(PLAIN, beam=beam)
    best = run(table, options, [SentenceOptions()])[0][0]
    if len(best.tokens) >= size:
        requested = SentenceOptions(constraints=(best.tokens[:size],))
        wide = replace(options, beam=8 * beam)
        assert run(table, wide, [requested])[0][0].score >= best.score - 1e-12


# Token 2 begins a word, 3 continues one, 4 is a whole word in a script without spaces, 0 and 5 are punctuation.
SUBWORDS = WordBoundaries(
    np.array([0, 0, 0, 1, 2, 0], dtype=np.int8),
    np.array([0, 0, 1, 1, 2, 0], dtype=np.int8),
    [[before == after == 1 for after in range(3)] for before in range(3)],
)


@given(seeds, phrase_lists.filter(bool), st.integers(1, 6), st.lists(tokens, max_size=2).map(tuple))
def test_with_word_boundaries_a_phrase_is_met_by_whole_words_only(
    seed: int, phrases: tuple[tuple[int, ...], ...], beam: int, prefix: tuple[int, ...]
) -> None:
    table, needed = Table(6, seed, sharpness=3.0), len(prefix) + sum(map(len, phrases))
    options = replace(PLAIN, beam=beam, nbest=beam, limits=LengthLimits(maximum=needed + 4))
    requests = [SentenceOptions(prefix=prefix, constraints=phrases, boundaries=SUBWORDS), SentenceOptions()]
    constrained, free = run(table, options, requests)
    for hypothesis in constrained:
        assert all(contains_whole(hypothesis.tokens, phrase, SUBWORDS) for phrase in phrases)
        assert hypothesis.token_logprobs == pytest.approx(forced(table, 0, hypothesis.tokens))
    if all(phrase[0] != 3 for phrase in phrases):  # such a phrase begins a word wherever it stands
        assert constrained
    assert free == run(table, options, [SentenceOptions()], 1)[0]


@given(seeds, st.lists(tokens, min_size=1, max_size=2).map(tuple), st.lists(tokens, max_size=1).map(tuple))
@settings(max_examples=20)
def test_a_wide_beam_finds_the_best_of_all_sequences_with_the_whole_words(
    seed: int, phrase: tuple[int, ...], prefix: tuple[int, ...]
) -> None:
    table, options = Table(6, seed, sharpness=3.0), replace(PLAIN, beam=600, limits=LengthLimits(maximum=4))
    requested = SentenceOptions(prefix=prefix, constraints=(phrase,), boundaries=SUBWORDS)
    expected = enumerated(table, 0, requested, options)
    (hypotheses,) = run(table, options, [requested])
    assert [hypothesis.tokens for hypothesis in hypotheses[:1]] == [tokens for tokens, _ in expected[:1]]


def test_a_phrase_inside_a_word_is_not_met() -> None:
    lines = torch.tensor([[2, 3, 3], [2, 3, 5], [2, 3, 0], [2, 2, 3]])
    lengths, phrase = torch.tensor([3, 3, 2, 3]), torch.tensor([[[2, 3]]]).expand(4, -1, -1)
    met, begun, ends = progress(lines, lengths, phrase, BoundaryTable(SUBWORDS, "cpu"))
    assert met[:, 0].tolist() == [False, True, True, True]
    assert begun[:, 0].tolist() == [0, 0, 0, 0]
    assert ends.tolist() == [False, False, True, True]


def scan(history: tuple[int, ...], phrase: tuple[int, ...]) -> tuple[bool, int]:
    """Return whether a sequence contains a phrase, and otherwise how many of its first tokens end the sequence."""
    if contains(history, phrase):
        return True, 0
    begun = [k for k in range(1, len(phrase)) if history[-k:] == phrase[:k] and k <= len(history)]
    return False, max(begun, default=0)


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=7).map(tuple), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3),
)
def test_the_progress_of_a_constraint_equals_a_scan_of_the_history(
    histories: list[tuple[int, ...]], phrases: list[tuple[int, ...]]
) -> None:
    longest = max(map(len, phrases))
    table = torch.tensor([[*phrase, *[-2] * (longest - len(phrase))] for phrase in phrases])
    lines = torch.tensor([[*history, *[1] * (8 - len(history))] for history in histories])
    lengths = torch.tensor([len(history) for history in histories])
    met, begun, _ = progress(lines, lengths, table.expand(len(histories), -1, -1))
    expected = [[scan(history, phrase) for phrase in phrases] for history in histories]
    assert list(map(list, zip(met.tolist(), begun.tolist(), strict=True))) == [
        [[is_met for is_met, _ in line], [first for _, first in line]] for line in expected
    ]


@pytest.mark.parametrize(
    ("options", "requested", "message"),
    [
        (PLAIN, SentenceOptions(constraints=((2, END),)), "contains the end symbol 1"),
        (PLAIN, SentenceOptions(prefix=(END,)), "contains the end symbol 1"),
        (PLAIN, SentenceOptions(avoid=((),)), "is empty; remove it"),
        (PLAIN, SentenceOptions(constraints=((),)), "is empty; remove it"),
        (PLAIN, SentenceOptions(constraints=((2,) * 9,)), "have 9 tokens, but a hypothesis may have at most 6"),
        (replace(PLAIN, sampling=SamplingOptions()), SentenceOptions(constraints=((2,),)), "need plain beam search"),
        (replace(PLAIN, groups=3, diversity=1.0), SentenceOptions(constraints=((2,),)), "need plain beam search"),
    ],
)
def test_constraints_that_cannot_be_satisfied_are_refused(
    options: SearchOptions, requested: SentenceOptions, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(Table(), options, [requested])
