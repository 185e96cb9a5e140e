"""A plan divides a pool into whole steps of batches within the budget, for records with any number of sequences."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.plan import BatchPlan, Order, Shard, cut, even_cuts, plan_pool
from regard.data.rows import Numbers, offsets_of

orders = st.sampled_from(["random", "length"])


def pools(examples: int, most: int) -> st.SearchStrategy[list[Numbers]]:
    """Lengths of one, two or three sequences of each example, up to 30 tokens each."""
    rows = st.integers(1, 3).flatmap(
        lambda count: st.lists(st.tuples(*[st.integers(1, 30)] * count), min_size=examples, max_size=most)
    )
    return rows.map(lambda lengths: list(np.array(lengths, np.int64).T))


def tokens_of(plan: BatchPlan, lengths: Numbers) -> list[int]:
    return [int(lengths[plan.examples(batch)].sum()) for batch in range(len(plan))]


# Four of the longest fit into a batch, so eight examples or more always suffice for six batches per step.
@given(pools(8, 150), st.integers(120, 400), st.integers(1, 6), orders)
def test_a_plan_has_each_example_once_in_whole_steps_of_batches_within_budget(
    lengths: list[Numbers], tokens: int, parts: int, order: Order
) -> None:
    plan = plan_pool(lengths, tokens, parts, order, seed=(1,))
    assert sorted(plan.order.tolist()) == list(range(lengths[0].size))
    assert len(plan) % parts == 0
    assert np.diff(plan.cuts).min() >= 1
    assert max(max(tokens_of(plan, counts)) for counts in lengths) <= tokens


@given(pools(1, 120), st.integers(30, 200))
def test_a_batch_is_cut_only_where_one_more_example_would_exceed_the_budget(
    lengths: list[Numbers], tokens: int
) -> None:
    cuts = cut([offsets_of(counts) for counts in lengths], tokens).tolist()
    for start, stop in pairwise(cuts):
        assert max(counts[start:stop].sum() for counts in lengths) <= tokens
        if stop < lengths[0].size:
            assert max(counts[start : stop + 1].sum() for counts in lengths) > tokens


@given(pools(1, 120), st.integers(30, 200))
def test_a_single_process_gets_as_few_batches_as_the_budget_allows(lengths: list[Numbers], tokens: int) -> None:
    full = cut([offsets_of(counts) for counts in lengths], tokens)
    assert even_cuts(lengths, tokens, 1).size == full.size


@given(pools(8, 60), st.data())
def test_a_plan_of_some_batches_has_their_examples(lengths: list[Numbers], data: st.DataObject) -> None:
    plan = plan_pool(lengths, 120, 1, "length", seed=(1,))
    chosen = data.draw(st.lists(st.integers(0, len(plan) - 1), min_size=1))
    part = plan.only(np.array(chosen))
    assert [part.examples(batch).tolist() for batch in range(len(part))] == [
        plan.examples(batch).tolist() for batch in chosen
    ]


def test_no_small_batch_is_left_at_the_end() -> None:
    lengths = np.random.default_rng(0).integers(5, 40, 5000)
    sizes = tokens_of(plan_pool([lengths, lengths], 1000, 8, "random", seed=(1,)), lengths)
    assert len(sizes) % 8 == 0
    assert min(sizes) > 0.85 * max(sizes)


def test_batches_ordered_by_length_need_little_padding_and_steps_are_shuffled() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(2, 60, 8000)
    target = np.clip(source + rng.integers(-3, 4, 8000), 1, None)

    def padding(order: Order) -> float:
        plan = plan_pool([source, target], 1000, 2, order, seed=(1,))
        batches = [plan.examples(batch) for batch in range(len(plan))]
        padded = sum(len(batch) * (source[batch].max() + target[batch].max()) for batch in batches)
        return 1 - float(source.sum() + target.sum()) / float(padded)

    assert padding("length") < 0.1 < 0.4 < padding("random")
    plan = plan_pool([source, target], 1000, 2, "length", seed=(1,))
    first = np.maximum(source, target)[plan.order[plan.cuts[:-1]]].reshape(-1, 2)
    assert abs(first[:, 0] - first[:, 1]).max() <= 3
    assert first[:, 0].tolist() != sorted(first[:, 0])


def test_more_batches_than_examples_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"5 examples do not make 8 batches of at most 10 tokens.*raise train\.tokens"):
        even_cuts([np.full(5, 10)], 10, 4)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_the_processes_divide_every_step(world: int, accumulate: int, steps: int) -> None:
    count = steps * world * accumulate
    shares = [Shard(rank, world, accumulate).batches(count).reshape(steps, accumulate) for rank in range(world)]
    for step in range(steps):
        batches = np.concatenate([share[step] for share in shares])
        assert sorted(batches.tolist()) == list(range(step * world * accumulate, (step + 1) * world * accumulate))


@pytest.mark.parametrize(
    ("rank", "world", "accumulate", "complaint"),
    [
        (2, 2, 1, "rank = 2 is not one of 2"),
        (-1, 2, 1, "rank = -1"),
        (0, 0, 1, "world = 0"),
        (0, 1, 0, "accumulate = 0"),
    ],
)
def test_an_impossible_shard_is_refused(rank: int, world: int, accumulate: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Shard(rank, world, accumulate)
