"""Masking: which tokens are predicted, and what the model reads in their place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import rows_from

from regard.data.masking import Masking, masked_counts
from regard.data.rows import Rows
from regard.nn.cross_entropy import IGNORED
from regard.text import END, PAD, START, Tokenizer, TokenizerSettings

LINES = [
    "the unbelievable animals crossed the streets, quietly",
    "an animal is crossing a street.",
    "unbelievably quiet",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.learn(LINES * 3, 330, TokenizerSettings(symbols=("<2de>", "<mask>")))


def masking_of(tokenizer: Tokenizer, whole_words: bool = False) -> Masking:
    return Masking(tokenizer, tokenizer.id("<mask>"), whole_words)


def random_rows(tokenizer: Tokenizer, count: int, length: int) -> Rows:
    draw = np.random.default_rng(7)
    ids = masking_of(tokenizer).ordinary
    return rows_from([[START, *draw.choice(ids, length).tolist(), END] for _ in range(count)])


@given(st.lists(st.integers(0, 400), min_size=1, max_size=10), st.floats(0.01, 0.99))
def test_the_count_is_the_rounded_fraction_and_at_least_one(lengths: list[int], fraction: float) -> None:
    counts = masked_counts(np.array(lengths), fraction)
    for length, count in zip(lengths, counts.tolist(), strict=True):
        assert count == min(length, max(1, int(fraction * length + 0.5)))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 2**40), st.integers(1, 5))
def test_exactly_as_many_tokens_are_predicted_as_asked_for_and_never_a_symbol(
    tokenizer: Tokenizer, lengths: list[int], epoch: int, count: int
) -> None:
    masking, draw = masking_of(tokenizer), np.random.default_rng(epoch)
    texts = [draw.choice(masking.ordinary, length).tolist() for length in lengths]
    rows = rows_from([[START, *text, END, PAD, masking.mask] for text in texts])
    counts = np.minimum(np.array(lengths), count)
    masked, labels = masking.apply(rows, counts, (1, epoch), np.arange(len(lengths)))
    predicted = labels != IGNORED
    assert np.add.reduceat(predicted, rows.offsets[:-1]).tolist() == counts.tolist()
    assert (labels[predicted] == rows.ids[predicted]).all()
    assert not predicted[np.isin(rows.ids, [START, END, PAD, masking.mask])].any()
    assert (masked.ids[~predicted] == rows.ids[~predicted]).all()
    assert masked.offsets is rows.offsets


def test_80_per_cent_are_masked_10_per_cent_random_and_10_per_cent_kept(tokenizer: Tokenizer) -> None:
    masking, rows = masking_of(tokenizer), random_rows(tokenizer, 400, 100)
    masked, labels = masking.apply(rows, np.full(400, 50), (3,), np.arange(400))
    chosen = labels != IGNORED
    read, original = masked.ids[chosen], rows.ids[chosen]
    assert chosen.sum() == 20_000
    is_mask, is_kept = read == masking.mask, read == original
    # Four standard deviations of 20,000 draws are 1.1 % and 0.9 %; some random tokens are the original one by chance.
    assert abs(is_mask.mean() - 0.8) < 0.012
    assert abs(is_kept.mean() - 0.1) < 0.012
    changed = read[~is_mask & ~is_kept]
    assert set(changed.tolist()) <= set(masking.ordinary.tolist())
    assert len(set(changed.tolist())) > 0.9 * masking.ordinary.size


def test_every_position_is_chosen_equally_often(tokenizer: Tokenizer) -> None:
    rows = random_rows(tokenizer, 4000, 10)
    _, labels = masking_of(tokenizer).apply(rows, np.full(4000, 2), (5,), np.arange(4000))
    rates = (labels.reshape(4000, 12) != IGNORED).mean(0)
    assert rates[[0, -1]].tolist() == [0.0, 0.0]
    assert np.abs(rates[1:-1] - 0.2).max() < 0.026  # four standard deviations


def test_masks_depend_on_key_and_number_but_not_on_the_batch(tokenizer: Tokenizer) -> None:
    masking, rows = masking_of(tokenizer), random_rows(tokenizer, 6, 20)
    counts, numbers = np.full(6, 4), np.array([10, 11, 12, 13, 14, 15])
    masked, labels = masking.apply(rows, counts, (1, 2), numbers)
    some = np.array([4, 1])
    again, again_labels = masking.apply(rows.take(some), counts[some], (1, 2), numbers[some])
    assert again.ids.tolist() == Rows(masked.ids, rows.offsets).take(some).ids.tolist()
    assert again_labels.tolist() == labels.reshape(6, 22)[some].ravel().tolist()
    for key, others in (((1, 3), numbers), ((1, 2), numbers + 100)):
        assert masking.apply(rows, counts, key, others)[1].tolist() != labels.tolist()


@given(st.integers(0, 10**6))
def test_whole_words_are_predicted_together(tokenizer: Tokenizer, epoch: int) -> None:
    masking = masking_of(tokenizer, whole_words=True)
    tokens = [tokenizer.tokens(line) for line in LINES]
    rows = rows_from([[START, *(token.id for token in line), END] for line in tokens])
    _, labels = masking.apply(rows, np.full(3, 3), (epoch,), np.arange(3))
    for row, line in enumerate(tokens):
        predicted = (labels[rows.offsets[row] + 1 : rows.offsets[row + 1] - 1] != IGNORED).tolist()
        assert any(predicted)
        for at in range(1, len(line)):
            before, after = line[at - 1], line[at]
            # A comma or full stop is a word of its own.
            if before.word == after.word and not {before.piece, after.piece} & {",", "."}:
                assert predicted[at] == predicted[at - 1]


def test_whole_words_have_about_the_count_of_tokens(tokenizer: Tokenizer) -> None:
    masking = masking_of(tokenizer, whole_words=True)
    row = [START, *tokenizer.encode(" ".join(LINES * 20)), END]
    totals = [
        int((masking.apply(rows_from([row]), np.array([60]), (key,), np.zeros(1, np.int64))[1] != IGNORED).sum())
        for key in range(50)
    ]
    assert abs(np.mean(totals) - 60) < 1.5
    assert max(abs(total - 60) for total in totals) <= 10


def test_a_space_of_its_own_belongs_to_the_word_after_it(tokenizer: Tokenizer) -> None:
    characters = Tokenizer.learn(["ab cd"], 300, TokenizerSettings(kind="char", symbols=("<mask>",)))
    masking = masking_of(characters, whole_words=True)
    ids = np.array(characters.encode("ab cd"), np.int32)
    pieces = [characters.piece(number) for number in ids.tolist()]
    assert pieces == ["▁", "a", "b", "▁", "c", "d"]
    assert masking.continues_word(ids[:-1], ids[1:]).tolist() == [True, True, False, True, True]
