"""Translation: how sentence pairs become batches for teacher forcing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import rows_from

from regard.recipe import Data, PhrasebookCorpus, Recipe
from regard.score import Score
from regard.tasks import Predictions
from regard.tasks.translation import TranslationBatch, TranslationTask
from regard.text import END, PAD, START, UNK

TASK = TranslationTask(Recipe(data=Data(train=(PhrasebookCorpus(to="de"),))))


def batch_from(source: list[list[int]], target: list[list[int]]) -> TranslationBatch:
    return TASK.collate({"source": rows_from(source), "target": rows_from(target)}, np.arange(len(source)))


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

    # 2 and 3. <EOS> after the source; <SOS> before the target for the input, <EOS> after it for the output.
    batch = batch_from(source, target)
    assert batch.source.values.tolist() == [42, 7, 16, 12, END, 42, 7, END]
    assert batch.target.values.tolist() == [START, 42, 7, 16, UNK, 12, START, 12]
    assert batch.labels_N.tolist() == [42, 7, 16, UNK, 12, END, 12, END]

    # 6. The length of each input and target sequence.
    assert batch.source.lengths_B.tolist() == [5, 3]
    assert batch.target.lengths_B.tolist() == [6, 2]

    # 4. Padded up to the longest of the batch, in the lecture's own numbers.
    def as_printed(padded: torch.Tensor) -> list[list[int]]:
        return [[vocabulary[theirs[token]] if token in theirs else token for token in row] for row in padded.tolist()]

    assert as_printed(batch.source.to_padded(PAD)) == [[42, 7, 16, 12, 99], [42, 7, 99, 3, 3]]
    assert as_printed(batch.target.to_padded(PAD)) == [[0, 42, 7, 16, 1, 12], [0, 12, 3, 3, 3, 3]]
    labels = batch.target.with_values(batch.labels_N)
    assert as_printed(labels.to_padded(PAD)) == [[42, 7, 16, 1, 12, 99], [12, 99, 3, 3, 3, 3]]


@given(st.lists(st.tuples(*[st.lists(st.integers(4, 60_000), max_size=9)] * 2), min_size=1, max_size=8))
def test_a_batch_has_the_pairs_with_their_symbols(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = batch_from([source for source, _ in pairs], [target for _, target in pairs])
    assert [sequence.tolist() for sequence in batch.source.to_list()] == [[*source, END] for source, _ in pairs]
    assert [sequence.tolist() for sequence in batch.target.to_list()] == [[START, *target] for _, target in pairs]
    labels = batch.target.with_values(batch.labels_N)
    assert [sequence.tolist() for sequence in labels.to_list()] == [[*target, END] for _, target in pairs]
    assert len(batch) == len(pairs)


@given(st.lists(st.tuples(*[st.lists(st.integers(4, 60_000), max_size=9)] * 2), min_size=1, max_size=8))
def test_lengths_and_units_are_those_of_the_batch(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = batch_from([source for source, _ in pairs], [target for _, target in pairs])
    lengths = {
        name: np.array([len(pair[side]) for pair in pairs], np.int32) for side, name in enumerate(("source", "target"))
    }
    source, target = TASK.sequence_lengths(lengths)
    assert source.tolist() == batch.source.lengths_B.tolist()
    assert target.tolist() == batch.target.lengths_B.tolist()
    assert batch.units == TASK.units(lengths) == sum(len(target) + 1 for _, target in pairs)


def test_a_batch_is_a_copy_and_has_the_numbers_of_its_examples() -> None:
    target = rows_from([[8], [], [9, 10]])
    batch = TASK.collate({"source": rows_from([[4], [5, 6], [7]]), "target": target}, np.array([30, 10, 20]))
    assert batch.index_B.tolist() == [30, 10, 20]
    batch.labels_N.zero_()
    batch.target.values.zero_()
    assert target.ids.tolist() == [8, 9, 10]


def test_a_batch_moves_with_all_its_tensors() -> None:
    moved = batch_from([[4], [5, 6]], [[7], []]).to("meta")
    assert {tensor.device.type for tensor in [*moved.tensors(), moved.index_B]} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs CUDA")
def test_a_pinned_batch_has_all_its_tensors_in_page_locked_memory() -> None:
    batch = batch_from([[4], [5, 6]], [[7], []]).pin_memory()
    assert all(tensor.is_pinned() for tensor in [*batch.tensors(), batch.index_B])


def test_a_criterion_has_the_sign_that_makes_higher_values_better() -> None:
    scores = Score("BLEU", 30.0, ""), Score("TER", 60.0, "", higher_is_better=False)
    predictions = Predictions(scores)
    assert predictions.criterion(0) == 30.0
    assert predictions.criterion(1) == -60.0
