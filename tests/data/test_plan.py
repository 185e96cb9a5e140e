from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.plan import Order, Plan, Shard, cut, even_cuts, plan_pool

lengths_of_pairs = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=120)
orders = st.sampled_from(["random", "length"])


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    source, target = np.array(pairs, np.int64).T
    return source, target


def tokens_of(plan: Plan, lengths: np.ndarray) -> list[int]:
    return [int(lengths[plan.order[start:stop]].sum()) for start, stop in pairwise(plan.cuts)]


# Four of the longest fit a batch, so eight examples or more always suffice for six batches a step.
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=8, max_size=150),
    st.integers(120, 400),
    st.integers(1, 6),
    orders,
)
def test_a_plan_holds_each_example_once_in_whole_steps_of_batches_within_budget(
    pairs: list[tuple[int, int]], tokens: int, parts: int, order: Order
) -> None:
    source, target = columns(pairs)
    plan = plan_pool(source, target, tokens, parts, order, seed=(1,))
    assert sorted(plan.order.tolist()) == list(range(len(pairs)))
    assert len(plan) % parts == 0
    assert np.diff(plan.cuts).min() >= 1
    assert max(tokens_of(plan, source)) <= tokens
    assert max(tokens_of(plan, target)) <= tokens


@given(lengths_of_pairs, st.integers(30, 200))
def test_a_batch_is_cut_only_where_one_more_pair_would_be_too_much(pairs: list[tuple[int, int]], tokens: int) -> None:
    source, target = columns(pairs)
    cuts = cut(np.concatenate([[0], np.cumsum(source)]), np.concatenate([[0], np.cumsum(target)]), tokens).tolist()
    for start, stop in pairwise(cuts):
        assert max(source[start:stop].sum(), target[start:stop].sum()) <= tokens
        if stop < len(pairs):
            assert max(source[start : stop + 1].sum(), target[start : stop + 1].sum()) > tokens


@given(lengths_of_pairs, st.integers(30, 200))
def test_alone_a_process_gets_as_few_batches_as_filling_each_to_the_brim(
    pairs: list[tuple[int, int]], tokens: int
) -> None:
    source, target = columns(pairs)
    brim = cut(np.concatenate([[0], np.cumsum(source)]), np.concatenate([[0], np.cumsum(target)]), tokens)
    assert even_cuts(source, target, tokens, 1).size == brim.size


def test_no_small_batch_is_left_at_the_end() -> None:
    lengths = np.random.default_rng(0).integers(5, 40, 5000)
    plan = plan_pool(lengths, lengths, 1000, 8, "random", seed=(1,))
    sizes = tokens_of(plan, lengths)
    assert len(sizes) % 8 == 0
    assert min(sizes) > 0.85 * max(sizes)


def test_ordered_by_length_batches_need_little_padding_and_steps_come_mixed() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(2, 60, 8000)
    target = np.clip(source + rng.integers(-3, 4, 8000), 1, None)

    def padding(order: Order) -> float:
        plan = plan_pool(source, target, 1000, 2, order, seed=(1,))
        rows = [plan.order[start:stop] for start, stop in pairwise(plan.cuts)]
        padded = sum(len(row) * (source[row].max() + target[row].max()) for row in rows)
        return 1 - float(source.sum() + target.sum()) / float(padded)

    assert padding("length") < 0.1 < 0.4 < padding("random")
    plan = plan_pool(source, target, 1000, 2, "length", seed=(1,))
    first = np.maximum(source, target)[plan.order[plan.cuts[:-1]]].reshape(-1, 2)
    assert abs(first[:, 0] - first[:, 1]).max() <= 3
    assert first[:, 0].tolist() != sorted(first[:, 0])


def test_more_batches_than_examples_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"5 examples do not make 8 batches of at most 10 tokens.*raise train\.tokens"):
        even_cuts(np.full(5, 10), np.full(5, 10), 10, 4)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_the_processes_share_out_every_step(world: int, accumulate: int, steps: int) -> None:
    count = steps * world * accumulate
    shares = [Shard(rank, world, accumulate).batches(count).reshape(steps, accumulate) for rank in range(world)]
    for step in range(steps):
        mine = np.concatenate([share[step] for share in shares])
        assert sorted(mine.tolist()) == list(range(step * world * accumulate, (step + 1) * world * accumulate))


@pytest.mark.parametrize(
    ("rank", "world", "accumulate", "complaint"),
    [
        (2, 2, 1, "rank = 2 is not one of 2"),
        (-1, 2, 1, "rank = -1"),
        (0, 0, 1, "world = 0"),
        (0, 1, 0, "accumulate = 0"),
    ],
)
def test_a_shard_that_cannot_be_is_refused(rank: int, world: int, accumulate: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Shard(rank, world, accumulate)
