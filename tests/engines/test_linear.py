"""Packed linear layers compute what torch's own compute, for any number of rows."""

from copy import copy

import pytest
import torch
from torch.nn import functional

from regard.engines.indexed_layers import compile_script
from regard.engines.linear import (
    CACHE,
    FEW,
    MANY,
    SMALL,
    OneDNNLinear,
    TransposedLinear,
    pack,
    pack_output,
    pad_few_rows,
)

needs_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has no bfloat16 kernels for this processor"
)


@pytest.mark.parametrize("rows", range(1, FEW + 2))
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
def test_padding_few_rows_changes_no_result(precision: str, rows: int) -> None:
    torch.manual_seed(rows)
    weight, bias = torch.randn(SMALL // 128 + 1, 128), torch.randn(SMALL // 128 + 1)
    layer = pack(weight, bias, "float32" if precision == "float32" else "bfloat16")
    assert isinstance(layer, OneDNNLinear)
    layer.min_rows = FEW
    dtype, near = (torch.float32, 1e-3) if precision == "float32" else (torch.bfloat16, 0.5)
    x_ND, y_NF = torch.randn(rows, 128).to(dtype), torch.randn(rows, weight.shape[0]).to(dtype)
    expected_NF = functional.linear(x_ND.float(), weight.to(dtype).float(), bias.to(dtype).float())
    for made in (layer, compile_script(layer)):
        torch.testing.assert_close(made(x_ND).float(), expected_NF, atol=near, rtol=0.02)
    torch.testing.assert_close(layer.relu(x_ND).float(), expected_NF.relu(), atol=near, rtol=0.02)
    torch.testing.assert_close(layer.add(x_ND, y_NF.clone()).float(), expected_NF + y_NF.float(), atol=near, rtol=0.02)


@pytest.mark.parametrize(("many", "min_rows"), [(1, 1), (CACHE // (4 * SMALL), FEW)])
def test_few_rows_are_padded_where_the_weights_do_not_fit_in_the_cache(many: int, min_rows: int) -> None:
    layer = OneDNNLinear(torch.zeros(SMALL // 64 + 1, 64), None)
    layers = torch.nn.ModuleList([copy(layer) for _ in range(many)])
    pad_few_rows(layers)
    assert {layer.min_rows for layer in layers} == {min_rows}


@pytest.mark.parametrize("bias", [True, False])
def test_a_transposed_weight_gives_the_same_result(bias: bool) -> None:
    torch.manual_seed(0)
    weight, bias_F = torch.randn(24, 16), torch.randn(24) if bias else None
    layer, x_ND, y_NF = pack(weight, bias_F, "float32"), torch.randn(5, 16), torch.randn(5, 24)
    assert isinstance(layer, TransposedLinear)
    expected_NF = functional.linear(x_ND, weight, bias_F)
    torch.testing.assert_close(layer(x_ND), expected_NF)
    torch.testing.assert_close(layer.relu(x_ND), expected_NF.relu())
    torch.testing.assert_close(layer.add(x_ND, y_NF.clone()), expected_NF + y_NF)


def test_the_output_layer_gives_the_same_for_many_rows_as_for_few() -> None:
    torch.manual_seed(0)
    weight, bias, x_ND = torch.randn(512, 32), torch.randn(512), torch.randn(MANY, 32)
    x_ND[0, :2] = torch.tensor([-5.0, 5.0])  # in both, so that inputs have the same range
    layer = compile_script(pack_output(weight, bias, "int8"))
    many_NF, few_NF = layer(x_ND), layer(x_ND[:-1])
    torch.testing.assert_close(many_NF[:-1], few_NF, atol=0.2, rtol=0)
    torch.testing.assert_close(many_NF, functional.linear(x_ND, weight, bias), atol=0.7, rtol=0)
