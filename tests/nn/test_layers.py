"""Positions, norms, feed-forward and embedding, each against its formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.feedforward import FeedForward, make_activation
from regard.nn.norm import ScaleNorm, make_norm
from regard.nn.position import LearnedPositions, RotaryPositions, SinusoidalPositions, make_position_encoding
from regard.nn.ragged import Ragged
from regard.nn.tap import recording

DOUBLE = torch.empty(0, dtype=torch.float64)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 1000))
@settings(max_examples=30)
def test_rotary_products_depend_on_the_distance_only(query: int, key: int, shift: int) -> None:
    rotary, q, k = RotaryPositions(8), normal(1, 2, 8), normal(1, 2, 8)

    def product(query: int, key: int) -> Tensor:
        product: Tensor = (rotary(q, torch.tensor([query])) * rotary(k, torch.tensor([key]))).sum(-1)
        return product

    torch.testing.assert_close(product(query, key), product(query + shift, key + shift))


def test_rotary_rotates_each_pair_by_its_own_angle() -> None:
    x = normal(1, 1, 4)
    rotated = RotaryPositions(4)(x, torch.tensor([3]))
    for pair, angle in enumerate((3.0, 3.0 / 10000 ** (2 / 4))):
        was, now = complex(*x[0, 0, pair::2].tolist()), complex(*rotated[0, 0, pair::2].tolist())
        assert abs(now / was - complex(math.cos(angle), math.sin(angle))) < 1e-12


def test_rotary_needs_an_even_head_size() -> None:
    with pytest.raises(ValueError, match="even head size, got 5"):
        RotaryPositions(5)


@pytest.mark.parametrize("width", [7, 8])
def test_sinusoidal_positions_against_the_papers_formula(width: int) -> None:
    encoded = SinusoidalPositions(width)(torch.tensor([0, 5, 4000]), DOUBLE)
    for row, position in enumerate((0, 5, 4000)):
        for i in range(width):
            angle = position / 10000 ** (2 * (i // 2) / width)
            assert float(encoded[row, i]) == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-12)


def test_sinusoidal_halves_permute_the_interleaved_encoding() -> None:
    position = torch.arange(9)
    rotated, halves = SinusoidalPositions(6)(position, DOUBLE), SinusoidalPositions(6, halves=True)(position, DOUBLE)
    assert torch.equal(torch.cat([rotated[:, 0::2], rotated[:, 1::2]], 1), halves)


def test_an_unknown_position_encoding_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="there is no position encoding 'spiral'"):
        make_position_encoding("spiral", 8, 8)


@pytest.mark.parametrize("make", [make_norm, lambda kind, _width: make_activation(kind)])
def test_an_unknown_norm_or_activation_is_an_error_with_the_choices(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"unknown .* 'batch'; choose"):
        make("batch", 8)


def test_layer_norm_against_its_formula() -> None:
    norm, x = make_norm("layer", 6).double(), normal(3, 6)
    spread = ((x - x.mean(1, keepdim=True)) ** 2).mean(1, keepdim=True)
    torch.testing.assert_close(norm(x), (x - x.mean(1, keepdim=True)) / (spread + 1e-5).sqrt())


def test_rms_norm_against_its_formula() -> None:
    norm, x = make_norm("rms", 6).double(), normal(3, 6)
    torch.testing.assert_close(norm(x), x / ((x**2).mean(1, keepdim=True) + 1e-6).sqrt())


def test_scale_norm_scales_every_vector_to_one_length_with_a_correct_gradient() -> None:
    norm, x = ScaleNorm(6).double(), normal(3, 6)
    torch.testing.assert_close(norm(x).norm(dim=1), torch.full((3,), math.sqrt(6), dtype=torch.float64))
    assert torch.autograd.gradcheck(norm, x.requires_grad_())
    assert not norm(torch.zeros(1, 6, dtype=torch.float64)).isnan().any()


def test_feed_forward_with_relu_against_its_formula() -> None:
    layer, x = FeedForward(4, 8).double(), normal(3, 4)
    w1, b1, w2, b2 = layer.widen.weight, layer.widen.bias, layer.narrow.weight, layer.narrow.bias
    torch.testing.assert_close(layer(x), torch.maximum(torch.zeros(()), x @ w1.T + b1) @ w2.T + b2)


def test_feed_forward_with_gelu_against_its_formula() -> None:
    layer, x = FeedForward(4, 8, "gelu").double(), normal(3, 4)
    inner = x @ layer.widen.weight.T + layer.widen.bias
    hidden = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    torch.testing.assert_close(layer(x), hidden @ layer.narrow.weight.T + layer.narrow.bias)


def test_feed_forward_with_gelu_tanh_against_its_formula_and_torch() -> None:
    layer, x = FeedForward(4, 8, "gelu_tanh").double(), normal(3, 4)
    inner = x @ layer.widen.weight.T + layer.widen.bias
    formula = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    for expected in (formula, nn.functional.gelu(inner, approximate="tanh")):
        torch.testing.assert_close(layer(x), expected @ layer.narrow.weight.T + layer.narrow.bias)


def test_feed_forward_with_swiglu_against_its_formula_with_a_correct_gradient() -> None:
    layer, x = FeedForward(4, 8, "swiglu").double(), normal(3, 4)
    w, v = layer.widen.weight.chunk(2)
    bias_w, bias_v = layer.widen.bias.chunk(2)
    gate = x @ w.T + bias_w
    hidden = gate * torch.sigmoid(gate) * (x @ v.T + bias_v)
    torch.testing.assert_close(layer(x), hidden @ layer.narrow.weight.T + layer.narrow.bias)
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


BATCH = Ragged.from_list([[3, 1], [], [4]])


def test_an_embedding_is_the_scaled_token_vector_plus_its_position() -> None:
    embed = Embedding(6, 16, SinusoidalPositions(16)).double()
    positions = SinusoidalPositions(16)(torch.tensor([0, 1, 0]), DOUBLE)
    torch.testing.assert_close(embed(BATCH), embed.weight[torch.tensor([3, 1, 4])] * 4 + positions)


def test_positions_can_be_concatenated_with_the_token_vector() -> None:
    embed = Embedding(6, 16, LearnedPositions(4, 10), join="concatenation", scaled=False).double()
    joined = embed(BATCH)
    torch.testing.assert_close(joined[:, :16], embed.weight[torch.tensor([3, 1, 4])])
    assert joined.shape == (3, 20)
    assert torch.equal(joined[0, 16:], joined[2, 16:])
    assert not torch.equal(joined[0, 16:], joined[1, 16:])


def test_token_position_and_their_sum_pass_taps() -> None:
    embed = Embedding(6, 16, SinusoidalPositions(16)).double()
    with recording(embed, "*") as seen:
        embed(BATCH)
    torch.testing.assert_close(seen["token"][0] + seen["place"][0], seen["joined"][0])


def test_word_dropout_drops_whole_tokens_and_keeps_the_mean() -> None:
    embed = Embedding(1, 4, word_dropout=0.25)
    with torch.no_grad():
        rows = embed(Ragged.from_list([[0] * 4000])) / (embed.weight * 2)
    dropped_N = (rows == 0).all(1)
    torch.testing.assert_close(rows[~dropped_N], torch.full_like(rows[~dropped_N], 1 / 0.75))
    assert 0.2 < float(dropped_N.float().mean()) < 0.3
    assert not (embed.eval()(Ragged.from_list([[0] * 100])) == 0).any()


@pytest.mark.parametrize(("ids", "wrong"), [([[1], [6]], 6), ([[-1, 2]], -1)])
def test_an_id_outside_the_vocabulary_is_named(ids: list[list[int]], wrong: int) -> None:
    with pytest.raises(ValueError, match=f"token id {wrong} is outside the vocabulary of 6"):
        Embedding(6, 4)(Ragged.from_list(ids))


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="a sequence of 3 tokens is longer than the 2 learned positions"):
        Embedding(6, 4, LearnedPositions(4, 2))(Ragged.from_list([[1], [1, 2, 3]]))


def test_an_unknown_join_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be joined by 'product'; choose sum or concatenation"):
        Embedding(6, 4, join="product")


def test_a_tied_output_must_fit_its_embedding() -> None:
    with pytest.raises(ValueError, match=r"shape \(6, 8\) and cannot share an embedding of shape \(6, 4\); untie them"):
        OutputProjection(8, 6, tied=Embedding(6, 4).weight)


def test_shapes_are_checked_in_these_tests() -> None:
    with pytest.raises(TypeError, match="Type-check error"):
        FeedForward(4, 8)(torch.zeros(2, 3, 4))
