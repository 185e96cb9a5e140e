"""Required phrases appear in every hypothesis, however narrow the beam."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import END, Table, contains, forced
from tests.decode.test_beam import PLAIN, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SearchOptions, SentenceOptions
from regard.decode.constraints import progress

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
    met, begun = progress(lines, lengths, table.expand(len(histories), -1, -1))
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
