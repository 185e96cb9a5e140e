"""Layers have the FLOPs, paths and sequential operations that are reported for them."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.analysis.complexity import LayerCost, crossover_length, fit, measure, saved_bytes
from regard.analysis.layers import KERNEL, KINDS, LayerKind, make_pass, matmul_flops
from regard.analysis.paths import inputs_reached, path_length, sequential_operations


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "recurrent"])
def test_flops_equal_the_count_of_torch(kind: LayerKind) -> None:
    once = make_pass(kind, 48, 64, torch.device("cpu"))
    # Only the plain kernel shows its products to the counter.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        once()
    assert counter.get_total_flops() == matmul_flops(kind, 48, 64)


def test_flops_of_a_recurrence_are_those_of_its_cell() -> None:
    cell, x, state = torch.nn.LSTMCell(64, 64), torch.randn(1, 64), torch.zeros(1, 64)
    with FlopCounterMode(display=False) as counter:
        cell(x, (state, state))
    assert 48 * counter.get_total_flops() == matmul_flops("recurrent", 48, 64)


def test_only_a_recurrence_has_more_sequential_operations_for_longer_sequences() -> None:
    grown = {kind: sequential_operations(kind, 16) - sequential_operations(kind, 8) for kind in KINDS}
    assert {kind for kind, more in grown.items() if more} == {"recurrent"}
    assert sequential_operations("recurrent", 16) == 16


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [
        ("self-attention", (1, 1)),
        ("restricted self-attention", (4, 8)),
        ("recurrent", (9, 17)),
        ("convolutional", (8, 16)),
    ],
)
def test_the_longest_path_has_the_expected_length(kind: LayerKind, lengths: tuple[int, int]) -> None:
    assert (path_length(kind, 9), path_length(kind, 17)) == lengths


def test_dilated_convolutions_reach_all_inputs_after_a_logarithmic_number_of_layers() -> None:
    assert [path_length("convolutional", KERNEL**power, dilated=True) for power in (1, 2, 3)] == [1, 2, 3]


def test_each_convolution_reaches_one_more_neighbour() -> None:
    assert [sum(inputs_reached("convolutional", 9, layers)) for layers in (1, 2, 3)] == [2, 3, 4]


def test_the_fit_recovers_the_exponents_of_a_power_law() -> None:
    costs = [LayerCost("recurrent", n, d, 1.0, 3e-9 * n * d**2) for n in (32, 128, 512, 2048) for d in (64, 256, 1024)]
    law = fit(costs, "recurrent", lambda cost: cost.seconds)
    assert law is not None
    assert (law.in_length, law.in_width) == pytest.approx((1, 2))


def test_a_single_width_gives_no_fit() -> None:
    costs = [LayerCost("recurrent", n, 64, 1.0, 1e-6 * n) for n in (32, 128, 512, 2048)]
    assert fit(costs, "recurrent", lambda cost: cost.seconds) is None


def test_the_crossover_is_where_costs_are_equal() -> None:
    lengths = (32, 128, 512, 2048)
    costs = [LayerCost("self-attention", n, 64, 4.0 * n * n * 64, 1.0) for n in lengths]
    costs += [LayerCost("recurrent", n, 64, 16.0 * n * 64 * 64, 1.0) for n in lengths]
    assert crossover_length(costs, "self-attention", "recurrent", 64, lambda cost: cost.flops) == pytest.approx(256)
    assert crossover_length(costs[1:2] + costs[4:], "self-attention", "recurrent", 64, lambda cost: cost.flops) is None


def test_a_pass_that_would_take_too_long_is_skipped_with_a_reason() -> None:
    costs = list(measure((16, 65536), (64,), kinds=["self-attention"], budget=0.02))
    assert costs[0].seconds is not None
    assert costs[1].seconds is None
    assert "would take about" in costs[1].skipped


def test_saved_bytes_exclude_weights_and_input() -> None:
    weight, x = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    assert saved_bytes(lambda: (x @ weight.t()).tanh()) == 8 * 8 * 4
