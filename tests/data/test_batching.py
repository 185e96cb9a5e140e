"""A feed turns stores into batches: each record once an epoch, within the budget, resumable after any step."""

import gzip
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.records import MemoryRecords, Record, random_records, rows_from
from torch import Tensor

from regard.data.batch import Batch, Collator, example_index, per_sequence, sequences
from regard.data.batching import Feed, StreamPosition, in_order
from regard.data.build import build_store
from regard.data.fields import with_tokenizers
from regard.data.plan import Order, Shard
from regard.data.pool import SubwordSampling
from regard.data.rows import Lengths, Numbers, Rows
from regard.nn.ragged import Ragged
from regard.recipe import Data, TextCorpus
from regard.text import END, Tokenizers

Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RecordBatch(Batch):
    """A batch from which its records can be read back."""

    index_B: Tensor = example_index()

    @property
    def units(self) -> int:
        """The number of records."""
        return len(self)

    @property
    def tokens(self) -> int:
        """The largest number of tokens of a ragged attribute."""
        return max(value.tokens for value in vars(self).values() if isinstance(value, Ragged))

    def records(self) -> list[tuple[int, Record]]:
        """The number of each record and its ids by field, without the end symbols."""
        columns = {}
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if isinstance(value, Ragged):
                assert all(row[-1] == END for row in value.to_list())
                columns[attribute.name] = [row[:-1].tolist() for row in value.to_list()]
            elif attribute.name == "label_B":
                columns["label"] = [[number] for number in value.tolist()]
        rows = zip(*columns.values(), strict=True)
        return [
            (number, dict(zip(columns, row, strict=True)))
            for number, row in zip(self.index_B.tolist(), rows, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class OneText(RecordBatch):
    """A text."""

    text: Ragged = sequences()


@dataclass(frozen=True, eq=False)
class TwoTexts(RecordBatch):
    """Two texts."""

    source: Ragged = sequences()
    target: Ragged = sequences()


@dataclass(frozen=True, eq=False)
class TwoTextsAndLabel(RecordBatch):
    """Two texts and a label."""

    question: Ragged = sequences()
    answer: Ragged = sequences()
    label_B: Tensor = per_sequence(fill=-100)


PAIR: Names = ("source", "target")
LABELLED: Names = ("question", "answer", "label")
BATCHES: dict[Names, Callable[..., RecordBatch]] = {
    ("text",): OneText,
    PAIR: TwoTexts,
    LABELLED: TwoTextsAndLabel,
}


def texts_of(names: Names) -> Names:
    return tuple(name for name in names if name != "label")


@dataclass(frozen=True)
class RecordCollator(Collator):
    """Appends the end symbol to each text; a label has no sequence."""

    names: Names = PAIR

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        return tuple(lengths[name] + np.int64(1) for name in texts_of(self.names))

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> RecordBatch:
        assert set(rows) == set(self.names)
        texts = [rows[name].append(END).to_ragged() for name in texts_of(self.names)]
        labels = [torch.from_numpy(rows["label"].ids.astype(np.int64))] if "label" in self.names else []
        return BATCHES[self.names](torch.from_numpy(index), *texts, *labels)


class Doubling:
    """A tokenizer of numbers that repeats some of them at random, in place of random segmentation."""

    def sample_batch(
        self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.default_rng(seed)
        words = [[int(word) for word in line.split()] for line in lines]
        rows = rows_from([[id_ for word in row for id_ in [word] * (1 + (draw.random() < amount))] for row in words])
        return rows.ids, rows.offsets


def doubling(amount: float, names: Names = PAIR, most: int | None = None) -> SubwordSampling:
    return SubwordSampling({name: Doubling() for name in texts_of(names)}, amount, max_tokens=most)


class SmallPools(Feed):
    """Pools of 50 records, so that a small corpus has several."""

    POOL = 50


def feed_of(
    stores: Sequence[MemoryRecords],
    tokens: int = 40,
    order: Order = "random",
    pools: type[Feed] = SmallPools,
    **rest: Any,
) -> Feed:
    """A feed of stores with equal fields, all of weight 1."""
    return pools(stores, [1.0] * len(stores), tokens, RecordCollator(stores[0].fields), order, **rest)


def batches_of(steps: Iterable[list[Batch]]) -> list[RecordBatch]:
    """All batches of some steps."""
    batches = [batch for step in steps for batch in step]
    return [batch for batch in batches if isinstance(batch, RecordBatch)]


def shown(steps: Iterable[list[Batch]]) -> list[tuple[int, Record]]:
    """The records of all batches of some steps, with their numbers."""
    return [record for batch in batches_of(steps) for record in batch.records()]


def numbers_in(steps: Iterable[list[Batch]]) -> list[int]:
    return [number for number, _ in shown(steps)]


def picture(step: list[Batch]) -> list[list[tuple[int, Record]]]:
    """Everything that two equal steps share."""
    return [batch.records() for batch in batches_of([step])]


def pictures(feed: Feed, epoch: int = 0) -> list[list[list[tuple[int, Record]]]]:
    return [picture(step) for step in feed.epoch(epoch)]


few = settings(max_examples=25)
sizes = st.integers(12, 160)
orders = st.sampled_from(["random", "length"])
shards = st.tuples(st.integers(1, 3), st.integers(1, 2))
names_of_fields = st.sampled_from(list(BATCHES))


class TestLaws:
    @few
    @given(names_of_fields, sizes, orders, shards, st.integers(0, 3))
    def test_each_example_once_an_epoch_over_all_processes_in_equally_many_steps(
        self, names: Names, size: int, order: Order, shard: tuple[int, int], epoch: int
    ) -> None:
        world, accumulate = shard
        stores = [random_records(names, size)]
        shares = [
            list(feed_of(stores, order=order, shard=Shard(rank, world, accumulate)).epoch(epoch))
            for rank in range(world)
        ]
        assert len({len(share) for share in shares}) == 1
        assert {len(step) for share in shares for step in share} == {accumulate}
        assert sorted(number for share in shares for number in numbers_in(share)) == list(range(size))

    @few
    @given(names_of_fields, sizes, orders, st.integers(9, 200))
    def test_no_sequence_of_a_batch_is_over_the_budget(
        self, names: Names, size: int, order: Order, tokens: int
    ) -> None:
        batches = batches_of(feed_of([random_records(names, size)], tokens, order).epoch(0))
        assert max(batch.tokens for batch in batches) <= tokens

    @few
    @given(names_of_fields, sizes, orders)
    def test_a_batch_has_the_ids_of_its_examples(self, names: Names, size: int, order: Order) -> None:
        store = random_records(names, size)
        for number, record in shown(feed_of([store], order=order).epoch(0)):
            assert record == store.records[number]

    @few
    @given(sizes, st.floats(0.3, 3.0), st.floats(0.3, 3.0), orders)
    def test_mixed_stores_appear_by_their_weights(self, size: int, one: float, two: float, order: Order) -> None:
        stores = [random_records(PAIR, size, 1), random_records(PAIR, 60, 2)]
        times = Counter(numbers_in(replace(feed_of(stores, order=order), weights=[one, two]).epoch(0)))
        first = [times[number] for number in range(size)]
        second = [times[number] for number in range(size, size + 60)]
        assert set(first) <= {int(one), int(one) + 1}
        assert set(second) <= {int(two), int(two) + 1}
        assert abs(sum(first) - one * size) <= 0.5 + 1e-9
        assert abs(sum(second) - two * 60) <= 0.5 + 1e-9

    @few
    @given(names_of_fields, sizes, orders, st.booleans())
    def test_mixed_stores_keep_every_example_with_its_own_ids(
        self, names: Names, size: int, order: Order, sampled: bool
    ) -> None:
        stores = [random_records(names, size, 1), random_records(names, 60, 2)]
        records = [*stores[0].records, *stores[1].records]
        sampling = doubling(0.3, names) if sampled else None
        for number, record in shown(replace(feed_of(stores, order=order), sampling=sampling).epoch(0)):
            for name in names:
                # The sampler only repeats ids.
                assert list(dict.fromkeys(record[name])) == list(dict.fromkeys(records[number][name]))

    @few
    @given(names_of_fields, sizes, orders, st.integers(1, 3))
    def test_processes_and_accumulated_batches_are_the_same_batches(
        self, names: Names, size: int, order: Order, parts: int
    ) -> None:
        feed = feed_of([random_records(names, size)], order=order)
        accumulated = pictures(replace(feed, shard=Shard(0, 1, parts)))
        divided = [pictures(replace(feed, shard=Shard(rank, parts, 1))) for rank in range(parts)]
        assert accumulated == [[batch for share in step for batch in share] for step in zip(*divided, strict=True)]

    @few
    @given(names_of_fields, sizes, orders, st.booleans())
    def test_resumed_at_any_position_the_stream_continues_as_if_uninterrupted(
        self, names: Names, size: int, order: Order, sampled: bool
    ) -> None:
        sampling = doubling(0.2, names) if sampled else None
        feed = feed_of([random_records(names, size)], order=order, seed=5, shard=Shard(1, 2, 1), sampling=sampling)
        per_epoch = len(pictures(feed))
        with closing(feed.steps()) as stream:
            whole = [(step.after, picture(step.batches)) for step in islice(stream, 2 * per_epoch + 2)]
        positions = [StreamPosition(), *(after for after, _ in whole[:-2])]
        assert positions == sorted(set(positions))
        for taken, position in enumerate(positions):
            with closing(feed.steps(StreamPosition(**asdict(position)))) as resumed:
                assert [(step.after, picture(step.batches)) for step in islice(resumed, 2)] == whole[taken : taken + 2]

    @few
    @given(st.integers(90, 160), orders)
    def test_epochs_differ_and_a_seed_repeats_them(self, size: int, order: Order) -> None:
        feed = feed_of([random_records(PAIR, size)], order=order, seed=5)
        again = feed_of([random_records(PAIR, size)], order=order, seed=5)
        assert pictures(feed, 1) == pictures(again, 1)
        assert pictures(feed, 0) != pictures(feed, 1)
        assert pictures(feed, 0) != pictures(replace(feed, seed=6), 0)

    @few
    @given(names_of_fields, sizes, orders)
    def test_the_stream_is_its_epochs_one_after_the_other(self, names: Names, size: int, order: Order) -> None:
        feed = feed_of([random_records(names, size)], order=order)
        epochs = [*pictures(feed, 0), *pictures(feed, 1)]
        with closing(feed.steps()) as stream:
            assert [picture(step.batches) for step in islice(stream, len(epochs))] == epochs

    @few
    @given(names_of_fields, sizes, orders)
    def test_sampling_is_repeatable_different_each_epoch_and_within_budget(
        self, names: Names, size: int, order: Order
    ) -> None:
        store = random_records(names, size)
        feed = feed_of([store], order=order, sampling=doubling(0.3, names))
        assert pictures(feed, 0) == pictures(feed, 0)
        epochs = [dict(shown(feed.epoch(epoch))) for epoch in range(2)]
        assert epochs[0] != epochs[1]
        assert sorted(epochs[0]) == list(range(size))
        assert max(batch.tokens for batch in batches_of(feed.epoch(0))) <= 40
        if "label" in names:
            assert all(record["label"] == store.records[number]["label"] for number, record in epochs[0].items())

    @few
    @given(names_of_fields, sizes, st.integers(9, 60))
    def test_in_order_each_example_comes_once_as_stored(self, names: Names, size: int, tokens: int) -> None:
        store = random_records(names, size)
        batches = list(in_order(store, RecordCollator(names), tokens, pool=50))
        assert shown([batches]) == list(enumerate(store.records))
        assert max(batch.tokens for batch in batches_of([batches])) <= tokens


def pairs(lists: Iterable[tuple[list[int], list[int]]], **tags: int) -> MemoryRecords:
    """Records with the fields source and target."""
    return MemoryRecords.of([{"source": source, "target": target} for source, target in lists], **tags)


def test_a_sampled_example_that_would_not_fit_a_batch_keeps_its_stored_segmentation() -> None:
    long = (list(range(10, 18)), list(range(20, 28)))
    feed = feed_of([pairs([long, ([4], [5]), ([6], [7])])], 9, sampling=doubling(0.9))
    assert dict(shown(feed.epoch(0)))[0]["source"] == long[0]


def test_a_labelled_example_that_keeps_its_stored_segmentation_keeps_its_label() -> None:
    records = [{"question": list(range(10, 10 + size)), "answer": [4], "label": [size]} for size in range(1, 9)]
    feed = feed_of([MemoryRecords.of(records)], 9, sampling=doubling(0.9, LABELLED))
    rows = dict(shown(feed.epoch(0)))
    assert [rows[number]["label"] for number in range(8)] == [[size] for size in range(1, 9)]
    assert rows[7]["question"] == list(range(10, 18))


@pytest.mark.parametrize(("most", "announced"), [(None, 18), (15, 15), (5, 9)])
def test_no_sampled_sequence_is_longer_than_the_feed_announces(most: int | None, announced: int) -> None:
    class Twice(Doubling):
        def sample_batch(
            self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None
        ) -> tuple[np.ndarray, np.ndarray]:
            return super().sample_batch([f"{line} {line}" for line in lines], amount, seed, threads)

    store = pairs((list(range(10, 10 + size)), [5]) for size in [*range(1, 9)] * 20)
    sampling = SubwordSampling({"source": Twice(), "target": Doubling()}, 0.5, max_tokens=most)
    feed = feed_of([store], 200, pools=Feed, sampling=sampling)
    assert feed.longest == announced
    longest = max(len(record["source"]) + 1 for _, record in shown(feed.epoch(0)))
    assert longest <= announced
    assert (longest > 8 + 1) == (announced > 8 + 1)


def test_a_sampled_text_still_begins_with_its_tag() -> None:
    stores = [pairs([([700, 4, 5], [6])] * 20, source=700), pairs([([4, 5], [6])] * 20)]
    for number, record in shown(feed_of(stores, sampling=doubling(0.5)).epoch(0)):
        assert (record["source"][0] == 700) == (number < 20)
        assert record["source"].count(700) <= 1


def test_sampling_without_text_is_refused_before_training() -> None:
    store = replace(random_records(PAIR, 30), has_text=False)
    with pytest.raises(ValueError, match="without its text"):
        feed_of([store], sampling=doubling(0.5))


@pytest.mark.parametrize("amount", [0.0, 1.0, -0.1])
def test_an_impossible_amount_of_sampling_is_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        doubling(amount)


@pytest.mark.parametrize("names", list(BATCHES))
def test_an_example_beyond_the_budget_is_named_before_training(names: Names) -> None:
    for name in texts_of(names):
        records = [{other: [4] for other in names} for _ in range(300)]
        records[260][name] = list(range(31))
        message = r"example 260 of corpus 2 has 32 tokens .*at most 31: raise train\.tokens to 32.*data\.longest"
        stores = [random_records(names, 30), MemoryRecords.of(records)]
        with pytest.raises(ValueError, match=message):
            feed_of(stores, 31)
        with pytest.raises(ValueError, match="example 260 has 32"):
            list(in_order(stores[1], RecordCollator(names), 31))
        assert list(feed_of(stores[1:], 32).epoch(0))


def test_a_sequence_that_joins_two_fields_is_measured_record_by_record() -> None:
    class Joined(RecordCollator):
        def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
            return (lengths["source"] + lengths["target"] + np.int64(1),)

    store = pairs([(list(range(20)), [4]), ([5], list(range(20)))] * 10)  # 22 tokens each, and not 41
    assert len(shown(Feed([store], [1.0], 25, Joined()).epoch(0))) == 20
    with pytest.raises(ValueError, match=r"example 0 of corpus 1 has 22 tokens .* raise train\.tokens to 22"):
        Feed([store], [1.0], 21, Joined())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stores": [], "weights": []}, "nothing to draw from"),
        ({"stores": [MemoryRecords.of([])]}, "nothing to draw from"),
        ({"weights": [1.0, 1.0]}, "1 stores need as many weights, not 2"),
        ({"weights": [0.0]}, "positive numbers"),
        ({"weights": [float("nan")]}, "positive numbers"),
        ({"tokens": 0}, "at least one token, not 0"),
        ({"seed": -1}, "0 or more, not -1"),
        ({"order": "sorted"}, "not 'sorted'"),
        ({"shard": Shard(0, 8, 4)}, r"30 examples.*32 batches.*8 processes, 4 accumulated.*fewer processes"),
        ({"weights": [0.01]}, r"epoch of 0 examples.*more data"),
    ],
)
def test_invalid_settings_of_a_feed_are_refused_at_the_start(change: dict[str, Any], complaint: str) -> None:
    feed = feed_of([random_records(PAIR, 30)])
    with pytest.raises(ValueError, match=complaint):
        replace(feed, **change)


def test_a_position_of_other_data_is_refused() -> None:
    feed = feed_of([random_records(PAIR, 30)])
    with pytest.raises(ValueError, match="beyond the 1 pools"):
        next(feed.steps(StreamPosition(0, 1, 0)))
    with pytest.raises(ValueError, match=r"beyond the \d+ steps"):
        next(feed.steps(StreamPosition(0, 0, 999)))
    with pytest.raises(ValueError, match="negative"):
        StreamPosition(0, -1, 0)


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "regard-prefetch"]


