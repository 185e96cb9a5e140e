"""A stepper that returns only the most probable tokens gives the same hypotheses as one that returns all."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table, TableState
from tests.decode.test_beam import PLAIN, penalties, run, seeds

from regard.decode import LengthLimits, SearchOptions, SentenceOptions, search, stream


class TopKTable(Table):
    """A table that can return the most probable tokens only."""

    def __init__(self, vocabulary: int, seed: int, max_top_k: int = 99) -> None:
        super().__init__(vocabulary, seed)
        self.top_k_steps, self.max_top_k = 0, max_top_k

    def top_k(self, tokens_R: torch.Tensor, state: TableState, k: int) -> tuple[torch.Tensor, torch.Tensor, TableState]:
        self.top_k_steps += 1
        logprobs, state = self.step(tokens_R, state)
        best, tokens = logprobs.topk(min(k, self.vocabulary))
        return best, tokens, state


REQUESTS = [SentenceOptions(), SentenceOptions(prefix=(4, 4)), SentenceOptions()]


@given(seeds, st.integers(1, 4), penalties, st.sampled_from([(), (3,), (0, 4)]), st.integers(0, 2), st.booleans())
@settings(max_examples=30)
def test_a_search_on_the_top_k_tokens_finds_the_same_hypotheses(
    seed: int, beam: int, penalty: float, banned: tuple[int, ...], least: int, plain: bool
) -> None:
    options = replace(PLAIN, beam=beam, nbest=beam, length_penalty=penalty, banned=banned)
    options = replace(options, limits=LengthLimits(minimum=least, maximum=6))
    requests = [SentenceOptions()] * 3 if plain else REQUESTS
    expected = run(Table(20, seed), options, requests)
    assert run(TopKTable(20, seed), options, requests) == expected
    table = TopKTable(20, seed)
    arrivals = [(table.start([i], beam), [requested]) for i, requested in enumerate(requests)]
    assert [found for _, found in sorted(stream(table, arrivals, options, room=3))] == expected


def test_every_step_returns_the_top_k_tokens_if_they_are_enough() -> None:
    for beam in (1, 4):
        table = TopKTable(20, 3)
        options: SearchOptions = replace(PLAIN, beam=beam, limits=LengthLimits(maximum=30), length_penalty=0.0)
        search(table, table.start([0], beam), [SentenceOptions()], options)
        assert table.top_k_steps == table.steps > 0


@pytest.mark.parametrize(("beam", "max_top_k", "used"), [(1, 0, False), (1, 1, True), (2, 3, False), (2, 4, True)])
def test_no_more_than_max_top_k_tokens_are_requested(beam: int, max_top_k: int, used: bool) -> None:
    for banned in ((), (3,)):
        table = TopKTable(20, 3, max_top_k + len(banned))
        options: SearchOptions = replace(PLAIN, beam=beam, limits=LengthLimits(maximum=30), banned=banned)
        search(table, table.start([0], beam), [SentenceOptions()], options)
        assert table.top_k_steps == (table.steps if used else 0)
