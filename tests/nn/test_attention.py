"""Every kernel gives the numbers of a plain loop, and holds the laws of attention."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn.attention import kernels
from regard.nn.attention.dense import Inside
from regard.nn.attention.flex import block_mask
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import Plan, plan
from regard.nn.attention.scores import Dot, Score, make_score
from regard.nn.attention.sight import Sight, alibi_slopes
from regard.nn.ragged import Layout
from regard.nn.tap import Tap, recording, replacing

lengths_of_a_batch = st.lists(st.one_of(st.just(0), st.just(1), st.integers(0, 20)), min_size=1, max_size=8)
pairs_of_lengths = st.lists(
    st.tuples(st.one_of(st.just(0), st.integers(0, 12)), st.one_of(st.just(0), st.integers(0, 12))),
    min_size=1,
    max_size=8,
)
# Built here, not by hypothesis: the checks of their types throw dice of their own.
sights = st.sampled_from(
    [
        Sight(causal=causal, window=window, slopes=slopes)
        for causal in (False, True)
        for window in (None, 1, 4)
        for slopes in ((), alibi_slopes(2))
    ]
)
HEADS, SIZE, VALUE_SIZE = 2, 4, 3


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def inside(score: Score | None = None) -> Inside:
    return Inside(score or Dot(SIZE**-0.5), Tap(), Tap(), Tap(), nn.Dropout(0.0))


def watched(score: Score | None = None) -> Inside:
    """The same, but somebody looks."""
    within = inside(score)
    within.weights.watching(lambda x: x).__enter__()
    return within


def by_plain_loop(q: Tensor, k: Tensor, v: Tensor, sight: Sight, queries: Layout, keys: Layout) -> Tensor:
    """One query, one head, one key at a time."""
    out = torch.zeros(q.shape[0], HEADS, v.shape[2], dtype=q.dtype)
    for row in range(q.shape[0]):
        sequence, place = int(queries.sequence_N[row]), int(queries.position_N[row])
        begin, end = keys.offsets[sequence : sequence + 2].tolist()
        for head in range(HEADS):
            scores = {}
            for other in range(begin, end):
                distance = (other - begin) - place
                hidden = (sight.causal and distance > 0) or (sight.window is not None and abs(distance) > sight.window)
                if not hidden:
                    less = sight.slopes[head] * abs(distance) if sight.slopes else 0.0
                    scores[other] = math.exp(float(q[row, head] @ k[other, head]) / math.sqrt(SIZE) - less)
            for other, score in scores.items():
                out[row, head] += score / sum(scores.values()) * v[other, head]
    return out


def unprepared(prepared: Plan) -> Plan:
    """The plan of a device where nothing could be prepared."""
    return dataclasses.replace(prepared, cells=None)


@given(lengths_of_a_batch, sights)
@settings(max_examples=25)
def test_every_kernel_gives_the_numbers_of_a_plain_loop(lengths: list[int], sight: Sight) -> None:
    layout = Layout.from_lengths(lengths)
    q, k, v = (
        normal(layout.tokens, HEADS, SIZE),
        normal(layout.tokens, HEADS, SIZE),
        normal(layout.tokens, HEADS, VALUE_SIZE),
    )
    expected = by_plain_loop(q, k, v, sight, layout, layout)
    prepared = plan(sight, layout, layout)
    assert prepared.cells is not None
    torch.testing.assert_close(kernels.attend(q, k, v, prepared, inside()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, unprepared(prepared), inside()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, prepared, watched()), expected)


@given(pairs_of_lengths)
@settings(max_examples=25)
def test_every_kernel_gives_the_numbers_of_a_plain_loop_across_sequences(lengths: list[tuple[int, int]]) -> None:
    queries, keys = (Layout.from_lengths(each) for each in zip(*lengths, strict=True))
    q, k, v = (
        normal(queries.tokens, HEADS, SIZE),
        normal(keys.tokens, HEADS, SIZE),
        normal(keys.tokens, HEADS, VALUE_SIZE),
    )
    expected = by_plain_loop(q, k, v, Sight(), queries, keys)
    prepared = plan(Sight(), queries, keys)
    torch.testing.assert_close(kernels.attend(q, k, v, prepared, inside()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, unprepared(prepared), inside()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, prepared, watched()), expected)


@pytest.mark.parametrize("sight", [Sight(), Sight(causal=True), Sight(window=20), Sight(causal=True, window=300)])
def test_a_block_left_unvisited_holds_nothing_to_see(sight: Sight) -> None:
    layout = Layout.from_lengths([300, 17, 0, 128, 1, 260, 40])
    blocks = block_mask(sight, layout, layout)
    visited = (
        blocks.to_dense()[0, 0].repeat_interleave(128, 0).repeat_interleave(128, 1)[: layout.tokens, : layout.tokens]
    )
    same = layout.sequence_N[:, None] == layout.sequence_N
    allowed = same & sight.allows(layout.position_N[:, None], layout.position_N)
    assert not bool((allowed & (visited == 0)).any())
    assert bool((visited == 0).any())


@pytest.mark.parametrize("score", ["dot", "scaled", "bilinear", "additive"])
def test_watched_is_unwatched_whatever_the_score(score: str) -> None:
    attention, layout = SelfAttention(8, 2, score=score).double(), Layout.from_lengths([3, 0, 1, 7])
    x, there = normal(11, 8), plan(Sight(causal=True), layout, layout)
    unwatched = attention(x, there)
    with recording(attention, "*") as seen:
        torch.testing.assert_close(attention(x, there), unwatched)
    assert all(len(passed) == 1 for passed in seen.values())


@given(lengths_of_a_batch, sights)
@settings(max_examples=25)
def test_weights_are_positive_sum_to_one_and_are_zero_where_one_may_not_look(lengths: list[int], sight: Sight) -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths(lengths)
    with recording(attention, "[mw]*") as seen:
        attention(normal(layout.tokens, 8), plan(sight, layout, layout))
    weights, mask = seen["weights"][0], seen["mask"][0].expand_as(seen["weights"][0])
    assert bool((weights >= 0).all())
    assert bool((weights[~mask] == 0).all())
    sums = weights.sum(-1)[mask.any(-1)]
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_a_replaced_weight_changes_what_comes_out() -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths([3])
    x, there = normal(3, 8), plan(Sight(), layout, layout)
    with replacing(attention, "weights", lambda _name, weights: torch.zeros_like(weights)):
        torch.testing.assert_close(attention(x, there), attention.out.bias.expand(3, 8))


def test_a_window_of_r_is_all_when_r_reaches_everything_and_else_is_not() -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths([6])
    x = normal(6, 8)
    everything = attention(x, plan(Sight(), layout, layout))
    torch.testing.assert_close(attention(x, plan(Sight(window=5), layout, layout)), everything)
    assert (attention(x, plan(Sight(window=2), layout, layout)) - everything).abs().max() > 1e-6


def gradients_hold(attention: SelfAttention | CrossAttention, *inputs: Tensor, there: Plan) -> bool:
    leaves = [each.requires_grad_() for each in inputs]
    return torch.autograd.gradcheck(lambda *given: attention(*given, there), leaves)


@pytest.mark.parametrize("sight", [Sight(), Sight(causal=True), Sight(window=1, slopes=alibi_slopes(2))])
def test_gradients_of_the_regrouped_kernel_against_finite_differences(sight: Sight) -> None:
    layout = Layout.from_lengths([3, 0, 1, 2, 3])
    assert gradients_hold(SelfAttention(4, 2).double(), normal(9, 4), there=plan(sight, layout, layout))


def test_gradients_of_cross_attention_against_finite_differences_when_some_see_nothing() -> None:
    queries, keys = Layout.from_lengths([2, 1, 0, 3]), Layout.from_lengths([3, 0, 2, 4])
    attention = CrossAttention(4, 2, key_size=3, value_size=1).double()
    assert gradients_hold(attention, normal(6, 4), normal(9, 4), there=plan(Sight(), queries, keys))


@pytest.mark.parametrize("score", ["bilinear", "additive"])
def test_gradients_of_the_watchable_kernel_against_finite_differences(score: str) -> None:
    layout = Layout.from_lengths([2, 0, 3])
    assert gradients_hold(SelfAttention(4, 2, score=score).double(), normal(5, 4), there=plan(Sight(), layout, layout))


@pytest.mark.parametrize("cells", [True, False])
def test_gradients_are_the_same_watched_and_unwatched(cells: bool) -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths([5, 0, 1, 4, 9])
    prepared = plan(Sight(), layout, layout)
    prepared = prepared if cells else unprepared(prepared)
    x = normal(19, 8).requires_grad_()
    (unwatched,) = torch.autograd.grad(attention(x, prepared).square().sum(), x)
    with recording(attention, "weights"):
        (seen,) = torch.autograd.grad(attention(x, prepared).square().sum(), x)
    torch.testing.assert_close(seen, unwatched)


def test_dropout_on_weights_falls_in_training_only() -> None:
    attention, layout = SelfAttention(8, 2, dropout=0.5).double(), Layout.from_lengths([30])
    x, there = normal(30, 8), plan(Sight(), layout, layout)
    assert not torch.equal(attention(x, there), attention(x, there))
    assert torch.equal(attention.eval()(x, there), attention(x, there))


def test_alibi_slopes_are_the_papers_for_eight_heads_and_fill_up_between_powers_of_two() -> None:
    assert alibi_slopes(8) == tuple(2.0**-i for i in range(1, 9))
    assert alibi_slopes(1) == (2.0**-8,)
    six = alibi_slopes(6)
    assert six[:4] == alibi_slopes(4)
    assert six[4:] == alibi_slopes(8)[0::2][:2]


def test_an_unknown_score_names_the_ones_there_are() -> None:
    with pytest.raises(ValueError, match="no attention score 'cosine'; it may be dot, scaled, bilinear or additive"):
        make_score("cosine", 8)


def test_a_width_that_does_not_divide_into_the_heads_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"width 10 does not divide into 3 heads; it divides into \[1, 2, 5, 10\]"):
        SelfAttention(10, 3)


def test_a_window_that_shows_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 neighbour to each side, not 0"):
        Sight(window=0)


def test_unequal_numbers_of_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sequences cannot look at 3"):
        plan(Sight(), Layout.from_lengths([1, 2]), Layout.from_lengths([1, 2, 3]))
