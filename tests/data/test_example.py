import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example import Batch, Rows, prepare
from regard.text import END, PAD, START, UNK

rows_of_ids = st.lists(st.lists(st.integers(4, 60_000), max_size=12), min_size=1, max_size=10)


def rows_from(lists: list[list[int]]) -> Rows:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return Rows(np.array([number for each in lists for number in each], np.int32), offsets)


def lists_from(rows: Rows) -> list[list[int]]:
    return [rows.ids[start:stop].tolist() for start, stop in zip(rows.offsets, rows.offsets[1:], strict=False)]


def batch_from(source: list[list[int]], target: list[list[int]]) -> Batch:
    return prepare(rows_from(source), rows_from(target), np.arange(len(source)))


def test_the_six_steps_of_the_lecture_on_its_own_vocabulary() -> None:
    # "Dataset Batch Preparation": the lecture numbers its symbols so; ours are reserved first, the words keep theirs.
    vocabulary = {"<SOS>": 0, "<EOS>": 99, "<UNK>": 1, "<PAD>": 3, "the": 42, "is": 16, "sky": 7, "blue": 12}
    theirs = {START: "<SOS>", END: "<EOS>", UNK: "<UNK>", PAD: "<PAD>"}

    # 1. Sample pairs of source and target: here, two.
    pairs = [("the sky is blue", "the sky is azure blue"), ("the sky", "blue")]

    # 5 and 6. Encode tokens by the vocabulary; "azure" is not in it and becomes <UNK>.
    source, target = (
        [[vocabulary.get(word, UNK) for word in pair[side].split()] for pair in pairs] for side in range(2)
    )
    assert target[0] == [42, 7, 16, UNK, 12]

    # 2 and 3. <EOS> behind the source; <SOS> before the target for the input, <EOS> behind it for the output.
    batch = batch_from(source, target)
    assert batch.source.values.tolist() == [42, 7, 16, 12, END, 42, 7, END]
    assert batch.target.values.tolist() == [START, 42, 7, 16, UNK, 12, START, 12]
    assert batch.labels_N.tolist() == [42, 7, 16, UNK, 12, END, 12, END]

    # 6. The length of each input and target sequence.
    assert batch.source.lengths_B.tolist() == [5, 3]
    assert batch.target.lengths_B.tolist() == [6, 2]

    # 4. Padded up to the longest of the batch, in the lecture's own numbers.
    def as_printed(padded: torch.Tensor) -> list[list[int]]:
        return [[vocabulary[theirs[each]] if each in theirs else each for each in row] for row in padded.tolist()]

    assert as_printed(batch.source.to_padded(PAD)) == [[42, 7, 16, 12, 99], [42, 7, 99, 3, 3]]
    assert as_printed(batch.target.to_padded(PAD)) == [[0, 42, 7, 16, 1, 12], [0, 12, 3, 3, 3, 3]]
    labels = batch.target.with_values(batch.labels_N)
    assert as_printed(labels.to_padded(PAD)) == [[42, 7, 16, 1, 12, 99], [12, 99, 3, 3, 3, 3]]


@given(st.lists(st.tuples(*[st.lists(st.integers(4, 60_000), max_size=9)] * 2), min_size=1, max_size=8))
def test_prepared_pairs_are_the_pairs_with_their_symbols(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = batch_from([source for source, _ in pairs], [target for _, target in pairs])
    assert [each.tolist() for each in batch.source.to_list()] == [[*source, END] for source, _ in pairs]
    assert [each.tolist() for each in batch.target.to_list()] == [[START, *target] for _, target in pairs]
    labels = batch.target.with_values(batch.labels_N)
    assert [each.tolist() for each in labels.to_list()] == [[*target, END] for _, target in pairs]
    assert batch.source_tokens == sum(len(source) + 1 for source, _ in pairs)
    assert batch.target_tokens == sum(len(target) + 1 for _, target in pairs)
    assert len(batch) == len(pairs)


@given(rows_of_ids, st.data())
def test_taking_rows_gives_those_rows_in_that_order(lists: list[list[int]], data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=15))
    assert lists_from(rows_from(lists).take(np.array(which, np.int64))) == [lists[each] for each in which]


@given(st.lists(rows_of_ids, min_size=1, max_size=4))
def test_joined_rows_follow_one_another(parts: list[list[list[int]]]) -> None:
    assert lists_from(Rows.join([rows_from(part) for part in parts])) == [row for part in parts for row in part]


def test_a_batch_is_a_copy_and_knows_its_examples() -> None:
    target = rows_from([[8], [], [9, 10]])
    batch = prepare(rows_from([[4], [5, 6], [7]]), target, np.array([30, 10, 20]))
    assert batch.index_B.tolist() == [30, 10, 20]
    batch.labels_N.zero_()
    batch.target.values.zero_()
    assert lists_from(target) == [[8], [], [9, 10]]


def test_a_batch_moves_whole() -> None:
    moved = batch_from([[4], [5, 6]], [[7], []]).to("meta")
    tensors = [moved.source.values, moved.source.offsets, moved.target.values, moved.labels_N, moved.index_B]
    assert {each.device.type for each in tensors} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs CUDA")
def test_a_pinned_batch_is_pinned_wherever_it_travels() -> None:
    batch = batch_from([[4], [5, 6]], [[7], []]).pin_memory()
    tensors = [batch.source.values, batch.source.offsets, batch.target.values, batch.labels_N, batch.index_B]
    assert all(each.is_pinned() for each in tensors)
