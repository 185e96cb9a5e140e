"""Batches are filled up to a fixed size."""

import pytest

from regard.nn.fill import FILL_LENGTH, fill_to_size
from regard.nn.ragged import Ragged

BATCH = Ragged.from_list([[3, 4], [], [5]])


def test_a_filled_batch_has_the_requested_size_and_starts_with_the_original() -> None:
    full = fill_to_size(BATCH, tokens=8, sequences=6, value=9, longest=3)
    assert [sequence.tolist() for sequence in full.to_list()] == [[3, 4], [], [5], [9] * 3, [9] * 2, []]


def test_all_filled_batches_have_the_same_shape() -> None:
    for batch in (BATCH, Ragged.from_list([[1] * 100])):
        full = fill_to_size(batch, 200, 9, 0, longest=150)
        assert (full.tokens, len(full), full.longest) == (200, 9, 150)


def test_filler_sequences_are_short() -> None:
    assert int(fill_to_size(BATCH, 1000, 40, 0, longest=512).lengths_B.max()) == FILL_LENGTH


@pytest.mark.parametrize(("tokens", "sequences"), [(2, 9), (9, 3)])
def test_a_batch_that_does_not_fit_is_refused(tokens: int, sequences: int) -> None:
    with pytest.raises(ValueError, match="3 tokens in 3 sequences cannot be filled"):
        fill_to_size(BATCH, tokens, sequences, 0, longest=3)


def test_a_sequence_longer_than_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="a sequence of 2 tokens, but at most 1 were declared"):
        fill_to_size(BATCH, 9, 9, 0, longest=1)
