import gzip
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batching import Feed, Position, in_order
from regard.data.build import build_store
from regard.data.example import Batch, Rows
from regard.data.order import Numbers
from regard.data.plan import Order, Shard
from regard.data.pool import Sampling
from regard.recipe import Data, TextCorpus
from regard.text import END, START, Tokenizers

Picture = list[list[tuple[list[int], list[int], list[int]]]]


@dataclass(frozen=True)
class Memory:
    """A store that never touches the disk; where asked to, it spells its ids out as text."""

    pairs: list[tuple[list[int], list[int]]]
    tag: int | None = None
    textual: bool = True

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def lengths(self) -> tuple[Numbers, Numbers]:
        source, target = (np.array([len(pair[side]) for pair in self.pairs]) for side in range(2))
        return source, target

    @cached_property
    def longest(self) -> tuple[int, int]:
        return int(self.lengths[0].max()), int(self.lengths[1].max())

    def gather(self, which: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        source, target = (rows_of([self.pairs[each][side] for each in which]) for side in range(2))
        return source.ids, source.offsets, target.ids, target.offsets

    def text(self, which: Numbers) -> tuple[list[str], list[str]]:
        if not self.textual:
            raise ValueError("this store was built without its text")
        tagged = int(self.tag is not None)
        source, target = (
            [" ".join(map(str, self.pairs[each][side][tagged * (side == 0) :])) for each in which] for side in range(2)
        )
        return source, target


class Doubling:
    """A tokenizer of numbers that shows some of them twice, by chance: as good as any segmentation for our ends."""

    def sample_batch(
        self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        chance = np.random.default_rng(seed)
        words = [[int(word) for word in line.split()] for line in lines]
        rows = rows_of([[each for word in row for each in [word] * (1 + (chance.random() < amount))] for row in words])
        return rows.ids, rows.offsets


def rows_of(lists: list[list[int]]) -> Rows:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return Rows(np.array([number for each in lists for number in each], np.int32), offsets)


def store_of(size: int, seed: int = 0, longest: int = 8) -> Memory:
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, longest + 1, (size, 2)).tolist()
    ids = chance.integers(4, 999, (size, 2, longest)).tolist()
    return Memory([(row[0][:one], row[1][:two]) for row, (one, two) in zip(ids, lengths, strict=True)])


def numbers_in(steps: list[list[Batch]]) -> list[int]:
    return [number for step in steps for batch in step for number in batch.index_B.tolist()]


def picture(step: list[Batch]) -> list[tuple[list[int], list[int], list[int]]]:
    """All that two equal steps share."""
    return [(each.index_B.tolist(), each.source.values.tolist(), each.labels_N.tolist()) for each in step]


def pictures(feed: Feed, epoch: int = 0) -> Picture:
    return [picture(step) for step in feed.epoch(epoch)]


class Small(Feed):
    """Pools of 50, so that a small corpus has several."""

    POOL = 50


sizes = st.integers(12, 160)
few = settings(max_examples=25)
orders = st.sampled_from(["random", "length"])
shards = st.tuples(st.integers(1, 3), st.integers(1, 2))


class TestLaws:
    @few
    @given(sizes, orders, shards, st.integers(0, 3))
    def test_each_example_once_an_epoch_over_all_processes_in_equally_many_steps(
        self, size: int, order: Order, shard: tuple[int, int], epoch: int
    ) -> None:
        world, accumulate = shard
        feeds = [
            Small([store_of(size)], [1.0], 40, order, shard=Shard(rank, world, accumulate)) for rank in range(world)
        ]
        shares = [list(feed.epoch(epoch)) for feed in feeds]
        assert len({len(share) for share in shares}) == 1
        assert {len(step) for share in shares for step in share} == {accumulate}
        seen = [number for share in shares for number in numbers_in(share)]
        assert sorted(seen) == list(range(size))

    @few
    @given(sizes, orders, st.integers(9, 200))
    def test_no_batch_is_over_the_budget_on_either_side(self, size: int, order: Order, tokens: int) -> None:
        for step in Small([store_of(size)], [1.0], tokens, order).epoch(0):
            assert max(max(batch.source_tokens, batch.target_tokens) for batch in step) <= tokens

    @few
    @given(sizes, orders)
    def test_a_batch_holds_the_ids_of_its_examples(self, size: int, order: Order) -> None:
        store = store_of(size)
        for step in Small([store], [1.0], 40, order).epoch(0):
            for batch in step:
                pairs = [store.pairs[number] for number in batch.index_B.tolist()]
                assert [each.tolist() for each in batch.source.to_list()] == [[*source, END] for source, _ in pairs]
                assert [each.tolist() for each in batch.target.to_list()] == [[START, *target] for _, target in pairs]
                assert batch.labels_N.tolist() == [each for _, target in pairs for each in [*target, END]]

    @few
    @given(sizes, st.floats(0.3, 3.0), st.floats(0.3, 3.0), orders)
    def test_mixed_stores_appear_by_their_weights(self, size: int, one: float, two: float, order: Order) -> None:
        feed = Small([store_of(size, 1), store_of(60, 2)], [one, two], 40, order)
        times = Counter(numbers_in(list(feed.epoch(0))))
        first = [times[number] for number in range(size)]
        second = [times[number] for number in range(size, size + 60)]
        assert set(first) <= {int(one), int(one) + 1}
        assert set(second) <= {int(two), int(two) + 1}
        assert abs(sum(first) - one * size) <= 0.5 + 1e-9
        assert abs(sum(second) - two * 60) <= 0.5 + 1e-9

    @few
    @given(sizes, orders)
    def test_mixed_stores_keep_every_example_with_its_own_ids(self, size: int, order: Order) -> None:
        stores = [store_of(size, 1), store_of(60, 2)]
        pairs = [*stores[0].pairs, *stores[1].pairs]
        for step in Small(stores, [1.0, 2.0], 40, order).epoch(0):
            for batch in step:
                sources = [[*pairs[number][0], END] for number in batch.index_B.tolist()]
                assert [each.tolist() for each in batch.source.to_list()] == sources

    @few
    @given(sizes, orders, st.integers(1, 3))
    def test_processes_and_accumulated_batches_are_the_same_thing(self, size: int, order: Order, parts: int) -> None:
        store = store_of(size)
        alone = pictures(Small([store], [1.0], 40, order, shard=Shard(0, 1, parts)))
        together = [pictures(Small([store], [1.0], 40, order, shard=Shard(rank, parts, 1))) for rank in range(parts)]
        assert alone == [[batch for share in step for batch in share] for step in zip(*together, strict=True)]

    @few
    @given(sizes, orders, st.booleans())
    def test_resumed_at_any_position_the_stream_goes_on_as_if_never_broken(
        self, size: int, order: Order, sampled: bool
    ) -> None:
        sampling = Sampling(Doubling(), Doubling(), 0.2) if sampled else None
        feed = Small([store_of(size)], [1.0], 40, order, seed=5, shard=Shard(1, 2, 1), sampling=sampling)
        per_epoch = len(pictures(feed))
        with feed.epochs() as stream:
            whole = [(step.after, picture(step.batches)) for step in islice(stream, 2 * per_epoch + 2)]
        positions = [Position(), *(after for after, _ in whole[:-2])]
        assert positions == sorted(set(positions))
        for taken, position in enumerate(positions):
            with feed.epochs(Position(**asdict(position))) as resumed:
                assert [(step.after, picture(step.batches)) for step in islice(resumed, 2)] == whole[taken : taken + 2]

    @few
    @given(st.integers(90, 160), orders)
    def test_epochs_differ_and_a_seed_repeats_them(self, size: int, order: Order) -> None:
        feed = Small([store_of(size)], [1.0], 40, order, seed=5)
        again = Small([store_of(size)], [1.0], 40, order, seed=5)
        assert pictures(feed, 1) == pictures(again, 1)
        assert pictures(feed, 0) != pictures(feed, 1)
        assert pictures(feed, 0) != pictures(replace(feed, seed=6), 0)

    @few
    @given(sizes, orders)
    def test_the_stream_is_its_epochs_one_after_the_other(self, size: int, order: Order) -> None:
        feed = Small([store_of(size)], [1.0], 40, order)
        epochs = [*pictures(feed, 0), *pictures(feed, 1)]
        with feed.epochs() as stream:
            assert [picture(step.batches) for step in islice(stream, len(epochs))] == epochs

    @few
    @given(sizes, orders)
    def test_sampling_is_repeatable_fresh_each_epoch_and_within_budget(self, size: int, order: Order) -> None:
        feed = Small([store_of(size)], [1.0], 40, order, sampling=Sampling(Doubling(), Doubling(), 0.3))
        assert pictures(feed, 0) == pictures(feed, 0)
        assert sorted(numbers_in(list(feed.epoch(0)))) == list(range(size))
        lengths = [
            {
                number: length
                for step in feed.epoch(epoch)
                for batch in step
                for number, length in zip(batch.index_B.tolist(), batch.source.lengths_B.tolist(), strict=True)
            }
            for epoch in range(2)
        ]
        assert lengths[0] != lengths[1]
        for step in feed.epoch(0):
            assert max(max(batch.source_tokens, batch.target_tokens) for batch in step) <= 40

    @few
    @given(sizes, st.integers(9, 60))
    def test_in_order_each_example_comes_once_as_it_stands(self, size: int, tokens: int) -> None:
        store = store_of(size)
        batches = list(in_order(store, tokens, pool=50))
        assert numbers_in([batches]) == list(range(size))
        assert max(max(batch.source_tokens, batch.target_tokens) for batch in batches) <= tokens
        labels = [number for batch in batches for number in batch.labels_N.tolist()]
        assert labels == [number for _, target in store.pairs for number in [*target, END]]


def test_a_sampled_pair_that_would_not_fit_a_batch_keeps_its_usual_cut() -> None:
    long = [list(range(10, 18)), list(range(20, 28))]
    store = Memory([(long[0], long[1]), ([4], [5]), ([6], [7])])
    feed = Feed([store], [1.0], 9, sampling=Sampling(Doubling(), Doubling(), 0.9))
    rows = {
        number: source.tolist()
        for step in feed.epoch(0)
        for batch in step
        for number, source in zip(batch.index_B.tolist(), batch.source.to_list(), strict=True)
    }
    assert rows[0] == [*long[0], END]


@pytest.mark.parametrize(("most", "announced"), [(None, 18), (15, 15), (5, 9)])
def test_no_sequence_is_longer_than_was_announced_however_it_is_cut(most: int | None, announced: int) -> None:
    class Twice(Doubling):
        def sample_batch(
            self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None
        ) -> tuple[np.ndarray, np.ndarray]:
            return super().sample_batch([f"{line} {line}" for line in lines], amount, seed, threads)

    store = Memory([(list(range(10, 10 + size)), [5]) for size in [*range(1, 9)] * 20])
    feed = Feed([store], [1.0], 200, sampling=Sampling(Twice(), Doubling(), 0.5, most=most))
    assert feed.longest == announced
    lengths = [length for step in feed.epoch(0) for batch in step for length in batch.source.lengths_B.tolist()]
    assert max(lengths) <= announced
    assert (max(lengths) > 8 + 1) == (announced > 8 + 1)


def test_a_sampled_source_still_begins_with_its_tag() -> None:
    stores = [Memory([([700, 4, 5], [6])] * 20, tag=700), Memory([([4, 5], [6])] * 20)]
    feed = Feed(stores, [1.0, 1.0], 40, sampling=Sampling(Doubling(), Doubling(), 0.5))
    for step in feed.epoch(0):
        for batch in step:
            for number, source in zip(batch.index_B.tolist(), batch.source.to_list(), strict=True):
                assert (source[0] == 700) == (number < 20)
                assert source.tolist().count(700) <= 1


def test_sampling_without_text_is_refused_before_training() -> None:
    store = replace(store_of(30), textual=False)
    with pytest.raises(ValueError, match="without its text"):
        Feed([store], [1.0], 40, sampling=Sampling(Doubling(), Doubling(), 0.5))


@pytest.mark.parametrize("amount", [0.0, 1.0, -0.1])
def test_an_amount_of_sampling_that_is_none_is_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Sampling(Doubling(), Doubling(), amount)


@pytest.mark.parametrize(("side", "name"), [(0, "source"), (1, "target")])
def test_an_example_beyond_the_budget_is_named_before_training(side: int, name: str) -> None:
    pairs: list[tuple[list[int], list[int]]] = [([4], [5]) for _ in range(300)]
    pairs[260][side].extend(range(30))
    message = rf"example 260 of corpus 2 has 32 {name} tokens.*at most 31: raise train\.tokens to 32.*data\.longest"
    with pytest.raises(ValueError, match=message):
        Feed([store_of(30), Memory(pairs)], [1.0, 1.0], 31)
    with pytest.raises(ValueError, match="example 260 has 32"):
        list(in_order(Memory(pairs), 31))
    assert list(Feed([Memory(pairs)], [1.0], 32).epoch(0))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stores": [], "weights": []}, "nothing to draw from"),
        ({"stores": [Memory([])]}, "nothing to draw from"),
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
def test_what_cannot_go_on_to_the_end_is_refused_before_it_begins(change: dict[str, Any], complaint: str) -> None:
    feed = Feed([store_of(30)], [1.0], 40)
    with pytest.raises(ValueError, match=complaint):
        replace(feed, **change)


def test_a_position_of_other_data_is_refused() -> None:
    feed = Feed([store_of(30)], [1.0], 40)
    with pytest.raises(ValueError, match="beyond the 1 pools"):
        feed.epochs(Position(0, 1, 0))
    with feed.epochs(Position(0, 0, 999)) as stream, pytest.raises(ValueError, match=r"beyond the \d+ steps"):
        next(stream)
    with pytest.raises(ValueError, match="negative"):
        Position(0, -1, 0)


def test_a_failing_store_is_heard_of_where_the_batches_are_taken() -> None:
    class Broken(Memory):
        def gather(self, which: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            raise OSError("the disk is gone")

    with Feed([Broken(store_of(30).pairs)], [1.0], 40).epochs() as stream, pytest.raises(OSError, match="disk is gone"):
        next(stream)
    assert not [thread for thread in threading.enumerate() if thread.name == "regard-ahead"]


def test_closing_the_stream_leaves_no_thread_behind() -> None:
    stream = Feed([store_of(300)], [1.0], 40).epochs()
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "regard-ahead"]


def test_pinning_is_left_out_where_there_is_no_cuda() -> None:
    with Feed([store_of(30)], [1.0], 40).epochs(pin=True) as stream:
        batch = next(stream).batches[0]
    assert batch.labels_N.is_pinned() == torch.cuda.is_available()
    assert batch.source.values.is_pinned() == torch.cuda.is_available()


def test_a_real_store_with_real_subword_sampling_feeds_every_pair(tmp_path: Path) -> None:
    pairs = [(f"the house number {number} is old", f"das Haus Nummer {number} ist alt") for number in range(300)]
    for side, name in enumerate(("en", "de")):
        with gzip.open(tmp_path / f"{name}.gz", "wt", encoding="utf-8") as file:
            file.writelines(pair[side] + "\n" for pair in pairs)
    corpus = TextCorpus(source="en.gz", target="de.gz", tag="<2de>")
    tokenizers = Tokenizers.learn(pairs, size=300, symbols=("<2de>",))
    data = Data(root=str(tmp_path), train=(corpus,))
    store = build_store(corpus, data, tokenizers, cache=tmp_path / "cache", keep_text=True)
    sampling = Sampling(tokenizers.source, tokenizers.target, 0.3, threads=2)
    tag = tokenizers.source.id("<2de>")
    said = []
    for feed in (Feed([store], [1.0], 200), Feed([store], [1.0], 200, sampling=sampling)):
        assert pictures(feed) == pictures(feed)
        found = {}
        for step in feed.epoch(0):
            for batch in step:
                assert max(batch.source_tokens, batch.target_tokens) <= 200
                rows = zip(batch.index_B.tolist(), batch.source.to_list(), batch.target.to_list(), strict=True)
                for number, source, target in rows:
                    assert source[0] == tag
                    found[number] = tokenizers.source.decode(source[1:]), tokenizers.target.decode(target)
        assert [found[number] for number in range(len(pairs))] == pairs
        said.append(sum(batch.source_tokens for step in feed.epoch(0) for batch in step))
    assert said[1] > said[0]
