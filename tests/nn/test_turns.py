"""Sequences are taken by the tile they fit, each once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.cuda.turns import WALK, WHOLE, classes, turns
from regard.nn.ragged import Layout

SIDES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=20)


@given(SIDES)
def test_every_sequence_is_in_the_one_class_whose_tile_both_its_sides_fit(lengths: list[tuple[int, int]]) -> None:
    turn = turns(*(Layout.from_lengths(list(side)) for side in zip(*lengths, strict=True)))
    assert sorted(turn.order_B.tolist()) == list(range(len(lengths)))
    tiles = [torch.inf, *(each.tile for each in WHOLE), -1]
    for number in range(1 + len(WHOLE)):
        members = turn.order_B[turn.ends[number] : turn.ends[number + 1]].tolist()
        assert all(tiles[number + 1] < max(lengths[each]) <= tiles[number] for each in members)


def test_the_longest_come_first() -> None:
    layout = Layout.from_lengths([3, 90, 0, 40])
    assert turns(layout, layout).order_B.tolist() == [1, 3, 0, 2]


def test_no_kernel_is_started_for_a_class_that_must_be_empty() -> None:
    assert list(classes(WHOLE[-1].tile)) == [(len(WHOLE), WHOLE[-1])]
    assert list(classes(WHOLE[0].tile + 1)) == list(enumerate([WALK, *WHOLE]))
