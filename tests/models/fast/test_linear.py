"""Packed linear layers say what torch's own say, however few the rows are."""

from copy import copy

import pytest
import torch
from torch.nn import functional

from regard.models.fast.linear import CACHE, FEW, SMALL, Packed, fill_up, pack
from regard.models.fast.script import compiled


@pytest.mark.parametrize("rows", range(1, FEW + 2))
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_few_rows_are_filled_up_and_say_the_same(precision: str, rows: int) -> None:
    torch.manual_seed(rows)
    weight, bias = torch.randn(SMALL // 128 + 1, 128), torch.randn(SMALL // 128 + 1)
    layer = pack(weight, bias, "float32" if precision == "float32" else "bfloat16")
    assert isinstance(layer, Packed)
    layer.few = FEW
    dtype, near = (torch.float32, 1e-3) if precision == "float32" else (torch.bfloat16, 0.5)
    x_ND, y_NF = torch.randn(rows, 128).to(dtype), torch.randn(rows, weight.shape[0]).to(dtype)
    expected_NF = functional.linear(x_ND.float(), weight.to(dtype).float(), bias.to(dtype).float())
    for made in (layer, compiled(layer)):
        torch.testing.assert_close(made(x_ND).float(), expected_NF, atol=near, rtol=0.02)
    torch.testing.assert_close(layer.relu(x_ND).float(), expected_NF.relu(), atol=near, rtol=0.02)
    torch.testing.assert_close(layer.add(x_ND, y_NF.clone()).float(), expected_NF + y_NF.float(), atol=near, rtol=0.02)


@pytest.mark.parametrize(("many", "few"), [(1, 1), (CACHE // (4 * SMALL), FEW)])
def test_rows_are_filled_up_where_weights_do_not_stay_near_the_processor(many: int, few: int) -> None:
    layer = Packed(torch.zeros(SMALL // 64 + 1, 64), None)
    layers = torch.nn.ModuleList([copy(layer) for _ in range(many)])
    fill_up(layers)
    assert {each.few for each in layers} == {few}
