"""The layers that are measured do what they say, at the cost they say."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.analysis.complexity import Cell, crossing, fit, kept_bytes, measure
from regard.analysis.layers import KERNEL, KINDS, Kind, make_pass, products
from regard.analysis.paths import path_length, reached, sequential


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "recurrent"])
def test_operations_are_those_torch_counts(kind: Kind) -> None:
    once = make_pass(kind, 48, 64, torch.device("cpu"))
    # The plain kernel shows its products, which the fused one does inside.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        once()
    assert counter.get_total_flops() == products(kind, 48, 64)


def test_operations_of_a_recurrence_are_those_of_its_cell() -> None:
    cell, x, state = torch.nn.LSTMCell(64, 64), torch.randn(1, 64), torch.zeros(1, 64)
    with FlopCounterMode(display=False) as counter:
        cell(x, (state, state))
    assert 48 * counter.get_total_flops() == products("recurrent", 48, 64)


def test_only_a_recurrence_waits_longer_for_longer_sequences() -> None:
    grown = {kind: sequential(kind, 16) - sequential(kind, 8) for kind in KINDS}
    assert {kind for kind, more in grown.items() if more} == {"recurrent"}
    assert sequential("recurrent", 16) == 16


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [
        ("self-attention", (1, 1)),
        ("restricted self-attention", (4, 8)),
        ("recurrent", (9, 17)),
        ("convolutional", (8, 16)),
    ],
)
def test_the_longest_path_is_the_one_the_gradient_finds(kind: Kind, lengths: tuple[int, int]) -> None:
    assert (path_length(kind, 9), path_length(kind, 17)) == lengths


def test_dilated_convolutions_see_everything_after_a_logarithm_of_layers() -> None:
    assert [path_length("convolutional", KERNEL**power, dilated=True) for power in (1, 2, 3)] == [1, 2, 3]


def test_a_convolution_sees_one_more_neighbour_with_each_layer() -> None:
    assert [sum(reached("convolutional", 9, layers)) for layers in (1, 2, 3)] == [2, 3, 4]


def test_exponents_of_a_power_law_are_found_again() -> None:
    cells = [Cell("recurrent", n, d, 1.0, 3e-9 * n * d**2) for n in (32, 128, 512, 2048) for d in (64, 256, 1024)]
    found = fit(cells, "recurrent", lambda cell: cell.seconds)
    assert found is not None
    assert (found.in_length, found.in_width) == pytest.approx((1, 2))


def test_one_width_says_nothing_of_growth_in_width() -> None:
    cells = [Cell("recurrent", n, 64, 1.0, 1e-6 * n) for n in (32, 128, 512, 2048)]
    assert fit(cells, "recurrent", lambda cell: cell.seconds) is None


def test_lines_cross_where_their_costs_are_equal() -> None:
    lengths = (32, 128, 512, 2048)
    cells = [Cell("self-attention", n, 64, 4.0 * n * n * 64, 1.0) for n in lengths]
    cells += [Cell("recurrent", n, 64, 16.0 * n * 64 * 64, 1.0) for n in lengths]
    assert crossing(cells, "self-attention", "recurrent", 64, lambda cell: cell.flops) == pytest.approx(256)
    assert crossing(cells[1:2] + cells[4:], "self-attention", "recurrent", 64, lambda cell: cell.flops) is None


def test_what_would_take_too_long_is_skipped_with_a_word() -> None:
    cells = list(measure((16, 65536), (64,), kinds=["self-attention"], budget=0.02))
    assert cells[0].seconds is not None
    assert cells[1].seconds is None
    assert "would take about" in cells[1].skipped


def test_memory_is_what_the_way_back_needs_and_no_weight() -> None:
    weight, x = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    assert kept_bytes(lambda: (x @ weight.t()).tanh()) == 8 * 8 * 4
