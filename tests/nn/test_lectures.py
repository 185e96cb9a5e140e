"""The worked numbers of the lectures this project grew from."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from regard.nn.attention.dense import AttentionCore, explicit_attention
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.attention.scores import AdditiveScore, BilinearScore, DotScore, make_score_function
from regard.nn.embedding import Embedding
from regard.nn.position import SinusoidalPositions
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import Tap, recording


def weights_of(scores: list[list[float]], mask: Tensor | None = None) -> Tensor:
    """Return the attention weights of these scores, by the function that the models use."""
    given = torch.tensor(scores, dtype=torch.float64)[None, None]
    core = AttentionCore(DotScore(), Tap(), Tap(), Tap(), nn.Dropout(0.0))
    identity = torch.eye(given.shape[-1], dtype=torch.float64)[None, None]
    allowed = torch.ones_like(given, dtype=torch.bool) if mask is None else mask[None, None]
    # With the identity for keys, queries are the scores; with the identity for values, the result is the weights.
    return explicit_attention(given, identity, identity, allowed, None, core)[0, 0]


@pytest.mark.parametrize(
    ("products", "divided", "weights"),
    [
        ((112, 96), (14, 12), (0.88, 0.12)),  # the second lecture: Thinking Machines, q1
        ((32, 64), (4, 8), (0.02, 0.98)),  # the fourth lecture: Thinking Machines, q2
    ],
)
def test_scores_divided_by_the_root_of_64_and_their_softmax(
    products: tuple[int, int], divided: tuple[int, int], weights: tuple[float, float]
) -> None:
    # A query along one axis and keys of the products' lengths along it give exactly these dot products.
    query, keys = torch.zeros(1, 64), torch.zeros(2, 64)
    query[0, 0], keys[:, 0] = 1.0, torch.tensor(products, dtype=torch.float32)
    scores = make_score_function("scaled", 64)(query, keys)
    assert scores[0].tolist() == list(divided)
    assert [round(x, 2) for x in weights_of(scores.tolist())[0].tolist()] == list(weights)


@pytest.mark.parametrize(("scores", "weights"), [((1, 0.71), (0.57, 0.43)), ((1, -1), (0.88, 0.12))])
def test_the_orange_is_part_apple_or_part_motorcycle(scores: tuple[float, float], weights: tuple[float, float]) -> None:
    """The third lecture: the orange by its neighbour, e^x making every coefficient positive and their sum 1."""
    assert [round(x, 2) for x in weights_of([list(scores)])[0].tolist()] == list(weights)


def test_dot_products_of_the_words_on_the_plane() -> None:
    """The third lecture: (1, 4)·(0, 3) = 12 and (1, 4)·(3, 0) = 3."""
    assert DotScore()(torch.tensor([[1.0, 4.0]]), torch.tensor([[0.0, 3.0], [3.0, 0.0]])).tolist() == [[12.0, 3.0]]


SECOND_LECTURE = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]]
FIRST_LECTURE = [[63.3, 1.2, 2.6, 7.2], [3.25, 96.1, 1.2, 2.1], [12.0, 11.9, 52.9, 2.9], [1.6, 63.1, 14.2, 101.3]]


def test_the_look_ahead_mask_is_the_lower_triangle() -> None:
    """The second lecture's table: 0 on and below the diagonal, minus infinity above it."""
    position = torch.arange(4)
    allowed = AttentionMask(causal=True).allows(position[:, None], position)
    assert allowed.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("scores", [FIRST_LECTURE, SECOND_LECTURE], ids=["first lecture", "second lecture"])
def test_masked_keys_get_exactly_zero_and_the_others_their_softmax(scores: list[list[float]]) -> None:
    weights = weights_of(scores, torch.ones(4, 4, dtype=torch.bool).tril())
    for row, (seen, got) in enumerate(zip(scores, weights, strict=True)):
        total = sum(math.exp(score) for score in seen[: row + 1])
        assert got[row + 1 :].tolist() == [0.0] * (3 - row)
        assert got[: row + 1].tolist() == pytest.approx([math.exp(score) / total for score in seen[: row + 1]])


def test_attention_weights_are_a_table_of_query_by_key_whose_rows_sum_to_one() -> None:
    """The first lecture: four words make a 4 × 4 table, and 4 × 512 comes out."""
    attention = SelfAttention(512, 1).double()
    layout = Layout.from_lengths([4])
    with recording(attention, "weights") as seen:
        out = attention(torch.randn(4, 512, dtype=torch.float64), plan_attention(AttentionMask(), layout, layout))
    assert seen["weights"][0].shape == (1, 1, 4, 4)
    torch.testing.assert_close(seen["weights"][0].sum(-1), torch.ones(1, 1, 4, dtype=torch.float64))
    assert out.shape == (4, 512)


