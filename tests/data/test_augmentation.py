"""Random numbers of examples, and pictures that vary by them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data.augmentation import Augmentation
from regard.data.batch import RandomKey
from regard.data.digits import digits
from regard.data.draws import uniform

IMAGES = np.stack([digit.image for digit in digits("train", 6)])[:, None]
SOME = Augmentation(shift=0.1, rotation=15.0, scale=0.1)


def key(*numbers: int) -> RandomKey:
    return RandomKey((3, 1), np.array(numbers))


def test_random_numbers_are_uniform_and_follow_from_key_and_number_alone() -> None:
    drawn = uniform((3, 1), np.arange(5000), 4)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert np.abs(drawn.mean(0) - 0.5).max() < 0.02
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.05
    assert np.array_equal(uniform((3, 1), np.array([17, 5]), 4), drawn[[17, 5]])
    assert not np.array_equal(uniform((3, 2), np.arange(5), 4), drawn[:5])


@given(st.permutations(range(6)), st.integers(1, 6))
@settings(max_examples=10)
def test_a_picture_varies_in_the_same_way_in_every_batch(order: list[int], count: int) -> None:
    whole, part = SOME.apply(IMAGES, key(*range(6))), order[:count]
    assert np.array_equal(SOME.apply(IMAGES[part], key(*part)), whole[part])


def test_pictures_vary_between_epochs_and_keep_their_type_and_shape() -> None:
    first, second = (SOME.apply(IMAGES, RandomKey((3, epoch), np.arange(6))) for epoch in (1, 2))
    assert first.dtype == np.uint8
    assert first.shape == IMAGES.shape
    assert not np.array_equal(first, IMAGES)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("augmentation", [Augmentation(), Augmentation(shift=0.5, rotation=180.0, scale=0.9)])
def test_a_picture_of_one_colour_does_not_change(augmentation: Augmentation) -> None:
    plain = np.full((4, 3, 9, 9), 77, np.uint8)
    assert np.array_equal(augmentation.apply(plain, key(1, 2, 3, 4)), plain)


def centres(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the centre of mass of each picture: row and column."""
    light = images[:, 0].astype(np.float64)
    planes = np.indices(light.shape[1:])
    return np.stack([(light * plane).sum((1, 2)) / light.sum((1, 2)) for plane in planes], 1)


def test_a_movement_is_at_most_its_fraction_of_the_size_and_the_centre_stays_in_a_rotation() -> None:
    dots = np.zeros((200, 1, 21, 21), np.uint8)
    dots[:, :, 10, 10] = 255
    moved = centres(Augmentation(shift=0.2).apply(dots, key(*range(200)))) - 10
    assert 3.5 < np.abs(moved).max() <= 0.2 * 21 + 0.02
    turned = centres(Augmentation(rotation=90.0, scale=0.3).apply(dots, key(*range(200))))
    assert np.abs(turned - 10).max() < 1e-6


def test_a_rotation_turns_pictures_by_the_angle_that_is_drawn() -> None:
    share = 2 * uniform((3, 1), np.array([5]), 5)[0, 0] - 1
    angle = 90 / abs(float(share))
    turned = Augmentation(rotation=angle).apply(IMAGES[:1], key(5))
    assert np.array_equal(turned[0, 0], np.rot90(IMAGES[0, 0], 1 if share > 0 else 3))


def test_scaling_enlarges_or_shrinks_by_at_most_its_fraction() -> None:
    squares = np.zeros((200, 1, 40, 40), np.uint8)
    squares[:, :, 10:30, 10:30] = 255
    sides = Augmentation(scale=0.2).apply(squares, key(*range(200)))[:, 0, 20].astype(float).sum(1) / 255
    assert 15.9 <= sides.min() < 16.5
    assert 23.5 < sides.max() <= 24.1
