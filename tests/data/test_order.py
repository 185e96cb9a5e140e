"""The order of an epoch: a permutation that is computed in parts, for corpora mixed by weight."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.order import Mixture, permute

near_powers = [max(1, 2**power + shift) for power in range(13) for shift in (-1, 0, 1)]


def drawn(mixture: Mixture, epoch: int) -> list[tuple[int, int]]:
    corpora, numbers = mixture.draw(epoch, 0, len(mixture))
    return list(zip(corpora.tolist(), numbers.tolist(), strict=True))


@given(st.one_of(st.sampled_from(near_powers), st.integers(1, 5000)), st.integers(0, 2**63 - 1), st.integers(0, 99))
def test_the_order_has_every_number_once(size: int, seed: int, epoch: int) -> None:
    order = permute(np.arange(size), size, (seed, epoch, 0))
    assert sorted(order.tolist()) == list(range(size))


@given(st.integers(1, 2**48), st.data())
def test_any_part_of_the_order_is_computed_without_the_rest(size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = min(size, start + data.draw(st.integers(1, 50)))
    part = permute(np.arange(start, stop), size, (7, 0, 0))
    assert part.tolist() == [permute(np.array([number]), size, (7, 0, 0))[0] for number in range(start, stop)]
    assert len(set(part.tolist())) == stop - start
    assert 0 <= part.min() <= part.max() < size


def test_different_seeds_and_epochs_give_different_orders() -> None:
    orders = [tuple(permute(np.arange(50), 50, (seed, epoch, 0))) for seed in range(10) for epoch in range(10)]
    assert len(set(orders)) == 100


def test_the_order_looks_random() -> None:
    size = 100_000
    order = permute(np.arange(size), size, (1, 0, 0))
    # A random order has evenly distributed gaps, no correlation with the position, and means of known variance.
    gaps, _ = np.histogram(np.diff(order) % size, bins=20, range=(0, size))
    assert abs(gaps - size / 20).max() < 5 * np.sqrt(size / 20)
    assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < 5 / np.sqrt(size)
    means = order.reshape(100, -1).mean(1)
    assert abs(means - size / 2).max() < 5 * size / np.sqrt(12 * 1000)


def test_every_order_of_four_examples_is_about_equally_likely() -> None:
    seen = Counter(tuple(permute(np.arange(4), 4, (seed, 0, 0)).tolist()) for seed in range(2400))
    assert len(seen) == 24
    assert max(seen.values()) < 200


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(0, 20))
def test_at_weight_one_each_example_appears_once(sizes: list[int], epoch: int) -> None:
    mixture = Mixture(tuple(sizes), (1.0,) * len(sizes), seed=3)
    expected = [(corpus, number) for corpus, size in enumerate(sizes) for number in range(size)]
    assert sorted(drawn(mixture, epoch)) == expected


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.05, 4.0)), min_size=1, max_size=4), st.integers(0, 20))
def test_an_example_appears_as_often_as_its_weight_says(parts: list[tuple[int, float]], epoch: int) -> None:
    mixture = Mixture(tuple(size for size, _ in parts), tuple(weight for _, weight in parts), seed=3)
    times = Counter(drawn(mixture, epoch)) if len(mixture) else Counter[tuple[int, int]]()
    for corpus, (size, weight) in enumerate(parts):
        counts = [times[corpus, number] for number in range(size)]
        assert set(counts) <= {int(weight), int(weight) + 1}
        assert abs(sum(counts) - weight * size) <= 0.5 + 1e-9


def test_the_subset_shown_once_more_differs_in_each_epoch() -> None:
    mixture = Mixture((40, 40), (1.25, 0.5), seed=3)
    extras = [
        frozenset(pair for pair, times in Counter(drawn(mixture, epoch)).items() if times == 2) for epoch in range(5)
    ]
    halves = [frozenset(number for corpus, number in drawn(mixture, epoch) if corpus == 1) for epoch in range(5)]
    assert {len(extra) for extra in extras} == {10}
    assert {len(half) for half in halves} == {20}
    assert len(set(extras)) == len(set(halves)) == 5


@pytest.mark.parametrize("cut", [1, 17, 59])
def test_two_parts_of_an_epoch_make_the_epoch(cut: int) -> None:
    mixture = Mixture((40, 20), (1.0, 1.0), seed=3)
    first, second = mixture.draw(0, 0, cut), mixture.draw(0, cut, 60)
    whole = mixture.draw(0, 0, 60)
    assert [*first[1], *second[1]] == whole[1].tolist()
    assert [*first[0], *second[0]] == whole[0].tolist()
