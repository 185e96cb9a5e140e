import subprocess
from itertools import chain

import numpy as np
import pytest
import torch
import torch._dynamo
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.ragged import Layout, NestedRagged, Ragged

lengths_of_a_batch = st.lists(st.one_of(st.just(0), st.just(1), st.integers(0, 40)), min_size=1, max_size=12)


def batch_of(lengths: list[int], width: int = 3) -> Ragged:
    """A batch of distinct values, so that a misplaced token is noticed."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = torch.arange(1, sum(lengths) * width + 1, dtype=torch.float64).reshape(-1, width)
    return Ragged.from_arrays(values, offsets)


@given(lengths_of_a_batch)
def test_padding_and_unpadding_returns_the_same_batch(lengths: list[int]) -> None:
    batch = batch_of(lengths)
    assert torch.equal(batch.layout.unpad(batch.to_padded(-1)), batch.values)


@given(lengths_of_a_batch)
def test_a_padded_row_holds_its_sequence_and_then_only_padding(lengths: list[int]) -> None:
    batch = batch_of(lengths)
    padded = batch.to_padded(-1)
    assert padded.shape == (len(lengths), max(lengths), 3)
    for row, sequence, length in zip(padded, batch.to_list(), lengths, strict=True):
        assert torch.equal(row[:length], sequence)
        assert bool((row[length:] == -1).all())


@given(lengths_of_a_batch)
def test_every_token_knows_its_sequence_and_its_position(lengths: list[int]) -> None:
    batch = batch_of(lengths)
    expected = [(number, position) for number, length in enumerate(lengths) for position in range(length)]
    assert list(zip(batch.sequence_N.tolist(), batch.position_N.tolist(), strict=True)) == expected
    assert batch.lengths_B.tolist() == lengths
    assert (len(batch), batch.tokens, batch.longest) == (len(lengths), sum(lengths), max(lengths))


@given(lengths_of_a_batch)
def test_a_list_of_sequences_survives_a_round_trip(lengths: list[int]) -> None:
    sequences = batch_of(lengths).to_list()
    again = Ragged.from_list(sequences).to_list()
    assert len(again) == len(sequences)
    assert all(map(torch.equal, again, sequences))


@given(lengths_of_a_batch)
def test_lengths_and_offsets_describe_the_same_layout(lengths: list[int]) -> None:
    layout = Layout.from_lengths(lengths)
    assert torch.equal(layout.offsets, batch_of(lengths).offsets)


def test_lists_of_ids_become_int64_and_may_be_empty() -> None:
    batch = Ragged.from_list([[5, 6], [], [7]])
    assert batch.values.dtype == torch.int64
    assert batch.to_padded(0).tolist() == [[5, 6], [0, 0], [7, 0]]


def test_other_values_share_the_layout() -> None:
    batch = batch_of([2, 0, 3])
    other = batch.with_values(torch.zeros(5))
    assert other.layout is batch.layout
    assert other.position_N is batch.position_N


def test_a_batch_already_on_the_device_keeps_its_layout() -> None:
    batch = batch_of([2, 0, 3])
    assert batch.to("cpu").layout is batch.layout


def test_a_layout_moves_to_another_device_without_reading_its_values() -> None:
    moved = batch_of([2, 0, 3]).to("meta")
    assert {moved.values.device.type, moved.sequence_N.device.type, moved.lengths_B.device.type} == {"meta"}
    assert (moved.tokens, moved.longest, len(moved)) == (5, 3, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs CUDA")
def test_a_pinned_batch_is_copied_to_the_device() -> None:
    batch = batch_of([2, 0, 3])
    moved = batch.pin_memory().to("cuda", non_blocking=True)
    assert batch.pin_memory().values.is_pinned()
    assert torch.equal(moved.to_padded().cpu(), batch.to_padded())
    assert torch.equal(moved.position_N.cpu(), batch.position_N)


def test_gradients_flow_through_padding_and_unpadding() -> None:
    batch = batch_of([2, 0, 3])
    values = batch.values.clone().requires_grad_()
    total = batch.layout.unpad(batch.with_values(values).to_padded() ** 2).sum()
    (gradient,) = torch.autograd.grad(total, values)
    torch.testing.assert_close(gradient, 2 * batch.values)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (np.array([0]), "at least one sequence"),
        (np.array([], np.int64), "at least one sequence"),
        (np.array([1, 5]), "first offset must be 0, got 1"),
        (np.array([0, 4, 3, 5]), "offset 2 is 3 after 4"),
        (np.array([0, 4]), "got 5 values for a layout of 4 tokens"),
        (np.array([0, 6]), "got 5 values for a layout of 6 tokens"),
        (np.array([0.0, 5.0]), "got float64"),
        (np.array([0, 5], np.uint16), "got uint16"),
        (np.array([[0, 5]]), r"got shape \(1, 2\)"),
    ],
)
def test_invalid_offsets_are_an_error_that_says_why(offsets: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ragged.from_arrays(torch.zeros(5), offsets)


def test_a_batch_with_more_tokens_than_int32_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 2147483647 tokens, got 2147483648"):
        Layout.from_offsets(np.array([0, 2**31]))


def test_a_negative_length_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="sequence 1 has -2"):
        Layout.from_lengths([3, -2])


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        Ragged.from_list(list[list[int]]())


def double_each_sequences_mean(batch: Ragged) -> tuple[Ragged, torch.Tensor]:
    """A function that uses padding, positions, sequence numbers and lengths."""
    moved = batch.with_values(batch.values * 2 + batch.position_N[:, None])
    padded_BTD = moved.to_padded()
    mean_BD = padded_BTD.sum(1) / batch.lengths_B[:, None].clamp(min=1)
    return moved.with_values(batch.layout.unpad(padded_BTD) - mean_BD[batch.sequence_N]), mean_BD


def graphs_compiled_for(batches: list[Ragged]) -> int:
    """Run the batches through one compiled function, compare each with the plain one, and count its graphs."""
    compiled = torch.compile(double_each_sequences_mean, backend="aot_eager", fullgraph=True, dynamic=True)
    for batch in batches:
        result, mean_BD = compiled(batch)
        expected, expected_mean_BD = double_each_sequences_mean(batch)
        torch.testing.assert_close(result.values, expected.values)
        torch.testing.assert_close(mean_BD, expected_mean_BD)
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def test_batches_of_every_size_share_one_compiled_graph(python: str) -> None:
    # In a separate process, because the wrappers that check shapes under pytest cannot be compiled.
    done = subprocess.run([python, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1"


if __name__ == "__main__":
    print(
        graphs_compiled_for(
            [batch_of(lengths) for lengths in ([6, 1, 2, 1], [5, 0, 1, 9, 7], [2] * 7, [30, 4], [0, 6, 1])]
        )
    )


def test_a_repeated_batch_equals_one_built_from_the_repeated_list() -> None:
    batch = Ragged.from_list([[3, 4], [], [5]])
    repeated, expected = batch.repeated(), Ragged.from_list([[3, 4], [], [5], [3, 4], [], [5]])
    assert torch.equal(repeated.values, expected.values)
    for name in ("lengths_B", "offsets", "sequence_N", "position_N"):
        assert torch.equal(getattr(repeated.layout, name), getattr(expected.layout, name)), name
    assert repeated.longest == expected.longest


PARTS = st.lists(st.lists(st.lists(st.integers(1, 99), max_size=4), max_size=4), min_size=1, max_size=5)


@given(PARTS, st.integers(0, 5))
def test_the_parts_of_a_nested_batch_are_those_of_its_lists(batch: list[list[list[int]]], filler: int) -> None:
    nested = NestedRagged.from_list(batch)
    filled = NestedRagged(
        Ragged.from_list([*([*chain(*parts)] for parts in batch), [1] * filler]),
        Ragged.from_list([*([len(part) for part in parts] for parts in batch), [0] * filler]),
    )
    # The filling stands in the middle of what is repeated.
    for nested_batch, lists in (
        (nested, batch),
        (nested.repeated(), 2 * batch),
        (filled, [*batch, []]),
        (filled.repeated(), 2 * [*batch, []]),
    ):
        parts, members, layout = nested_batch.parts()
        kept = [[part for part in parts if part] for parts in lists]
        assert [part.tolist() for part in parts.to_list() if len(part)] == list(chain(*kept))
        assert len(parts) == max(1, sum(map(len, kept)))
        assert members.lengths_B.tolist() == list(map(len, kept))
        assert layout.lengths_B.tolist() == [sum(map(len, parts)) for parts in kept]


def test_parts_that_are_longer_than_their_sequence_are_an_error() -> None:
    with pytest.raises(ValueError, match="the parts of sequence 1 have 3 tokens together, but it has 2"):
        NestedRagged(Ragged.from_list([[1], [2, 3]]), Ragged.from_list([[1], [1, 2]])).parts()


def test_a_nested_batch_needs_the_parts_of_each_sequence() -> None:
    with pytest.raises(ValueError, match="parts of 1 sequences for 2 sequences"):
        NestedRagged(Ragged.from_list([[1], [2]]), Ragged.from_list([[1]]))
