"""Every sequence belongs to the one length class whose tile it fits."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.cuda.length_classes import SINGLE_TILE, TILED, classify_lengths, launch_configs
from regard.nn.ragged import Layout

SIDES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=20)


@given(SIDES)
def test_every_sequence_is_in_the_one_class_whose_tile_both_its_sides_fit(lengths: list[tuple[int, int]]) -> None:
    classes = classify_lengths(*(Layout.from_lengths(list(side)) for side in zip(*lengths, strict=True)))
    assert sorted(classes.order_B.tolist()) == list(range(len(lengths)))
    tiles = [torch.inf, *(config.tile for config in SINGLE_TILE), -1]
    for number in range(1 + len(SINGLE_TILE)):
        members = classes.order_B[classes.bounds[number] : classes.bounds[number + 1]].tolist()
        assert all(tiles[number + 1] < max(lengths[sequence]) <= tiles[number] for sequence in members)


def test_the_longest_sequences_come_first() -> None:
    layout = Layout.from_lengths([3, 90, 0, 40])
    assert classify_lengths(layout, layout).order_B.tolist() == [1, 3, 0, 2]


def test_no_kernel_is_launched_for_a_class_that_must_be_empty() -> None:
    assert list(launch_configs(SINGLE_TILE[-1].tile)) == [(len(SINGLE_TILE), SINGLE_TILE[-1])]
    assert list(launch_configs(SINGLE_TILE[0].tile + 1)) == list(enumerate([TILED, *SINGLE_TILE]))
