"""A call with wrong shapes is an error, whatever calls came before."""

from dataclasses import replace

import jaxtyping
import pytest
import torch
from jaxtyping import Float, Int
from tests.shape_checks import check_new_calls, outline
from torch import Tensor

from regard.nn.linear import apply_linear
from regard.nn.ragged import Layout


@check_new_calls
def mean(x_ND: Float[Tensor, "N D"], weight_N: Float[Tensor, " N"] | None = None) -> Float[Tensor, " D"]:
    return x_ND.mean(0) if weight_N is None else weight_N @ x_ND


@check_new_calls
def wrong(x_ND: Float[Tensor, "N D"], *, shapes: list[int]) -> Float[Tensor, "N D"]:
    return x_ND[: shapes[0]]


@check_new_calls
def both(pair: tuple[Float[Tensor, "N D"], Int[Tensor, " N"]], rows: list[Float[Tensor, " D"]]) -> int:
    return len(rows)


def test_arguments_that_do_not_fit_are_an_error_before_and_after_arguments_that_fit() -> None:
    for _ in range(2):
        for arguments in [(torch.ones(3, 2), torch.ones(4)), (torch.ones(3),), (torch.ones(3, 2).int(),)]:
            with pytest.raises(jaxtyping.TypeCheckError):
                mean(*arguments)
        assert mean(torch.ones(3, 2), torch.ones(3)).tolist() == [3, 3]
        assert mean(torch.ones(3, 2), weight_N=torch.ones(3)).tolist() == [3, 3]


def test_a_result_that_does_not_fit_is_an_error_after_one_that_fits() -> None:
    for _ in range(2):
        assert len(wrong(torch.ones(3, 2), shapes=[3])) == 3
        with pytest.raises(jaxtyping.TypeCheckError):
            wrong(torch.ones(3, 2), shapes=[2])


def test_tensors_in_tuples_and_lists_are_checked() -> None:
    fitting = torch.ones(3, 2), torch.ones(3).int()
    for _ in range(2):
        assert both(fitting, [torch.ones(2)]) == 1
        for pair, rows in [(fitting, [torch.ones(3)]), ((torch.ones(4, 2), fitting[1]), [torch.ones(2)])]:
            with pytest.raises(jaxtyping.TypeCheckError):
                both(pair, rows)


def test_values_that_an_annotation_distinguishes_have_different_outlines() -> None:
    tensors = [torch.ones(2), torch.ones(2, 1), torch.ones(2).int(), torch.nn.Parameter(torch.ones(2))]
    values = [*tensors, tensors, tuple(tensors), {"a": tensors[0]}, {"a": tensors[1]}, "a", "b", True, None, 1, int]
    outlines = list(map(outline, values))
    assert len(set(outlines)) == len(outlines)
    assert outlines == list(map(outline, values))


def test_layers_and_dataclasses_are_checked() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        apply_linear(torch.nn.Linear(2, 2), torch.ones(2, dtype=torch.int64), False)
    with pytest.raises(jaxtyping.TypeCheckError):
        replace(Layout.from_lengths([1, 2]), lengths_B=torch.ones(2))
