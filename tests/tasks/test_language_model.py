"""Language modelling: how documents and blocks of tokens become batches for teacher forcing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import write_store

from regard.data.batching import in_order
from regard.data.blocks import Blocks
from regard.nn.cross_entropy import IGNORED
from regard.recipe import parse
from regard.tasks.language_model import LanguageModelBatch, LanguageModelTask
from regard.text import START

DOCUMENTS = st.lists(st.lists(st.integers(4, 60_000), max_size=20), min_size=1, max_size=12)


def task_with(*overrides: str) -> LanguageModelTask:
    return LanguageModelTask(parse('task = "language_model"\n[data]\ntrain = [{ path = "a.txt" }]', overrides))


@given(DOCUMENTS, st.integers(1, 30), st.data())
def test_the_units_of_blocks_are_those_of_their_batches(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], block: int, data: st.DataObject
) -> None:
    """The `<s>` of a document inside a block is read but not predicted, so neither count includes it."""
    stride = data.draw(st.one_of(st.none(), st.integers(1, block)))
    store = write_store(tmp_path_factory.mktemp("store"), [{"text": ids} for ids in documents])
    blocks, task = Blocks(store, block, stride), task_with(f"data.block={block}")
    batches = list(in_order(blocks, task, tokens=64))
    assert task.units(blocks.lengths) == sum(batch.units for batch in batches)
    for batch in batches:
        assert isinstance(batch, LanguageModelBatch)
        assert not (batch.labels_N == START).any()
        assert batch.units == int((batch.labels_N != IGNORED).sum())


@given(DOCUMENTS)
def test_the_units_of_documents_are_those_of_their_batches(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]]
) -> None:
    store = write_store(tmp_path_factory.mktemp("store"), [{"text": ids} for ids in documents])
    task = task_with()
    batch = task.collate(store.gather(np.arange(len(documents))), np.arange(len(documents)))
    assert task.units(store.lengths) == batch.units == sum(len(ids) + 1 for ids in documents)
