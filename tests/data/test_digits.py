"""Digits are drawn inside the picture, differ, and depend on their name alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.digits import PIXELS, SPLITS, digit_labels, digits, find_digit
from regard.data.digits.strokes import HEIGHT, WIDTH, hands, lines


def test_every_hand_draws_every_digit_inside_its_box() -> None:
    assert len(hands()) == 4
    assert {len(hand) for hand in hands()} == {10}
    for hand in hands():
        for strokes in hand:
            points = np.array([point for stroke in strokes for point in stroke[1]])
            assert (points >= 0).all()
            assert (points <= (WIDTH, HEIGHT)).all()
            assert np.ptp(points[:, 1]) >= 90


def test_a_curve_passes_through_its_points_and_has_no_gaps() -> None:
    for hand in hands():
        for strokes in hand:
            for stroke in strokes:
                drawn = lines(stroke)
                corners = [drawn[0][0], *(end for _, end in drawn)]
                assert set(stroke[1]) <= {(round(x, 9), round(y, 9)) for x, y in corners}
                assert all(before[1] == after[0] for before, after in pairwise(drawn))


@given(st.sampled_from(SPLITS), st.integers(0, 10**9))
def test_a_digit_is_light_on_dark_and_inside_the_picture(split: str, number: int) -> None:
    digit = find_digit(f"digit:{split}/0/{number}")
    assert (digit.image.shape, digit.image.dtype) == ((PIXELS, PIXELS), np.uint8)
    ink = digit.image > 120
    assert 10 <= ink.sum() <= 350
    assert ink.any(1).sum() >= 11
    assert not ink[[0, -1]].any()
    assert not ink[:, [0, -1]].any()
    assert find_digit(digit.name).image.tobytes() == digit.image.tobytes()


def test_all_digits_occur_about_equally_often_and_no_picture_twice() -> None:
    drawn = [digit for split in SPLITS for digit in digits(split, 400)] + list(digits("train", 100, seed=1))
    assert len({digit.image.tobytes() for digit in drawn}) == len(drawn) == 1300
    counts = np.bincount([int(digit.label) for digit in drawn], minlength=10)
    assert counts.min() > 90
    assert counts.max() < 170


def test_the_nearest_picture_tells_most_labels() -> None:
    known, asked = list(digits("train", 800)), list(digits("test", 100))
    pixels, queries = (np.stack([digit.image.ravel() for digit in part]).astype(float) for part in (known, asked))
    nearest = ((queries[:, None] - pixels) ** 2).sum(2).argmin(1)
    correct = [known[index].label == digit.label for index, digit in zip(nearest, asked, strict=True)]
    assert np.mean(correct) > 0.6


def test_labels_are_those_of_the_pictures() -> None:
    assert list(digit_labels("valid", 50, 3)) == [(digit.name, digit.label) for digit in digits("valid", 50, 3)]


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(ValueError, match="digits have no split 'novel': choose one of train, valid, test"):
        list(digits("novel", 1))
    with pytest.raises(ValueError, match="cannot draw -1 digits"):
        list(digits("train", -1))
