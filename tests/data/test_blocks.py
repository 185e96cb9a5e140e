"""Blocks of a language model: slices of all documents, concatenated with their symbols."""

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import lists_from, write_store
from torch import Tensor

from regard.data.batch import Batch, Collator, example_index, sequences
from regard.data.batching import Feed, in_order
from regard.data.blocks import Blocks
from regard.data.rows import Lengths, Numbers, Rows
from regard.nn.ragged import Ragged
from regard.text import END, START

DOCUMENTS = st.lists(st.lists(st.integers(4, 65_535), max_size=20), min_size=1, max_size=12)
BLOCK = st.integers(1, 30)


def blocks_of(
    factory: pytest.TempPathFactory, documents: list[list[int]], block: int, stride: int | None = None
) -> Blocks:
    return Blocks(write_store(factory.mktemp("store"), [{"text": ids} for ids in documents]), block, stride)


def stream_of(documents: list[list[int]]) -> list[int]:
    return [token for ids in documents for token in [START, *ids, END]]


@given(DOCUMENTS, BLOCK, st.data())
def test_gathered_blocks_are_slices_of_the_stream(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], block: int, data: st.DataObject
) -> None:
    stride = data.draw(st.one_of(st.none(), st.integers(1, block)))
    blocks = blocks_of(tmp_path_factory, documents, block, stride)
    stream = stream_of(documents)
    indices = data.draw(st.lists(st.integers(0, len(blocks) - 1), max_size=9))
    starts = [(stride or block) * index for index in indices]
    gathered = blocks.gather(np.array(indices, np.int32))["text"]
    assert [gathered.ids.dtype, gathered.offsets.dtype] == [np.dtype(np.int32), np.dtype(np.int64)]
    assert lists_from(gathered) == [stream[start : start + block + 1] for start in starts]


@given(DOCUMENTS, BLOCK)
def test_adjacent_blocks_predict_every_token_but_the_first_once(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], block: int
) -> None:
    blocks = blocks_of(tmp_path_factory, documents, block)
    rows = lists_from(blocks.gather(np.arange(len(blocks)))["text"])
    stream = stream_of(documents)
    assert [token for row in rows for token in row[1:]] == stream[1:]
    assert [len(row) for row in rows[:-1]] == [block + 1] * (len(rows) - 1)
    assert 2 <= len(rows[-1]) <= block + 1
    assert blocks.lengths["text"].tolist() == [len(row) for row in rows]
    assert blocks.longest["text"] == max(len(row) for row in rows)
    assert blocks.tokens("text") == len(stream)


@given(DOCUMENTS, st.integers(2, 30), st.data())
def test_overlapping_blocks_predict_every_token_as_often_as_the_stride_says(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], block: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, block - 1))
    blocks = blocks_of(tmp_path_factory, documents, block, stride)
    rows = lists_from(blocks.gather(np.arange(len(blocks)))["text"])
    times = Counter(stride * number + 1 + at for number, row in enumerate(rows) for at in range(len(row) - 1))
    assert set(times) == set(range(1, len(stream_of(documents))))
    assert max(times.values()) <= -(-block // stride)
    assert blocks.lengths["text"].tolist() == [len(row) for row in rows]
    # No block repeats only what the one before it has.
    assert all(len(row) == block + 1 for row in rows[:-1])


def test_documents_are_separated_by_their_symbols_and_the_last_block_is_short(tmp_path: Path) -> None:
    documents: list[list[int]] = [[11, 12, 13], [], [21]]
    blocks = Blocks(write_store(tmp_path, [{"text": ids} for ids in documents]), block=4)
    assert lists_from(blocks.gather(np.arange(len(blocks)))["text"]) == [
        [START, 11, 12, 13, END],
        [END, START, END, START, 21],
        [21, END],
    ]


@pytest.mark.parametrize("indices", [[-1], [3], [0, 99]])
def test_a_block_that_does_not_exist_cannot_be_gathered(tmp_path: Path, indices: list[int]) -> None:
    blocks = Blocks(write_store(tmp_path, [{"text": list(range(4, 11))}]), block=3)
    with pytest.raises(IndexError, match="blocks 0 to 2"):
        blocks.gather(np.array(indices))


def test_a_block_has_no_text(tmp_path: Path) -> None:
    blocks = Blocks(write_store(tmp_path, [{"text": [4, 5]}], texts=[{"text": "a b"}]), block=3)
    with pytest.raises(ValueError, match=r"no text of its own.*data\.block"):
        blocks.text(np.array([0]))


@dataclass(frozen=True, eq=False)
class BlockBatch(Batch):
    """The ids of blocks, inputs and labels together."""

    text: Ragged = sequences()
    index_B: Tensor = example_index()

    @property
    def units(self) -> int:
        """The number of predicted tokens."""
        return self.text.tokens - len(self)


class BlockCollator(Collator):
    """Makes a batch of blocks as they are."""

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        return (lengths["text"].astype(np.int64),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> BlockBatch:
        return BlockBatch(rows["text"].to_ragged(), torch.from_numpy(index))


@pytest.fixture
def blocks(tmp_path: Path) -> Blocks:
    draw = np.random.default_rng(5)
    documents = [draw.integers(4, 999, draw.integers(0, 40)).tolist() for _ in range(200)]
    return Blocks(write_store(tmp_path / "store", [{"text": ids} for ids in documents]), block=16)


def test_a_feed_shows_every_predicted_token_once_an_epoch(blocks: Blocks) -> None:
    feed = Feed([blocks], [1.0], 100, BlockCollator(), seed=3)
    batches = [batch for step in feed.epoch(0) for batch in step]
    assert all(isinstance(batch, BlockBatch) and batch.text.tokens <= 100 for batch in batches)
    assert sum(batch.units for batch in batches) == blocks.tokens("text") - 1
    shown = {
        int(number): row.tolist()
        for batch in batches
        if isinstance(batch, BlockBatch)
        for number, row in zip(batch.index_B, batch.text.to_list(), strict=True)
    }
    assert [shown[number] for number in range(len(blocks))] == lists_from(blocks.gather(np.arange(len(blocks)))["text"])


def test_a_feed_of_blocks_resumes_where_it_stopped(blocks: Blocks) -> None:
    feed = Feed([blocks], [1.0], 100, BlockCollator(), seed=3)
    with closing(feed.steps()) as stream:
        steps = list(islice(stream, 40))
    with closing(feed.steps(steps[24].after)) as stream:
        resumed = list(islice(stream, 15))
    for step, expected in zip(resumed, steps[25:], strict=True):
        for batch, original in zip(step.batches, expected.batches, strict=True):
            assert isinstance(batch, BlockBatch)
            assert isinstance(original, BlockBatch)
            assert batch.text.values.tolist() == original.text.values.tolist()
            assert batch.index_B.tolist() == original.index_B.tolist()


def test_in_order_blocks_are_the_stream(blocks: Blocks) -> None:
    batches = list(in_order(blocks, BlockCollator(), 100, pool=7))
    rows = [row.tolist() for batch in batches if isinstance(batch, BlockBatch) for row in batch.text.to_list()]
    assert rows == lists_from(blocks.gather(np.arange(len(blocks)))["text"])