@pytest.mark.parametrize("sampling", [None, doubling(0.5)])
def test_the_error_of_a_store_reaches_the_consumer(sampling: SubwordSampling | None) -> None:
    class Broken(MemoryRecords):
        def gather(self, indices: Lengths) -> dict[str, Rows]:
            raise OSError("the disk is gone")

        def text(self, indices: Lengths) -> dict[str, list[str]]:
            if len(indices) > 1:
                raise OSError("the disk is gone")
            return super().text(indices)

    store = Broken(PAIR, random_records(PAIR, 30).records, {})
    with closing(feed_of([store], sampling=sampling).steps()) as stream, pytest.raises(OSError, match="disk is gone"):
        next(stream)
    assert not prefetch_threads()


@pytest.mark.parametrize("sampling", [None, doubling(0.5)])
def test_a_closed_stream_leaves_no_thread_behind(sampling: SubwordSampling | None) -> None:
    stream = feed_of([random_records(PAIR, 300)], sampling=sampling).steps()
    next(stream)
    assert len(prefetch_threads()) == (sampling is not None)
    stream.close()
    assert not prefetch_threads()


def test_a_store_on_disk_with_subword_sampling_shows_every_pair(tmp_path: Path) -> None:
    lines = [(f"the house number {number} is old", f"das Haus Nummer {number} ist alt") for number in range(300)]
    for side, name in enumerate(("en", "de")):
        with gzip.open(tmp_path / f"{name}.gz", "wt", encoding="utf-8") as file:
            file.writelines(pair[side] + "\n" for pair in lines)
    corpus = TextCorpus(files={"source": "en.gz", "target": "de.gz"}, tag="<2de>")
    tokenizers = Tokenizers.learn(lines, size=300, symbols=("<2de>",))
    data = Data(root=str(tmp_path), train=(corpus,))
    store = build_store(
        corpus, data, with_tokenizers(tokenizers), cache=tmp_path / "cache", tagged="source", keep_text=True
    )
    sampling = SubwordSampling(tokenizers, 0.3, threads=2)
    tag = tokenizers["source"].id("<2de>")
    tokens = []
    for feed in (
        Feed([store], [1.0], 200, RecordCollator()),
        Feed([store], [1.0], 200, RecordCollator(), sampling=sampling),
    ):
        assert pictures(feed) == pictures(feed)
        assert max(batch.tokens for batch in batches_of(feed.epoch(0))) <= 200
        rows = dict(shown(feed.epoch(0)))
        assert {record["source"][0] for record in rows.values()} == {tag}
        decoded = [
            (
                tokenizers["source"].decode(rows[number]["source"][1:]),
                tokenizers["target"].decode(rows[number]["target"]),
            )
            for number in range(len(lines))
        ]
        assert decoded == lines
        tokens.append(sum(len(record["source"]) for record in rows.values()))
    assert tokens[1] > tokens[0]
