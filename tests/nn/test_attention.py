"""Every attention kernel agrees with a plain loop and obeys the laws of attention."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn.attention import kernels
from regard.nn.attention.dense import AttentionCore
from regard.nn.attention.flex import block_mask
from regard.nn.attention.mask import AttentionMask, alibi_slopes
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import AttentionPlan, plan_attention
from regard.nn.attention.scores import DotScore, ScoreFunction, make_score_function
from regard.nn.ragged import Layout
from regard.nn.tap import Tap, recording, replacing

lengths_of_a_batch = st.lists(st.one_of(st.just(0), st.just(1), st.integers(0, 20)), min_size=1, max_size=8)
pairs_of_lengths = st.lists(
    st.tuples(st.one_of(st.just(0), st.integers(0, 12)), st.one_of(st.just(0), st.integers(0, 12))),
    min_size=1,
    max_size=8,
)
# Created here and not by hypothesis, because the run-time type checks draw random numbers of their own.
masks = st.sampled_from(
    [
        AttentionMask(causal=causal, window=window, slopes=slopes)
        for causal in (False, True)
        for window in (None, 1, 4)
        for slopes in ((), alibi_slopes(2))
    ]
)
HEADS, SIZE, VALUE_SIZE = 2, 4, 3


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make_core(score: ScoreFunction | None = None) -> AttentionCore:
    return AttentionCore(score or DotScore(SIZE**-0.5), Tap(), Tap(), Tap(), nn.Dropout(0.0))


def make_watched_core(score: ScoreFunction | None = None) -> AttentionCore:
    """A core whose weights are watched."""
    core = make_core(score)
    core.weights.watching(lambda x: x).__enter__()
    return core


def attention_by_loops(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, queries: Layout, keys: Layout) -> Tensor:
    """Attention, one query, head and key at a time."""
    out = torch.zeros(q.shape[0], HEADS, v.shape[2], dtype=q.dtype)
    for row in range(q.shape[0]):
        sequence, position = int(queries.sequence_N[row]), int(queries.position_N[row])
        begin, end = keys.offsets[sequence : sequence + 2].tolist()
        for head in range(HEADS):
            scores = {}
            for key in range(begin, end):
                distance = (key - begin) - position
                hidden = (mask.causal and distance > 0) or (mask.window is not None and abs(distance) > mask.window)
                if not hidden:
                    penalty = mask.slopes[head] * abs(distance) if mask.slopes else 0.0
                    scores[key] = math.exp(float(q[row, head] @ k[key, head]) / math.sqrt(SIZE) - penalty)
            for key, score in scores.items():
                out[row, head] += score / sum(scores.values()) * v[key, head]
    return out


def without_buckets(plan: AttentionPlan) -> AttentionPlan:
    """Return the plan without its buckets of sequences of similar length."""
    return dataclasses.replace(plan, buckets=None)


@given(lengths_of_a_batch, masks)
@settings(max_examples=25)
def test_every_kernel_agrees_with_a_plain_loop_in_self_attention(lengths: list[int], mask: AttentionMask) -> None:
    layout = Layout.from_lengths(lengths)
    q, k, v = (
        normal(layout.tokens, HEADS, SIZE),
        normal(layout.tokens, HEADS, SIZE),
        normal(layout.tokens, HEADS, VALUE_SIZE),
    )
    expected = attention_by_loops(q, k, v, mask, layout, layout)
    plan = plan_attention(mask, layout, layout)
    assert plan.buckets is not None
    torch.testing.assert_close(kernels.attend(q, k, v, plan, make_core()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, without_buckets(plan), make_core()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, plan, make_watched_core()), expected)


@given(pairs_of_lengths)
@settings(max_examples=25)
def test_every_kernel_agrees_with_a_plain_loop_in_cross_attention(lengths: list[tuple[int, int]]) -> None:
    queries, keys = (Layout.from_lengths(side) for side in zip(*lengths, strict=True))
    q, k, v = (
        normal(queries.tokens, HEADS, SIZE),
        normal(keys.tokens, HEADS, SIZE),
        normal(keys.tokens, HEADS, VALUE_SIZE),
    )
    expected = attention_by_loops(q, k, v, AttentionMask(), queries, keys)
    plan = plan_attention(AttentionMask(), queries, keys)
    torch.testing.assert_close(kernels.attend(q, k, v, plan, make_core()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, without_buckets(plan), make_core()), expected)
    torch.testing.assert_close(kernels.attend(q, k, v, plan, make_watched_core()), expected)


@pytest.mark.parametrize(
    "mask",
    [AttentionMask(), AttentionMask(causal=True), AttentionMask(window=20), AttentionMask(causal=True, window=300)],
)
def test_a_block_that_is_not_visited_has_no_allowed_pair(mask: AttentionMask) -> None:
    layout = Layout.from_lengths([300, 17, 0, 128, 1, 260, 40])
    blocks = block_mask(mask, layout, layout)
    visited = (
        blocks.to_dense()[0, 0].repeat_interleave(128, 0).repeat_interleave(128, 1)[: layout.tokens, : layout.tokens]
    )
    same = layout.sequence_N[:, None] == layout.sequence_N
    allowed = same & mask.allows(layout.position_N[:, None], layout.position_N)
    assert not bool((allowed & (visited == 0)).any())
    assert bool((visited == 0).any())


@pytest.mark.parametrize("score", ["dot", "scaled", "bilinear", "additive"])
def test_watching_changes_no_output_for_any_score(score: str) -> None:
    attention, layout = SelfAttention(8, 2, score=score).double(), Layout.from_lengths([3, 0, 1, 7])
    x, plan = normal(11, 8), plan_attention(AttentionMask(causal=True), layout, layout)
    unwatched = attention(x, plan)
    with recording(attention, "*") as seen:
        torch.testing.assert_close(attention(x, plan), unwatched)
    assert all(len(tensors) == 1 for tensors in seen.values())


@given(lengths_of_a_batch, masks)
@settings(max_examples=25)
def test_weights_are_not_negative_sum_to_one_and_are_zero_under_the_mask(
    lengths: list[int], mask: AttentionMask
) -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths(lengths)
    with recording(attention, "[mw]*") as seen:
        attention(normal(layout.tokens, 8), plan_attention(mask, layout, layout))
    weights, allowed = seen["weights"][0], seen["mask"][0].expand_as(seen["weights"][0])
    assert bool((weights >= 0).all())
    assert bool((weights[~allowed] == 0).all())
    sums = weights.sum(-1)[allowed.any(-1)]
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_replaced_weights_change_the_output() -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths([3])
    x, plan = normal(3, 8), plan_attention(AttentionMask(), layout, layout)
    with replacing(attention, "weights", lambda _name, weights: torch.zeros_like(weights)):
        torch.testing.assert_close(attention(x, plan), attention.out.bias.expand(3, 8))


def test_a_window_as_wide_as_the_sequence_is_full_attention_and_a_narrow_one_is_not() -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths([6])
    x = normal(6, 8)
    everything = attention(x, plan_attention(AttentionMask(), layout, layout))
    torch.testing.assert_close(attention(x, plan_attention(AttentionMask(window=5), layout, layout)), everything)
    assert (attention(x, plan_attention(AttentionMask(window=2), layout, layout)) - everything).abs().max() > 1e-6


def gradients_hold(attention: SelfAttention | CrossAttention, *inputs: Tensor, plan: AttentionPlan) -> bool:
    leaves = [x.requires_grad_() for x in inputs]
    return torch.autograd.gradcheck(lambda *args: attention(*args, plan), leaves)


@pytest.mark.parametrize(
    "mask", [AttentionMask(), AttentionMask(causal=True), AttentionMask(window=1, slopes=alibi_slopes(2))]
)
def test_gradients_of_bucketed_attention_agree_with_finite_differences(mask: AttentionMask) -> None:
    layout = Layout.from_lengths([3, 0, 1, 2, 3])
    assert gradients_hold(SelfAttention(4, 2).double(), normal(9, 4), plan=plan_attention(mask, layout, layout))


def test_gradients_of_cross_attention_agree_with_finite_differences_for_empty_memories() -> None:
    queries, keys = Layout.from_lengths([2, 1, 0, 3]), Layout.from_lengths([3, 0, 2, 4])
    attention = CrossAttention(4, 2, key_size=3, value_size=1).double()
    assert gradients_hold(attention, normal(6, 4), normal(9, 4), plan=plan_attention(AttentionMask(), queries, keys))


@pytest.mark.parametrize("score", ["bilinear", "additive"])
def test_gradients_of_explicit_attention_agree_with_finite_differences(score: str) -> None:
    layout = Layout.from_lengths([2, 0, 3])
    assert gradients_hold(
        SelfAttention(4, 2, score=score).double(), normal(5, 4), plan=plan_attention(AttentionMask(), layout, layout)
    )


@pytest.mark.parametrize("buckets", [True, False])
def test_gradients_are_equal_watched_and_unwatched(buckets: bool) -> None:
    attention, layout = SelfAttention(8, 2).double(), Layout.from_lengths([5, 0, 1, 4, 9])
    plan = plan_attention(AttentionMask(), layout, layout)
    plan = plan if buckets else without_buckets(plan)
    x = normal(19, 8).requires_grad_()
    (unwatched,) = torch.autograd.grad(attention(x, plan).square().sum(), x)
    with recording(attention, "weights"):
        (seen,) = torch.autograd.grad(attention(x, plan).square().sum(), x)
    torch.testing.assert_close(seen, unwatched)


def test_weights_are_dropped_in_training_only() -> None:
    attention, layout = SelfAttention(8, 2, dropout=0.5).double(), Layout.from_lengths([30])
    x, plan = normal(30, 8), plan_attention(AttentionMask(), layout, layout)
    assert not torch.equal(attention(x, plan), attention(x, plan))
    assert torch.equal(attention.eval()(x, plan), attention(x, plan))


def test_alibi_slopes_are_those_of_the_paper_for_powers_of_two_and_in_between() -> None:
    assert alibi_slopes(8) == tuple(2.0**-i for i in range(1, 9))
    assert alibi_slopes(1) == (2.0**-8,)
    six = alibi_slopes(6)
    assert six[:4] == alibi_slopes(4)
    assert six[4:] == alibi_slopes(8)[0::2][:2]


def test_an_unknown_score_is_an_error_with_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown attention score 'cosine'; choose dot, scaled, bilinear or additive"):
        make_score_function("cosine", 8)


def test_a_width_that_does_not_divide_into_the_heads_is_an_error_with_the_choices() -> None:
    with pytest.raises(
        ValueError, match=r"a width of 10 does not divide into 3 heads; use one of \[1, 2, 5, 10\] heads"
    ):
        SelfAttention(10, 3)


def test_a_window_without_neighbours_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 neighbour on each side, got 0"):
        AttentionMask(window=0)


def test_unequal_numbers_of_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="queries have 2 sequences but keys have 3"):
        plan_attention(AttentionMask(), Layout.from_lengths([1, 2]), Layout.from_lengths([1, 2, 3]))
