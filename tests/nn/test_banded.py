"""Windowed attention in blocks equals attention under a mask over all pairs, at the cost of the window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.nn.attention.banded import Band, banded_is_faster, make_band, padded_attention
from regard.nn.attention.mask import AttentionMask, alibi_slopes
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.ragged import Layout
from regard.nn.tap import recording

HEADS = 2


def dense_mask(mask: AttentionMask, columns: int, lengths_B: Tensor) -> Tensor:
    """The additive mask over all pairs; padding queries may attend to everything."""
    position = torch.arange(columns)
    allowed = mask.allows(position[:, None], position) & (position < lengths_B[:, None, None, None])
    allowed = allowed | (position[:, None] >= lengths_B[:, None, None, None])
    return torch.where(allowed, mask.bias(position, position), -torch.inf)


@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=3),
    window=st.integers(1, 40),
    causal=st.booleans(),
    sloped=st.booleans(),
)
def test_blocks_give_the_output_and_gradients_of_a_mask(
    lengths: list[int], window: int, causal: bool, sloped: bool
) -> None:
    torch.manual_seed(window)
    mask = AttentionMask(causal, window, alibi_slopes(HEADS) if sloped else ())
    columns, lengths_B = max(lengths), torch.tensor(lengths)
    sides = [torch.randn(len(lengths), columns, HEADS, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    real = (torch.arange(columns) < lengths_B[:, None])[..., None, None]
    results = []
    for limit in (make_band(mask, columns, lengths_B), dense_mask(mask, columns, lengths_B)):
        mixed = padded_attention(sides[0], sides[1], sides[2], limit, 0.5, 0.0) * real
        results.append([mixed, *torch.autograd.grad(mixed.sin().sum(), sides)])
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("causal", [False, True])
def test_watching_a_layer_in_blocks_changes_no_output_and_no_gradient(causal: bool) -> None:
    layer, layout = SelfAttention(8, HEADS).double(), Layout.from_lengths([300, 3, 0, 295, 120])
    plan = plan_attention(AttentionMask(causal, 5), layout, layout)
    assert plan.buckets is not None
    assert any(isinstance(limit, Band) for limit in plan.buckets.limits)
    x_ND = torch.randn(layout.tokens, 8, dtype=torch.float64, requires_grad=True)
    unwatched = layer(x_ND, plan)
    with recording(layer, "weights"):
        seen = layer(x_ND, plan)
    torch.testing.assert_close(unwatched, seen)
    torch.testing.assert_close(*(torch.autograd.grad(output.sin().sum(), x_ND)[0] for output in (unwatched, seen)))


def test_a_narrow_window_over_rows_of_unequal_length_has_finite_gradients() -> None:
    layer, layout = SelfAttention(8, HEADS), Layout.from_lengths([50, 53, 51])
    x_ND = torch.randn(layout.tokens, 8, requires_grad=True)
    (gradient_ND,) = torch.autograd.grad(
        layer(x_ND, plan_attention(AttentionMask(window=1), layout, layout)).sin().sum(), x_ND
    )
    assert gradient_ND.isfinite().all()


def test_the_cost_grows_linearly_with_the_length() -> None:
    def operations(length: int) -> int:
        x = torch.randn(1, length, HEADS, 4, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            padded_attention(x, x, x, make_band(AttentionMask(window=8), length, torch.tensor([length])), 0.5, 0.0)
        return int(counter.get_total_flops())

    assert operations(1024) == 2 * operations(512) == 4 * operations(256)


def test_blocks_are_chosen_for_rows_much_longer_than_their_window() -> None:
    assert banded_is_faster(AttentionMask(window=3), 512)
    assert not banded_is_faster(AttentionMask(window=3), 40)
    assert not banded_is_faster(AttentionMask(window=200), 512)
    assert not banded_is_faster(AttentionMask(), 512)
