"""The hierarchical recurrent attention network equals plain loops in numpy, written from the paper's equations.

Only weights are shared. Xing et al. 2018: words of a turn, turns from the last to the first, and both for each step.
"""

from typing import Literal

import numpy as np
import pytest
from tests.equivalence.test_recurrent_oracle import (
    Array,
    Weights,
    cell_of,
    initial_state,
    randomised,
    sigmoid,
    softmax,
    vectors,
)

from regard.models.build import build
from regard.nn.ragged import NestedRagged, Ragged
from regard.nn.tap import recording
from regard.recipe import Hran

DIALOGUES = [[[3, 1, 4], [1, 5], [9, 2, 6, 5]], [[3]], [[8, 7], [2]]]
TARGETS = [[1, 8, 2, 7], [1], [1, 4, 4]]
WIDTH = 6


def read_turn(w: Weights, turn: list[int]) -> tuple[list[Array], Array]:
    """Return the states of the words of a turn, and the last state of the backward direction."""
    xs, prefix, directions = vectors(w, "encoder", turn), "encoder.recurrence.cells", []
    for order, suffix in ((xs, "l0"), (xs[::-1], "l0_reverse")):
        state, out = initial_state(w, prefix), []
        for x in order:
            state = cell_of(w, prefix, suffix)(x, state)
            out.append(state[0])
        directions.append(out)
    words = [np.concatenate(pair) for pair in zip(directions[0], directions[1][::-1], strict=True)]
    return words, directions[1][-1]


def attend(w: Weights, s: Array, turns: list[list[Array]]) -> tuple[Array, Array, list[Array]]:
    """Return the context of a step, the weights of the turns, and those of the words of each turn."""
    c = "decoder.cell"
    v, u = w[f"{c}.words.score.outer.weight"][0], w[f"{c}.turns.score.outer.weight"][0]
    merged, bias = w[f"{c}.reader.hidden.weight"], w[f"{c}.reader.hidden.bias"]
    from_s, from_h = w[f"{c}.words.score.from_query.weight"], w[f"{c}.words.score.from_key.weight"]
    from_l, hidden = np.split(merged, [WIDTH])
    from_l_bias, hidden_bias = np.split(bias, [WIDTH])
    matrix = np.concatenate([from_s, from_l, from_h], 1)
    state, states, alphas = np.zeros(WIDTH), list[Array](), list[Array]()
    for words in reversed(turns):
        together = [np.concatenate([s, state, h]) for h in words]
        alpha = softmax(np.array([v @ np.tanh(matrix @ x + from_l_bias) for x in together]))
        r = sum((weight * h for weight, h in zip(alpha, words, strict=True)), np.zeros_like(words[0]))
        reset_i, update_i, new_i = np.split(w[f"{c}.reader.inputs.weight"] @ r, 3)
        reset_h, update_h, new_h = np.split(hidden @ state + hidden_bias, 3)
        z, n = sigmoid(update_i + update_h), np.tanh(new_i + sigmoid(reset_i + reset_h) * new_h)
        state = (1 - z) * n + z * state
        states.insert(0, state)
        alphas.insert(0, alpha)
    pairs = np.concatenate([w[f"{c}.turns.score.from_query.weight"], w[f"{c}.turns.score.from_key.weight"]], 1)
    beta = softmax(np.array([u @ np.tanh(pairs @ np.concatenate([s, state])) for state in states]))
    return sum((weight * state for weight, state in zip(beta, states, strict=True)), np.zeros(WIDTH)), beta, alphas


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_hran_equals_the_loop(cell: Literal["lstm", "gru"]) -> None:
    model = build(Hran(width=WIDTH, embedding=5, cell=cell, tied="none"), 10, 10)
    w = randomised(model)
    with recording(model, "decoder.cell.*.weights") as seen:
        logits = model(NestedRagged.from_list(DIALOGUES), Ragged.from_list(TARGETS)).detach().numpy()
    turn_weights, word_weights = (
        seen[f"decoder.cell.{level}.weights"][0][:, 0].detach().numpy() for level in ("turns", "words")
    )
    expected = []
    for number, (dialogue, target) in enumerate(zip(DIALOGUES, TARGETS, strict=True)):
        read = [read_turn(w, turn) for turn in dialogue]
        first = np.tanh(w["decoder.bridge.weight"] @ read[-1][1] + w["decoder.bridge.bias"])
        state = [first, *initial_state(w, "decoder.cell.recurrence.cells")[1:]]
        for step, y in enumerate(vectors(w, "decoder", target)):
            c, beta, alphas = attend(w, state[0], [words for words, _ in read])  # from the state before this step
            state = cell_of(w, "decoder.cell.recurrence.cells", "l0")(np.concatenate([y, c]), state)
            t = w["decoder.readout.mix.weight"] @ np.concatenate([state[0], y, c]) + w["decoder.readout.mix.bias"]
            expected.append(w["output.weight"] @ t.reshape(-1, 2).max(1))
            alpha = np.concatenate(alphas)
            np.testing.assert_allclose(turn_weights[number, step, : len(beta)], beta)
            np.testing.assert_allclose(word_weights[number, step, : len(alpha)], alpha)
            assert not turn_weights[number, step, len(beta) :].any()
            assert not word_weights[number, step, len(alpha) :].any()
    np.testing.assert_allclose(logits, expected)
