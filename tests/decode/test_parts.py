"""Parts of the search: top-k over blocks, the trellis, length limits and checks of options."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.test_beam import PLAIN

from regard.decode import LengthLimits, SamplingOptions, SentenceOptions
from regard.decode.topk import BLOCK, greatest, top
from regard.decode.trellis import ROOT, Trellis

sizes = st.one_of(st.integers(1, 40), st.integers(1000, 1200), st.sampled_from([16 * BLOCK, 20 * BLOCK - 1]))


@given(st.integers(1, 3), st.integers(1, 4), sizes, st.integers(1, 12), st.integers(0, 1000))
def test_top_k_over_blocks_equals_top_k_over_the_whole_row(beams: int, rows: int, size: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(beams * rows, size + 9, generator=generator)[:, :size]  # part of a wider table
    values[torch.rand(values.shape, generator=generator) < 0.3] = -torch.inf
    added = torch.randn(beams, rows, generator=generator, dtype=torch.float64)
    added[0, -1] = -torch.inf
    sums = (values.reshape(beams, rows, size) + added[:, :, None]).flatten(1)
    best, value, row, column = top(values, added, k)
    assert torch.equal(best, sums.topk(min(k, rows * size)).values)
    assert torch.equal(sums.gather(1, row * size + column), best)
    assert torch.equal(values.reshape(beams, -1).gather(1, row * size + column), value)
    value, column = greatest(values)
    assert torch.equal(value, values.amax(1))
    assert torch.equal(values.gather(1, column[:, None])[:, 0], value)


def test_a_trellis_traces_a_row_back_to_its_tokens_and_scores() -> None:
    trellis = Trellis(2, "cpu")
    score = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    trellis.push(torch.tensor([0, 0]), torch.tensor([5, 6]), score)
    assert trellis.trace(1, 1) == ((6,), (-2.0,))
    trellis.push(torch.tensor([1, 0]), torch.tensor([7, 8]), score)
    trellis.renumber(torch.tensor([1, ROOT, 0]))
    trellis.push(torch.tensor([2, 1, 0]), torch.tensor([1, 2, 3]), torch.zeros(3, dtype=torch.float64))
    assert trellis.trace(trellis.last, 0)[0] == (6, 7, 1)
    assert trellis.trace(trellis.last, 1)[0] == (2,)
    assert trellis.trace(trellis.last, 2)[0] == (5, 8, 3)
    trellis.drop(3)
    assert trellis.trace(trellis.last, 1)[0] == (2,)


def test_relative_length_limits_leave_space_for_prefix_and_constraints() -> None:
    limits = LengthLimits(minimum=1, maximum=20, min_ratio=0.5, max_ratio=1.5, max_extra=2)
    assert limits.bounds(SentenceOptions(source_length=4)) == (2, 8)
    assert limits.bounds(SentenceOptions(source_length=0)) == (1, 2)
    assert limits.bounds(SentenceOptions(source_length=100)) == (20, 20)
    assert limits.bounds(SentenceOptions(source_length=1, prefix=(2, 3), constraints=((4, 5), (6,)))) == (1, 5)
    assert LengthLimits(maximum=9).bounds(SentenceOptions(source_length=1)) == (0, 9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"beam": 4, "groups": 3}, "4 is no multiple of 3"),
        ({"beam": 0}, "beam must be an integer of at least 1, but is 0"),
        ({"nbest": 9}, "a beam of 3 cannot give 9 outputs"),
        ({"banned": (1,)}, "the end symbol 1 is banned"),
        ({"coverage_penalty": -1.0}, "coverage_penalty must be a number of at least 0"),
        ({"sampling": SamplingOptions(), "nbest": 2, "groups": 3}, "groups apply to beam search"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a number above 0"),
        ({"top_k": 0}, "top_k must be an integer of at least 1"),
        ({"top_p": 0.0}, "top_p must be a number above 0 and of at most 1"),
        ({"min_p": 1.5}, "min_p must be"),
    ],
)
def test_invalid_sampling_options_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingOptions(**changed)


def test_contradictory_length_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="0 <= minimum <= maximum"):
        LengthLimits(minimum=5, maximum=3)
    with pytest.raises(ValueError, match="must not be negative"):
        LengthLimits(max_ratio=-1.0)