# The fourth lecture's printed tables: rows are dimensions 0 to 3, columns positions 0 to 3.
FIRST_TWO = [[0.0, 0.841, 0.909, 0.141], [1.0, 0.540, -0.416, -0.990]]
AT_WIDTH_50 = [*FIRST_TWO, [0.0, 0.638, 0.983, 0.875], [1.0, 0.770, 0.186, -0.484]]
AT_WIDTH_20 = [*FIRST_TWO, [0.0, 0.388, 0.715, 0.930], [1.0, 0.922, 0.699, 0.368]]


@pytest.mark.parametrize(("width", "table"), [(50, AT_WIDTH_50), (20, AT_WIDTH_20)])
def test_the_printed_position_tables(width: int, table: list[list[float]]) -> None:
    encoded = SinusoidalPositions(width)(torch.arange(4), torch.empty(0, dtype=torch.float64))
    assert [[round(x, 3) for x in row] for row in encoded[:, :4].T.tolist()] == table


@pytest.mark.parametrize("step", [1, 2, 7, 50])
def test_a_step_of_k_positions_is_one_rotation_wherever_it_begins(step: int) -> None:
    """The fourth lecture's matrix M = [[cos ωk, sin ωk], [-sin ωk, cos ωk]], independent of pos."""
    width = 32
    encoded = SinusoidalPositions(width)(torch.arange(200), torch.empty(0, dtype=torch.float64)).view(
        200, width // 2, 2
    )
    turn = 10000.0 ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width) * step
    rotation = torch.stack([turn.cos(), turn.sin(), -turn.sin(), turn.cos()], -1).view(-1, 2, 2)
    moved = (rotation @ encoded[:-step, :, :, None])[..., 0]
    torch.testing.assert_close(moved, encoded[step:])


def test_distances_between_positions_are_symmetric_and_decay() -> None:
    """The fourth lecture: neighbouring time-steps' products are symmetric and fall off smoothly."""
    encoded = SinusoidalPositions(128)(torch.arange(101), torch.empty(0, dtype=torch.float64))
    near = encoded @ encoded[50]
    torch.testing.assert_close(near[:50].flip(0), near[51:])
    assert all(closer > further for closer, further in pairwise(near[50:57].tolist()))


def shuffled(attention: SelfAttention, x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output for shuffled tokens, and the shuffled output for the tokens."""
    layout = Layout.from_lengths([x_ND.shape[0]])
    order = torch.tensor([2, 0, 3, 1])
    plan = plan_attention(AttentionMask(), layout, layout)
    return attention(x_ND[order], plan), attention(x_ND, plan)[order]


def test_self_attention_without_positions_ignores_order() -> None:
    """The fourth lecture: changing the order of words changes the order of the values only."""
    of_shuffled, then_shuffled = shuffled(SelfAttention(16, 2).double(), torch.randn(4, 16, dtype=torch.float64))
    torch.testing.assert_close(of_shuffled, then_shuffled)


def test_self_attention_with_positions_knows_order() -> None:
    attention, embed = SelfAttention(16, 2).double(), Embedding(9, 16, SinusoidalPositions(16)).double()
    ids, layout = torch.tensor([3, 1, 4, 8]), Layout.from_lengths([4])
    order = torch.tensor([2, 0, 3, 1])
    plan = plan_attention(AttentionMask(), layout, layout)
    straight = attention(embed(Ragged(ids, layout)), plan)[order]
    mixed = attention(embed(Ragged(ids[order], layout)), plan)
    assert (straight - mixed).abs().max() > 1e-2


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_one_two_and_eight_heads_have_the_same_number_of_parameters(
    kind: type[SelfAttention] | type[CrossAttention],
) -> None:
    """The fourth lecture: model size does not increase with the number of heads."""
    counts = {sum(weight.numel() for weight in kind(64, heads).parameters()) for heads in (1, 2, 8)}
    assert len(counts) == 1


def test_the_three_score_functions_against_their_formulas() -> None:
    """The fourth lecture: hᵀs, hᵀWs and w₂ᵀ tanh(W₁[h, s]), one pair at a time."""
    queries, keys = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    bilinear, additive = BilinearScore(4, 4).double(), AdditiveScore(4, 4, 6).double()
    w1 = torch.cat([additive.from_query.weight, additive.from_key.weight], 1)
    for i, h in enumerate(queries):
        for j, s in enumerate(keys):
            torch.testing.assert_close(DotScore()(queries, keys)[i, j], sum(a * b for a, b in zip(h, s, strict=True)))
            torch.testing.assert_close(bilinear(queries, keys)[i, j], h @ (bilinear.weight @ s))
            mlp = additive.outer.weight[0] @ torch.tanh(w1 @ torch.cat([h, s]))
            torch.testing.assert_close(additive(queries, keys)[i, j], mlp)
