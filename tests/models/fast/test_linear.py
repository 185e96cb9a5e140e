"""Packed linear layers say what torch's own say, however few the rows are."""

import pytest
import torch
from torch.nn import functional

from regard.models.fast.linear import FEW, SMALL, Packed, pack
from regard.models.fast.script import compiled


@pytest.mark.parametrize("rows", range(1, FEW + 2))
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_few_rows_are_filled_up_and_say_the_same(precision: str, rows: int) -> None:
    torch.manual_seed(rows)
    weight, bias = torch.randn(SMALL // 128 + 1, 128), torch.randn(SMALL // 128 + 1)
    layer = pack(weight, bias, "float32" if precision == "float32" else "bfloat16")
    assert isinstance(layer, Packed)
    dtype, near = (torch.float32, 1e-3) if precision == "float32" else (torch.bfloat16, 0.5)
    x_ND, y_NF = torch.randn(rows, 128).to(dtype), torch.randn(rows, weight.shape[0]).to(dtype)
    expected_NF = functional.linear(x_ND.float(), weight.to(dtype).float(), bias.to(dtype).float())
    for made in (layer, compiled(layer)):
        torch.testing.assert_close(made(x_ND).float(), expected_NF, atol=near, rtol=0.02)
    torch.testing.assert_close(layer.relu(x_ND).float(), expected_NF.relu(), atol=near, rtol=0.02)
    torch.testing.assert_close(layer.add(x_ND, y_NF.clone()).float(), expected_NF + y_NF.float(), atol=near, rtol=0.02)
