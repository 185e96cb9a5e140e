"""ConvS2S equals plain loops in numpy, written from Gehring et al. 2017; only weights are shared."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from regard.models.build import build
from regard.nn.convolution import ConvolutionWindow, GatedConvolution
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import recording
from regard.recipe import ConvS2S

Array = NDArray[np.float64]
Weights = dict[str, Array]
SOURCE, TARGET = [3, 1, 4, 1, 5, 9, 2], [1, 8, 2, 7, 7]
HALF = np.sqrt(0.5)


def randomised(model: nn.Module) -> Weights:
    torch.manual_seed(2)
    for weight in model.double().eval().parameters():
        nn.init.normal_(weight, std=0.4)
    return {name: weight.detach().numpy() for name, weight in model.state_dict().items()}


def linear(w: Weights, name: str, x: Array) -> Array:
    return np.asarray(w[f"{name}.weight"] @ x + w[f"{name}.bias"])


def convolved(w: Weights, name: str, xs: list[Array], behind: int, kernel: int) -> list[Array]:
    """v([A B]) = A ∘ σ(B) of each token's window (§3.2), zero beyond the ends."""
    out = []
    for i in range(len(xs)):
        places = range(i - behind, i - behind + kernel)
        seen = [xs[j] if 0 <= j < len(xs) else np.zeros_like(xs[0]) for j in places]
        a, b = np.split(linear(w, name, np.concatenate(seen)), 2)
        out.append(a / (1 + np.exp(-b)))
    return out


def embedded(w: Weights, side: str, ids: list[int]) -> list[Array]:
    """Token and position, summed (§3.1)."""
    tokens, places = w[f"{side}.embedding.weight"], w[f"{side}.embedding.position.weight"]
    return [tokens[token] + places[i] for i, token in enumerate(ids)]


def attended(d: Array, zs: list[Array], es: list[Array]) -> tuple[Array, Array]:
    """a_ij = softmax(d · z_j) and c = Σ a_ij (z_j + e_j) (§3.3), times m √(1/m) (§3.4)."""
    scores = np.array([d @ z for z in zs])
    a = np.exp(scores - scores.max())
    a /= a.sum()
    c = sum((weight * (z + e) for weight, z, e in zip(a, zs, es, strict=True)), np.zeros_like(es[0]))
    return a, c * len(zs) * np.sqrt(1 / len(zs))


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_convs2s_equals_the_loop(kernel: int) -> None:
    model = build(
        ConvS2S(width=6, embedding=5, encoder_layers=2, decoder_layers=2, kernel=kernel, positions=9, tied="none"),
        10,
        10,
    )
    w = randomised(model)
    es, gs = embedded(w, "encoder", SOURCE), embedded(w, "decoder", TARGET)
    xs = [linear(w, "encoder.enter", e) for e in es]
    for layer in range(2):
        ys = convolved(w, f"encoder.layers.{layer}.convolution.widen", xs, kernel // 2, kernel)
        xs = [(x + y) * HALF for x, y in zip(xs, ys, strict=True)]
    zs = [linear(w, "encoder.leave", x) for x in xs]
    hs, tables = [linear(w, "decoder.enter", g) for g in gs], []
    for layer in range(2):
        name = f"decoder.layers.{layer}"
        ys = convolved(w, f"{name}.convolution.widen", hs, kernel - 1, kernel)
        hs = [(h + y) * HALF for h, y in zip(hs, ys, strict=True)]
        looks = [attended(linear(w, f"{name}.query", h) + g, zs, es) for h, g in zip(hs, gs, strict=True)]
        hs = [(h + linear(w, f"{name}.context", c)) * HALF for h, (_, c) in zip(hs, looks, strict=True)]
        tables.append([a for a, _ in looks])
    expected = [w["output.weight"] @ linear(w, "decoder.leave", h) for h in hs]
    source, target = Ragged.from_list([SOURCE]), Ragged.from_list([TARGET])
    np.testing.assert_allclose(model(source, target).detach(), expected)
    with recording(model, "decoder.*.cross.weights") as seen:
        model(source, target)
    for layer, table in enumerate(tables):
        np.testing.assert_allclose(seen[f"decoder.layers.{layer}.cross.weights"][0][0, 0].detach(), table)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_convolution_equals_conv1d_and_glu_over_each_sequence(kernel: int, causal: bool) -> None:
    mine, layout = GatedConvolution(4, kernel), Layout.from_lengths([3, 0, 1, 9, 2])
    randomised(mine)
    x = torch.randn(layout.tokens, 4, dtype=torch.float64)
    got = Ragged(mine(x, ConvolutionWindow.from_layout(layout, kernel, causal)), layout).to_list()
    # Their weight is (out, in, kernel); ours has the neighbours side by side.
    theirs = mine.widen.weight.view(8, kernel, 4).transpose(1, 2)
    behind = kernel - 1 if causal else kernel // 2
    for given, convolved_here in zip(Ragged(x, layout).to_list(), got, strict=True):
        if len(given):
            padded = nn.functional.pad(given.T[None], (behind, kernel - 1 - behind))
            expected = nn.functional.glu(nn.functional.conv1d(padded, theirs, mine.widen.bias), 1)
            torch.testing.assert_close(convolved_here, expected[0].T)


def test_positions_beyond_the_learned_ones_are_refused() -> None:
    model = build(ConvS2S(width=6, encoder_layers=1, decoder_layers=1, positions=3, tied="none"), 10, 10)
    with pytest.raises(ValueError, match="a sequence of 4 tokens is longer than the 3 learned positions"):
        model(Ragged.from_list([[1, 2, 3, 4]]), Ragged.from_list([[1]]))
    state = model.start(Ragged.from_list([[1]]))
    for _ in range(3):
        _, state = model.step(torch.tensor([1]), state)
    with pytest.raises(ValueError, match="a sequence of 4 tokens is longer"):
        model.step(torch.tensor([1]), state)
