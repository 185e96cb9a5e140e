"""The recurrent families equal plain loops in numpy, written from the papers' equations; only weights are shared."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Layout, Ragged
from regard.nn.recurrent import RecurrentLayers
from regard.nn.tap import recording, replacing
from regard.recipe import Bahdanau, Luong, Sutskever

Array = NDArray[np.float64]
Weights = dict[str, Array]
Cell = Callable[[Array, list[Array]], list[Array]]
SOURCE, TARGET = [3, 1, 4, 1, 5, 9, 2, 6], [1, 8, 2, 7]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max())
    return np.asarray(shifted / shifted.sum())


def randomised(model: nn.Module) -> Weights:
    """Randomise every weight, in double precision, and return them."""
    torch.manual_seed(2)
    for weight in model.double().eval().parameters():
        nn.init.normal_(weight, std=0.5)
    return {name: weight.detach().numpy() for name, weight in model.state_dict().items()}


def cell_of(w: Weights, prefix: str, suffix: str) -> Cell:
    """One step of a layer: LSTM (Hochreiter & Schmidhuber 1997; Graves 2013, eq. 7 to 11, no peepholes) or GRU."""
    wi, wh = w[f"{prefix}.weight_ih_{suffix}"], w[f"{prefix}.weight_hh_{suffix}"]
    bi, bh = w[f"{prefix}.bias_ih_{suffix}"], w[f"{prefix}.bias_hh_{suffix}"]

    def lstm(x: Array, state: list[Array]) -> list[Array]:
        h, c = state
        i, f, g, o = np.split(wi @ x + bi + wh @ h + bh, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]

    def gru(x: Array, state: list[Array]) -> list[Array]:
        (h,) = state
        (ri, zi, ni), (rh, zh, nh) = np.split(wi @ x + bi, 3), np.split(wh @ h + bh, 3)
        z, n = sigmoid(zi + zh), np.tanh(ni + sigmoid(ri + rh) * nh)
        return [(1 - z) * n + z * h]

    return lstm if wh.shape[0] == 4 * wh.shape[1] else gru


def initial_state(w: Weights, prefix: str) -> list[Array]:
    wh = w[f"{prefix}.weight_hh_l0"]
    return [np.zeros(wh.shape[1])] * (2 if wh.shape[0] == 4 * wh.shape[1] else 1)


def layers_of(w: Weights, prefix: str) -> int:
    return sum(name.startswith(f"{prefix}.weight_ih_l") for name in w)


def vectors(w: Weights, side: str, ids: list[int]) -> list[Array]:
    table = w[f"{side}.embedding.weight"]
    return [table[i] * np.sqrt(table.shape[1]) for i in ids]


def read_stack(w: Weights, xs: list[Array]) -> tuple[list[Array], list[list[Array]]]:
    """Return the states of the top layer in reading order, and the final state of each layer."""
    prefix, ends = "encoder.recurrence.cells", []
    for layer in range(layers_of(w, prefix)):
        cell, state, out = cell_of(w, prefix, f"l{layer}"), initial_state(w, prefix), []
        for x in xs:
            state = cell(x, state)
            out.append(state[0])
        xs = out
        ends.append(state)
    return xs, ends


def step_stack(w: Weights, x: Array, states: list[list[Array]]) -> tuple[Array, list[list[Array]]]:
    after = []
    for layer, state in enumerate(states):
        after.append(cell_of(w, "decoder.recurrence.cells", f"l{layer}")(x, state))
        x = after[-1][0]
    return x, after


def logits_of(model: Seq2Seq) -> Array:
    logits: Array = model(Ragged.from_list([SOURCE]), Ragged.from_list([TARGET])).detach().numpy()
    return logits


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("backwards", [True, False])
def test_sutskever_equals_the_loop(cell: Literal["lstm", "gru"], backwards: bool) -> None:
    """§2: the last state is where the decoder begins, and all it knows; §3.3: the source may be read from its end."""
    model = build(Sutskever(width=7, embedding=5, layers=3, cell=cell, backwards=backwards, tied="none"), 10, 10)
    w = randomised(model)
    xs = vectors(w, "encoder", SOURCE)
    _, states = read_stack(w, xs[::-1] if backwards else xs)
    expected = []
    for y in vectors(w, "decoder", TARGET):
        top, states = step_stack(w, y, states)
        expected.append(w["output.weight"] @ top)
    np.testing.assert_allclose(logits_of(model), expected)


def soft_alignment(w: Weights, s: Array, hs: list[Array]) -> tuple[Array, Array]:
    """α and c (eq. 5 and 6), with a(s, h) = vᵀ tanh(W s + U h) (§A.1.2)."""
    a = "decoder.cell.cross.score"
    wq, uk, v = w[f"{a}.from_query.weight"], w[f"{a}.from_key.weight"], w[f"{a}.outer.weight"][0]
    alpha = softmax(np.array([v @ np.tanh(wq @ s + uk @ h) for h in hs]))
    return alpha, sum((weight * h for weight, h in zip(alpha, hs, strict=True)), np.zeros_like(hs[0]))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("readout", ["maxout", "linear"])
def test_bahdanau_equals_the_loop(cell: Literal["lstm", "gru"], readout: Literal["maxout", "linear"]) -> None:
    """§3 and appendix A of Bahdanau et al. 2015; the read-out takes s_i, as eq. 4 has it."""
    model = build(Bahdanau(width=6, embedding=5, cell=cell, readout=readout, readout_width=4, tied="none"), 10, 10)
    w = randomised(model)
    xs, prefix = vectors(w, "encoder", SOURCE), "encoder.recurrence.cells"
    directions = []
    for order, suffix in ((xs, "l0"), (xs[::-1], "l0_reverse")):
        state, out = initial_state(w, prefix), []
        for x in order:
            state = cell_of(w, prefix, suffix)(x, state)
            out.append(state[0])
        directions.append(out)
    hs = [np.concatenate(pair) for pair in zip(directions[0], directions[1][::-1], strict=True)]
    first = np.tanh(w["decoder.bridge.weight"] @ directions[1][-1] + w["decoder.bridge.bias"])
    state, expected, alphas = [first, *initial_state(w, prefix)[1:]], [], []
    for y in vectors(w, "decoder", TARGET):
        alpha, c = soft_alignment(w, state[0], hs)  # from the state before this step
        state = cell_of(w, "decoder.cell.recurrence.cells", "l0")(np.concatenate([y, c]), state)
        t = w["decoder.readout.mix.weight"] @ np.concatenate([state[0], y, c]) + w["decoder.readout.mix.bias"]
        if readout == "maxout":
            t = np.array([max(t[2 * j], t[2 * j + 1]) for j in range(4)])
        expected.append(w["output.weight"] @ t)
        alphas.append(alpha)
    with recording(model, "decoder.*.cross.weights") as seen:
        np.testing.assert_allclose(logits_of(model), expected)
    np.testing.assert_allclose(seen["decoder.cell.cross.weights"][0][0, 0].detach(), alphas)


def score(w: Weights, kind: str, h: Array, s: Array) -> float:
    """Luong et al. 2015, §3.1: dot, general, concat."""
    a = "decoder.top.cross.score"
    if kind == "dot":
        return float(h @ s)
    if kind == "bilinear":
        return float(h @ w[f"{a}.weight"] @ s)
    merged = np.concatenate([w[f"{a}.from_query.weight"], w[f"{a}.from_key.weight"]], 1)
    return float(w[f"{a}.outer.weight"][0] @ np.tanh(merged @ np.concatenate([h, s])))


def aligned(w: Weights, kind: str, h: Array, hs: list[Array], reach: int | None) -> Array:
    """Weights of all source states: global, or local-p (§3.2, eq. 9 and 10)."""
    if reach is None:
        return softmax(np.array([score(w, kind, h, s) for s in hs]))
    f = "decoder.top.cross.focus"
    inner = np.tanh(w[f"{f}.inner.weight"] @ h)
    p = len(hs) * float(sigmoid(w[f"{f}.outer.weight"] @ inner)[0])
    window = [j for j in range(len(hs)) if p - reach <= j <= p + reach]
    inside = softmax(np.array([score(w, kind, h, hs[j]) for j in window]))
    weights, deviation = np.zeros(len(hs)), reach / 2
    for j, weight in zip(window, inside, strict=True):
        weights[j] = weight * np.exp(-((j - p) ** 2) / (2 * deviation**2))
    return weights


LUONGS: list[dict[str, Any]] = [
    {"score": "dot", "feeding": False},
    {"score": "dot", "feeding": True},
    {"score": "bilinear", "feeding": False, "backwards": False},
    {"score": "bilinear", "feeding": True},
    {"score": "additive", "feeding": False},
    {"score": "additive", "feeding": True, "cell": "gru"},
    {"score": "bilinear", "feeding": True, "reach": 2},
    {"score": "dot", "feeding": False, "reach": 1},
    {"score": "additive", "feeding": True, "reach": 3, "backwards": False},
]


@pytest.mark.parametrize("chosen", LUONGS, ids=str)
def test_luong_equals_the_loop(chosen: dict[str, Any]) -> None:
    """§3 of Luong et al. 2015: h̃ = tanh(W_c [c; h]) (eq. 5), fed to the next step beside its token (§3.3)."""
    settings = Luong(width=6, embedding=5, layers=2, **chosen, tied="none")
    model = build(settings, 10, 10)
    w = randomised(model)
    xs = vectors(w, "encoder", SOURCE)
    hs, states = read_stack(w, xs[::-1] if settings.backwards else xs)
    hs = hs[::-1] if settings.backwards else hs
    vector, expected, tables = np.zeros(6), [], []
    for y in vectors(w, "decoder", TARGET):
        h, states = step_stack(w, np.concatenate([y, vector]) if settings.feeding else y, states)
        weights = aligned(w, settings.score, h, hs, settings.reach)
        c = sum((weight * s for weight, s in zip(weights, hs, strict=True)), np.zeros(6))
        vector = np.tanh(w["decoder.top.combine.weight"] @ np.concatenate([c, h]))
        expected.append(w["output.weight"] @ vector)
        tables.append(weights)
    np.testing.assert_allclose(logits_of(model), expected)
    with recording(model, "decoder.*.cross.weights") as seen:
        np.testing.assert_allclose(logits_of(model), expected)
    np.testing.assert_allclose(seen["decoder.top.cross.weights"][0][0, 0].detach(), tables)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_over_a_ragged_batch_equal_torch_over_each_sequence(
    kind: type[nn.LSTM] | type[nn.GRU], bidirectional: bool
) -> None:
    mine = RecurrentLayers(kind.__name__.lower(), 4, 5, layers=2, bidirectional=bidirectional).double()
    theirs = kind(4, 5, 2, bidirectional=bidirectional).double()
    randomised(mine)
    theirs.load_state_dict(mine.cells.state_dict())
    layout = Layout.from_lengths([3, 0, 7, 1, 3])
    x = torch.randn(layout.tokens, 4, dtype=torch.float64)
    states, last = mine(x, layout, mine.initial_state(5, x))
    for row, (given, got) in enumerate(zip(Ragged(x, layout).to_list(), Ragged(states, layout).to_list(), strict=True)):
        if len(given):
            out, end = theirs(given)
            torch.testing.assert_close(got, out)
            for part, expected in zip(last, end if isinstance(end, tuple) else (end,), strict=True):
                torch.testing.assert_close(part[:, row], expected)
        else:
            assert not any(bool(part[:, row].any()) for part in last)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_single_steps_equal_reading_the_whole_sequence(kind: str) -> None:
    mine = RecurrentLayers(kind, 4, 5, layers=3).double()
    randomised(mine)
    layout = Layout.from_lengths([6])
    x = torch.randn(6, 4, dtype=torch.float64)
    states, last = mine(x, layout, mine.initial_state(1, x))
    hidden, tops = mine.initial_state(1, x), []
    for token in x:
        top, hidden = mine.step(token[None], hidden)
        tops.append(top[0])
    torch.testing.assert_close(torch.stack(tops), states)
    torch.testing.assert_close(hidden, last)


def test_reading_backwards_equals_reading_the_reversed_source() -> None:
    mine = RecurrentLayers("lstm", 4, 5).double()
    layout = Layout.from_lengths([4, 2])
    x = torch.randn(6, 4, dtype=torch.float64)
    mirrored = torch.cat([x[:4].flip(0), x[4:].flip(0)])
    backwards, last = mine(x, layout, mine.initial_state(2, x), backwards=True)
    forwards, expected = mine(mirrored, layout, mine.initial_state(2, x))
    torch.testing.assert_close(backwards[:4], forwards[:4].flip(0))
    torch.testing.assert_close(backwards[4:], forwards[4:].flip(0))
    torch.testing.assert_close(last[1], expected[1])


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 3), ("gru", 2)])
@pytest.mark.parametrize("backwards", [False, True])
def test_watching_gates_changes_no_output(kind: str, gates: int, backwards: bool) -> None:
    mine = RecurrentLayers(kind, 4, 5, layers=2).double()
    randomised(mine)
    layout = Layout.from_lengths([2, 0, 4, 1])
    x = torch.randn(7, 4, dtype=torch.float64)
    start = tuple(torch.randn_like(state) for state in mine.initial_state(4, x))
    states, last = mine(x, layout, start, backwards)
    with recording(mine, "gates.*") as seen:
        watched, watched_last = mine(x, layout, start, backwards)
    torch.testing.assert_close(watched, states)
    torch.testing.assert_close(watched_last, last)
    assert {name: [gate.shape for gate in tensors] for name, tensors in seen.items()} == {
        "gates.0": [(7, gates, 5)],
        "gates.1": [(7, gates, 5)],
    }
    # With all gates at 0, an LSTM outputs zero; a GRU's update gate at 0 takes only the new value.
    with replacing(mine, "gates.*", lambda _, gate: gate * 0):
        shut, _ = mine(x, layout, start, backwards)
    assert bool((shut == 0).all()) == (kind == "lstm")


def test_an_unknown_cell_is_an_error_with_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown recurrent cell 'elman'; choose lstm or gru"):
        RecurrentLayers("elman", 4, 5)
