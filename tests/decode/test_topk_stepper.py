"""A stepper that says only the best few finds what one that says everything finds."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import Table, TableState
from tests.decode.test_beam import PLAIN, penalties, run, seeds

from regard.decode import LengthLimits, SearchOptions, SentenceOptions, search, stream


class Listing(Table):
    """A table with a short list."""

    def __init__(self, vocabulary: int, seed: int, max_top_k: int = 99) -> None:
        super().__init__(vocabulary, seed)
        self.lists, self.max_top_k = 0, max_top_k

    def top_k(self, tokens_R: torch.Tensor, state: TableState, k: int) -> tuple[torch.Tensor, torch.Tensor, TableState]:
        self.lists += 1
        said, state = self.step(tokens_R, state)
        best, tokens = said.topk(min(k, self.vocabulary))
        return best, tokens, state


REQUESTS = [SentenceOptions(), SentenceOptions(prefix=(4, 4)), SentenceOptions()]


@given(seeds, st.integers(1, 4), penalties, st.sampled_from([(), (3,), (0, 4)]), st.integers(0, 2), st.booleans())
@settings(max_examples=30)
def test_the_best_few_are_enough_where_they_are_asked_for(
    seed: int, beam: int, penalty: float, banned: tuple[int, ...], least: int, plain: bool
) -> None:
    options = replace(PLAIN, beam=beam, nbest=beam, length_penalty=penalty, banned=banned)
    options = replace(options, limits=LengthLimits(minimum=least, maximum=6))
    requests = [SentenceOptions()] * 3 if plain else REQUESTS
    expected = run(Table(20, seed), options, requests)
    assert run(Listing(20, seed), options, requests) == expected
    listing = Listing(20, seed)
    arrivals = [(listing.start([i], beam), [requested]) for i, requested in enumerate(requests)]
    assert [found for _, found in sorted(stream(listing, arrivals, options, room=3))] == expected


def test_a_list_is_asked_for_wherever_it_is_enough() -> None:
    for beam in (1, 4):
        listing = Listing(20, 3)
        options: SearchOptions = replace(PLAIN, beam=beam, limits=LengthLimits(maximum=30), length_penalty=0.0)
        search(listing, listing.start([0], beam), [SentenceOptions()], options)
        assert listing.lists == listing.steps > 0


@pytest.mark.parametrize(("beam", "max_top_k", "asked"), [(1, 0, False), (1, 1, True), (2, 3, False), (2, 4, True)])
def test_no_list_is_asked_for_that_is_longer_than_pays(beam: int, max_top_k: int, asked: bool) -> None:
    for banned in ((), (3,)):
        listing = Listing(20, 3, max_top_k + len(banned))
        options: SearchOptions = replace(PLAIN, beam=beam, limits=LengthLimits(maximum=30), banned=banned)
        search(listing, listing.start([0], beam), [SentenceOptions()], options)
        assert listing.lists == (listing.steps if asked else 0)
