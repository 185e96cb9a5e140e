"""`Rows` behaves like a list of lists, without a Python loop over the rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import lists_from, rows_from

from regard.data.fields.nested import cut_parts, split_parts
from regard.data.rows import Rows, gather_slices, offsets_of
from regard.text import END

documents_of_ids = st.lists(st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=3), max_size=4), min_size=1)
lists_of_ids = st.lists(st.lists(st.integers(0, 60_000), max_size=12), min_size=1, max_size=10)


@given(lists_of_ids)
def test_rows_have_the_lengths_of_the_lists(lists: list[list[int]]) -> None:
    rows = rows_from(lists)
    assert len(rows) == len(lists)
    assert rows.lengths.tolist() == [len(ids) for ids in lists]


@given(lists_of_ids, st.integers(0, 9))
def test_a_token_is_appended_or_prepended_to_each_row(lists: list[list[int]], token: int) -> None:
    assert lists_from(rows_from(lists).append(token)) == [[*ids, token] for ids in lists]
    assert lists_from(rows_from(lists).prepend(token)) == [[token, *ids] for ids in lists]


@given(lists_of_ids, st.integers(1, 6))
def test_cut_keeps_the_beginning_of_each_row(lists: list[list[int]], longest: int) -> None:
    assert lists_from(rows_from(lists).cut(longest)) == [ids[:longest] for ids in lists]


@given(documents_of_ids, st.integers(1, 9))
def test_cut_parts_are_ended_and_hold_the_first_tokens(documents: list[list[list[int]]], longest: int) -> None:
    encoded = [[token for part in parts for token in [*part, END]] for parts in documents]
    cut = cut_parts(rows_from(encoded), longest)
    tokens, sizes = split_parts(cut)
    for ids, whole in zip(lists_from(cut), encoded, strict=True):
        assert ids == (whole[:longest] if not whole or whole[:longest][-1] == END else [*whole[:longest], END])
    assert [sum(counts) for counts in lists_from(sizes)] == tokens.lengths.tolist()
    assert (tokens.lengths <= longest).all()


@given(lists_of_ids, st.data())
def test_take_returns_the_rows_with_these_indices_in_this_order(lists: list[list[int]], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=15))
    assert lists_from(rows_from(lists).take(np.array(indices, np.int64))) == [lists[index] for index in indices]


@given(st.lists(lists_of_ids, min_size=1, max_size=4))
def test_concatenated_parts_follow_one_another(parts: list[list[list[int]]]) -> None:
    joined = Rows.concatenate([rows_from(part) for part in parts])
    assert lists_from(joined) == [row for part in parts for row in part]


@given(lists_of_ids)
def test_a_ragged_tensor_has_the_same_rows_and_is_a_copy(lists: list[list[int]]) -> None:
    rows = rows_from(lists)
    ragged = rows.to_ragged()
    assert [sequence.tolist() for sequence in ragged.to_list()] == lists
    ragged.values.zero_()
    assert lists_from(rows) == lists


@given(st.lists(st.integers(0, 99), min_size=1), st.data())
def test_gathered_slices_are_slices_of_the_values(values: list[int], data: st.DataObject) -> None:
    bounds = st.integers(0, len(values))
    slices = data.draw(st.lists(st.tuples(bounds, bounds).map(sorted), max_size=9))
    starts, stops = (np.array([bound[at] for bound in slices], np.int64) for at in (0, 1))
    gathered, offsets = gather_slices(np.array(values, np.uint16), starts, stops - starts)
    assert gathered.dtype == np.uint16
    assert [gathered[start:stop].tolist() for start, stop in pairwise(offsets.tolist())] == [
        values[start:stop] for start, stop in slices
    ]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_offsets_of_narrow_lengths_do_not_overflow(dtype: str) -> None:
    lengths = np.full(3, 2**30, np.int64).astype(dtype)
    assert offsets_of(lengths).tolist() == [0, 2**30, 2**31, 3 * 2**30]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_numbers_that_are_no_ids_keep_their_type(dtype: str) -> None:
    rows = Rows(np.arange(12).astype(dtype), np.array([0, 6, 12]))
    for same in (rows.take(np.array([1, 0])), rows.append(7), rows.cut(2), Rows.concatenate([rows, rows])):
        assert same.ids.dtype == dtype
    assert str(rows.to_ragged().values.dtype) == f"torch.{dtype}"
    assert [values.tolist() for values in rows.to_ragged().to_list()] == [list(range(6)), list(range(6, 12))]
    tensor = rows.to_tensor(2, 3)
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    tensor.zero_()
    assert rows.ids[-1] == 11


def test_rows_of_other_sizes_are_no_tensor() -> None:
    with pytest.raises(ValueError, match=r"rows of \[1, 2\] values cannot be arrays of the shape \(2, 1\)"):
        rows_from([[1], [2, 3]]).to_tensor(2, 1)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(200, 900)), max_size=6))
def test_long_slices_are_gathered_like_short_ones(slices: list[tuple[int, int]]) -> None:
    values = np.random.default_rng(1).integers(0, 255, 6000, np.uint8)
    starts, lengths = (np.array([entry[at] for entry in slices], np.int64) for at in (0, 1))
    gathered, offsets = gather_slices(values, starts, lengths)
    assert gathered.dtype == np.uint8
    assert offsets.tolist() == [0, *np.cumsum(lengths).tolist()]
    expected = [values[start : start + length] for start, length in slices]
    np.testing.assert_array_equal(gathered, np.concatenate([*expected, np.zeros(0, np.uint8)]))
