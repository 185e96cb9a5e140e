"""Batches of one size."""

import pytest

from regard.nn.capacity import PIECE, filled
from regard.nn.ragged import Ragged

BATCH = Ragged.from_list([[3, 4], [], [5]])


def test_a_filled_batch_has_the_size_asked_for_and_begins_with_what_it_was() -> None:
    full = filled(BATCH, tokens=8, sequences=6, value=9, longest=3)
    assert [each.tolist() for each in full.to_list()] == [[3, 4], [], [5], [9] * 3, [9] * 2, []]


def test_all_filled_batches_look_alike_to_what_is_compiled() -> None:
    one, other = (filled(each, 200, 9, 0, longest=150) for each in (BATCH, Ragged.from_list([[1] * 100])))
    assert (one.tokens, len(one), one.longest) == (other.tokens, len(other), other.longest) == (200, 9, 150)


def test_the_filling_is_short_sequences() -> None:
    assert int(filled(BATCH, 1000, 40, 0, longest=512).lengths_B.max()) == PIECE


@pytest.mark.parametrize(("tokens", "sequences"), [(2, 9), (9, 3)])
def test_a_batch_that_does_not_fit_is_refused(tokens: int, sequences: int) -> None:
    with pytest.raises(ValueError, match="3 tokens in 3 sequences does not leave room"):
        filled(BATCH, tokens, sequences, 0, longest=3)


def test_a_sequence_longer_than_announced_is_refused() -> None:
    with pytest.raises(ValueError, match="a sequence of 2 tokens is longer than the 1"):
        filled(BATCH, 9, 9, 0, longest=1)
