"""Batches move, split and fill as their attributes declare."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.data.batch import Batch, example_index, per_sequence, per_token, sequences
from regard.nn.ragged import Ragged

IGNORED = -100
FILL = 7


@dataclass(frozen=True, eq=False)
class TaggedBatch(Batch):
    """Words with a tag each, a second text, and a label and a weight vector for each example."""

    words: Ragged = sequences()
    tags_N: Tensor = per_token("words", fill=IGNORED)
    context: Ragged = sequences(fill=FILL)
    label_B: Tensor = per_sequence(fill=IGNORED)
    weights_B2: Tensor = per_sequence(fill=0.0)
    index_B: Tensor = example_index()

    @property
    def units(self) -> int:
        """The number of tags."""
        return self.words.tokens


Example = tuple[list[int], list[int], list[int], int, list[float], int]
"""Words, tags, context, label, weights and index of one example."""

lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12)


def batch_of(sizes: list[tuple[int, int]]) -> TaggedBatch:
    words = [list(range(10 * number, 10 * number + size)) for number, (size, _) in enumerate(sizes)]
    context = [list(range(500, 500 + size)) for _, size in sizes]
    count = len(sizes)
    return TaggedBatch(
        Ragged.from_list(words),
        torch.tensor([word + 1000 for row in words for word in row], dtype=torch.int64),
        Ragged.from_list(context),
        torch.arange(count) + 30,
        torch.arange(2 * count, dtype=torch.float32).reshape(count, 2),
        torch.arange(count) + 70,
    )


def examples(batch: TaggedBatch, count: int | None = None) -> list[Example]:
    """The first `count` examples of a batch, one by one."""
    rows = zip(
        batch.words.to_list(),
        batch.words.with_values(batch.tags_N).to_list(),
        batch.context.to_list(),
        batch.label_B,
        batch.weights_B2,
        strict=True,
    )
    listed = [tuple(value.tolist() for value in row) for row in rows][:count]
    return [(*row, number) for row, number in zip(listed, batch.index_B.tolist(), strict=True)]


def test_a_batch_knows_its_size() -> None:
    batch = batch_of([(3, 0), (2, 5)])
    assert len(batch) == 2
    assert batch.units == 5
    assert batch.static_size == (2, 5, 3, 5, 5)


def test_all_attributes_move_to_another_device() -> None:
    moved = batch_of([(3, 0), (2, 5)]).to("meta")
    assert isinstance(moved, TaggedBatch)
    assert {tensor.device.type for tensor in [*moved.tensors(), moved.index_B]} == {"meta"}
    assert moved.static_size == (2, 5, 3, 5, 5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs CUDA")
def test_all_attributes_are_pinned() -> None:
    pinned = batch_of([(3, 0), (2, 5)]).pin_memory()
    assert all(tensor.is_pinned() for tensor in [*pinned.tensors(), pinned.index_B])


def test_tensors_are_what_the_model_reads_in_a_fixed_order() -> None:
    batch = batch_of([(3, 0), (2, 5)])
    expected = [
        batch.words.values,
        batch.words.offsets,
        batch.tags_N,
        batch.context.values,
        batch.context.offsets,
        batch.label_B,
        batch.weights_B2,
    ]
    assert [id(tensor) for tensor in batch.tensors()] == [id(tensor) for tensor in expected]


@given(lengths)
def test_a_batch_over_copied_tensors_is_an_equal_batch(sizes: list[tuple[int, int]]) -> None:
    batch = batch_of(sizes)
    copy = batch.with_tensors([tensor.clone() for tensor in batch.tensors()])
    assert examples(copy) == examples(batch)
    assert copy.static_size == batch.static_size
    assert copy.words.position_N.tolist() == batch.words.position_N.tolist()
    assert copy.words.sequence_N.tolist() == batch.words.sequence_N.tolist()


def test_a_batch_over_other_tensors_reads_their_values() -> None:
    first, second = batch_of([(3, 4), (2, 1)]), batch_of([(2, 3), (3, 2)])
    assert examples(first.with_tensors(second.tensors())) == examples(second)


@given(lengths, st.integers(1, 15))
def test_the_parts_of_a_batch_have_all_its_examples_in_order(sizes: list[tuple[int, int]], count: int) -> None:
    batch = batch_of(sizes)
    parts = batch.split(count)
    assert 1 <= len(parts) <= count
    assert min(map(len, parts)) >= 1
    assert [example for part in parts for example in examples(part)] == examples(batch)
    assert sum(part.units for part in parts) == batch.units
    assert all(part.words.longest == max(part.words.lengths_B.tolist()) for part in parts)


def test_the_parts_of_a_large_batch_have_about_equally_many_tokens() -> None:
    draw = np.random.default_rng(3)
    batch = batch_of([(int(words), int(context)) for words, context in draw.integers(1, 9, (300, 2))])
    tokens = [part.words.tokens + part.context.tokens for part in batch.split(4)]
    assert len(tokens) == 4
    assert max(tokens) - min(tokens) <= 32


@dataclass(frozen=True, eq=False)
class LabelledBatch(Batch):
    """Texts, which may have no tokens at all, and their labels."""

    text: Ragged = sequences()
    label_B: Tensor = per_sequence(fill=IGNORED)

    @property
    def units(self) -> int:
        """The number of labels."""
        return len(self)


@pytest.mark.parametrize("sizes", [[0], [0, 0, 0], [2, 0, 0], [0, 2, 0, 3, 0]])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_splitting_loses_no_example_without_tokens(sizes: list[int], count: int) -> None:
    texts = Ragged.from_list([torch.arange(size) for size in sizes])
    parts = LabelledBatch(texts, torch.arange(len(sizes))).split(count)
    assert torch.cat([part.label_B for part in parts]).tolist() == list(range(len(sizes)))
    assert min(map(len, parts)) >= 1


@given(lengths, st.integers(0, 200), st.integers(8, 20))
def test_a_filled_batch_has_the_size_asked_for_and_ignores_the_filling(
    sizes: list[tuple[int, int]], room: int, more: int
) -> None:
    batch = batch_of(sizes)
    tokens = max(batch.words.tokens, batch.context.tokens) + room
    # A sequence of filling has up to 12 tokens, the announced longest.
    count = len(batch) + more + -(-tokens // 12)
    filled = batch.filled(tokens, count, longest=12)
    assert filled.static_size == (count, tokens, 12, tokens, 12)
    assert examples(filled, len(batch)) == examples(batch)
    filling = slice(len(batch), None)
    assert set(filled.label_B[filling].tolist()) == {IGNORED}
    assert filled.weights_B2[filling].abs().sum() == 0
    assert set(filled.tags_N[batch.words.tokens :].tolist()) <= {IGNORED}
    assert set(filled.context.values[batch.context.tokens :].tolist()) <= {FILL}
    assert filled.index_B.tolist() == batch.index_B.tolist()
    assert len(filled.label_B) == len(filled.weights_B2) == count
    assert len(filled.tags_N) == tokens


@given(lengths, st.integers(1, 16))
def test_a_rounded_batch_has_multiples_of_the_block_and_at_most_one_sequence_more(
    sizes: list[tuple[int, int]], block: int
) -> None:
    batch = batch_of(sizes)
    rounded = batch.rounded(block)
    assert rounded.words.tokens % block == rounded.context.tokens % block == 0
    assert len(rounded.words) == len(rounded.context) == len(rounded.label_B)
    assert len(rounded) - len(batch) in (0, 1)
    assert rounded.words.tokens - batch.words.tokens <= block
    assert examples(rounded, len(batch)) == examples(batch)
    assert set(rounded.tags_N[batch.words.tokens :].tolist()) <= {IGNORED}
    assert set(rounded.label_B[len(batch) :].tolist()) <= {IGNORED}


def test_a_batch_of_round_sizes_stays_as_it_is() -> None:
    batch = batch_of([(3, 4), (5, 4)])
    assert batch.rounded(4) is batch


def test_a_batch_too_large_for_the_size_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be filled to 17 tokens"):
        batch_of([(9, 9), (9, 9)]).filled(17, 30, longest=12)


@dataclass(frozen=True, eq=False)
class PictureBatch(Batch):
    """Pictures with labels, and no sequence of tokens."""

    image_BCHW: Tensor = per_sequence(fill=0)
    label_B: Tensor = per_sequence(fill=IGNORED)
    index_B: Tensor = example_index()

    @property
    def units(self) -> int:
        """The number of pictures."""
        return len(self)


@dataclass(frozen=True, eq=False)
class DescribedBatch(Batch):
    """Pictures with captions."""

    image_BCHW: Tensor = per_sequence(fill=0)
    caption: Ragged = sequences()

    @property
    def units(self) -> int:
        """The number of tokens."""
        return self.caption.tokens


def pictures(count: int) -> Tensor:
    """Pictures of the shape (2, 3, 4), in bytes."""
    return torch.arange(count * 24).reshape(count, 2, 3, 4).to(torch.uint8)


@given(st.integers(1, 9), st.integers(1, 12))
def test_pictures_without_tokens_are_split_evenly(size: int, count: int) -> None:
    batch = PictureBatch(pictures(size), torch.arange(size), torch.arange(size))
    assert (len(batch), batch.static_size) == (size, (size,))
    parts = batch.split(count)
    assert torch.equal(torch.cat([part.image_BCHW for part in parts]), batch.image_BCHW)
    assert torch.cat([part.label_B for part in parts]).tolist() == list(range(size))
    assert len(parts) == min(size, count)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_pictures_stay_bytes_when_they_move_and_are_filled_up() -> None:
    batch = PictureBatch(pictures(3), torch.arange(3), torch.arange(3))
    assert batch.to("meta").image_BCHW.dtype == torch.uint8
    filled = batch.filled(tokens=100, sequences=5, longest=9)
    assert filled.image_BCHW.dtype == torch.uint8
    assert filled.image_BCHW.shape == (5, 2, 3, 4)
    assert torch.equal(filled.image_BCHW[:3], batch.image_BCHW)
    assert filled.image_BCHW[3:].sum() == 0
    assert filled.label_B.tolist() == [0, 1, 2, IGNORED, IGNORED]
    assert filled.static_size == (5,)
    assert batch.rounded(8) is batch
    assert [id(tensor) for tensor in batch.tensors()] == [id(batch.image_BCHW), id(batch.label_B)]
    copy = filled.with_tensors([tensor.clone() for tensor in filled.tensors()])
    assert torch.equal(copy.image_BCHW, filled.image_BCHW)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 7))
def test_pictures_go_with_their_captions(sizes: list[int], block: int) -> None:
    captions = Ragged.from_list([torch.full((size,), number) for number, size in enumerate(sizes)])
    batch = DescribedBatch(pictures(len(sizes)), captions)
    parts = batch.split(3)
    assert torch.equal(torch.cat([part.image_BCHW for part in parts]), batch.image_BCHW)
    assert [len(part.caption) for part in parts] == [len(part.image_BCHW) for part in parts]
    rounded = batch.rounded(block)
    assert len(rounded.caption) == len(rounded.image_BCHW)
    assert torch.equal(rounded.image_BCHW[: len(sizes)], batch.image_BCHW)
