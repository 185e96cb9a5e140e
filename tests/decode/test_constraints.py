"""Phrases that must appear do, however narrow the beam; and what it costs to ask for them is little."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import END, Table, forced, stands_in
from tests.decode.test_beam import PLAIN, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SearchOptions, SentenceOptions
from regard.decode.constraints import progress

tokens = st.sampled_from([0, 2, 3, 4, 5])
phrase_lists = st.lists(st.lists(tokens, min_size=1, max_size=4).map(tuple), max_size=3).map(tuple)


@given(seeds, phrase_lists, st.integers(1, 6), st.integers(0, 3), st.lists(tokens, max_size=2).map(tuple))
def test_every_phrase_stands_in_every_hypothesis(
    seed: int, phrases: tuple[tuple[int, ...], ...], beam: int, room: int, prefix: tuple[int, ...]
) -> None:
    table, needed = Table(6, seed, sharpness=3.0), len(prefix) + sum(map(len, phrases))
    options = replace(PLAIN, beam=beam, nbest=beam, limits=LengthLimits(maximum=needed + room))
    requests = [SentenceOptions(prefix=prefix, constraints=phrases), SentenceOptions()]
    constrained, free = run(table, options, requests)
    assert constrained
    for each in constrained:
        assert all(stands_in(phrase, each.tokens) for phrase in phrases)
        assert each.tokens[: len(prefix)] == prefix
        assert each.token_logprobs == pytest.approx(forced(table, 0, each.tokens))
    assert free == run(table, options, [SentenceOptions()], 1)[0]


@given(seeds, st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=30)
def test_a_phrase_that_would_have_been_found_anyway_changes_nothing(seed: int, beam: int, size: int) -> None:
    table, options = Table(6, seed), replace(PLAIN, beam=beam)
    best = run(table, options, [SentenceOptions()])[0][0]
    if len(best.tokens) >= size:
        requested = SentenceOptions(constraints=(best.tokens[:size],))
        wide = replace(options, beam=8 * beam)
        assert run(table, wide, [requested])[0][0].score >= best.score - 1e-12


def scan(history: tuple[int, ...], phrase: tuple[int, ...]) -> tuple[bool, int]:
    """Whether a phrase stands in a sequence, and else how much of its beginning the sequence ends with."""
    if stands_in(phrase, history):
        return True, 0
    begun = [k for k in range(1, len(phrase)) if history[-k:] == phrase[:k] and k <= len(history)]
    return False, max(begun, default=0)


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=7).map(tuple), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3),
)
def test_progress_is_what_reading_along_would_say(
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
    ("options", "requested", "said"),
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
def test_wishes_that_cannot_be_meant_are_refused(options: SearchOptions, requested: SentenceOptions, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(Table(), options, [requested])
