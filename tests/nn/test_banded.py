"""A window computed in blocks shows what a mask over all pairs shows, at the cost of the window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.nn.attention.banded import Band, band, pays, within
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan
from regard.nn.attention.sight import Sight, alibi_slopes
from regard.nn.ragged import Layout
from regard.nn.tap import recording

HEADS = 2


def masked(sight: Sight, columns: int, lengths_B: Tensor) -> Tensor:
    """What is added to scores over all pairs; queries behind a row's end see everything."""
    place = torch.arange(columns)
    allowed = sight.allows(place[:, None], place) & (place < lengths_B[:, None, None, None])
    allowed = allowed | (place[:, None] >= lengths_B[:, None, None, None])
    return torch.where(allowed, sight.bias(place, place), -torch.inf)


@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=3),
    window=st.integers(1, 40),
    causal=st.booleans(),
    sloped=st.booleans(),
)
def test_blocks_show_what_a_mask_shows_and_send_the_same_gradients(
    lengths: list[int], window: int, causal: bool, sloped: bool
) -> None:
    torch.manual_seed(window)
    sight = Sight(causal, window, alibi_slopes(HEADS) if sloped else ())
    columns, lengths_B = max(lengths), torch.tensor(lengths)
    sides = [torch.randn(len(lengths), columns, HEADS, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    real = (torch.arange(columns) < lengths_B[:, None])[..., None, None]
    found = []
    for limit in (band(sight, columns, lengths_B), masked(sight, columns, lengths_B)):
        mixed = within(sides[0], sides[1], sides[2], limit, 0.5, 0.0) * real
        found.append([mixed, *torch.autograd.grad(mixed.sin().sum(), sides)])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("causal", [False, True])
def test_a_layer_that_is_watched_and_one_in_blocks_agree_gradients_included(causal: bool) -> None:
    layer, layout = SelfAttention(8, HEADS).double(), Layout.from_lengths([300, 3, 0, 295, 120])
    look = plan(Sight(causal, 5), layout, layout)
    assert look.cells is not None
    assert any(isinstance(limit, Band) for limit in look.cells.limits)
    x_ND = torch.randn(layout.tokens, 8, dtype=torch.float64, requires_grad=True)
    unwatched = layer(x_ND, look)
    with recording(layer, "weights"):
        seen = layer(x_ND, look)
    torch.testing.assert_close(unwatched, seen)
    torch.testing.assert_close(*(torch.autograd.grad(each.sin().sum(), x_ND)[0] for each in (unwatched, seen)))


def test_a_narrow_window_over_rows_of_unequal_length_has_a_gradient_everywhere() -> None:
    layer, layout = SelfAttention(8, HEADS), Layout.from_lengths([50, 53, 51])
    x_ND = torch.randn(layout.tokens, 8, requires_grad=True)
    (gradient_ND,) = torch.autograd.grad(layer(x_ND, plan(Sight(window=1), layout, layout)).sin().sum(), x_ND)
    assert gradient_ND.isfinite().all()


def test_twice_the_length_costs_twice_the_products() -> None:
    def operations(length: int) -> int:
        x = torch.randn(1, length, HEADS, 4, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            within(x, x, x, band(Sight(window=8), length, torch.tensor([length])), 0.5, 0.0)
        return int(counter.get_total_flops())

    assert operations(1024) == 2 * operations(512) == 4 * operations(256)


def test_blocks_are_for_rows_that_are_long_for_their_window() -> None:
    assert pays(Sight(window=3), 512)
    assert not pays(Sight(window=3), 40)
    assert not pays(Sight(window=200), 512)
    assert not pays(Sight(), 512)
