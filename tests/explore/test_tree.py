"""The tree of a beam search, and position encodings."""

import math
from typing import Any

import numpy as np
import pytest
from tests.explore.asking import fault, one, read, result
from tests.explore.conftest import SETTINGS, SOURCE

from regard.explore import Explorer
from regard.predict import Translator

every = pytest.mark.parametrize("model", SETTINGS)


@every
def test_the_best_path_of_the_tree_is_the_translators_output(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    message, _ = one(explorer, "beam", model=model, source=SOURCE, beam=4)
    expected = translators[model](SOURCE, beam=4)
    nodes = [message["nodes"][at] for at in message["best"]]
    assert message["finished"][0] == {"node": message["best"][-1], "text": expected.text, "score": nodes[-1]["score"]}
    assert nodes[-1]["score"] == pytest.approx(expected.score)
    assert [node["piece"] for node in nodes] == [*expected.tokens, "</s>"]
    assert [node["logprob"] for node in nodes] == pytest.approx(expected.token_logprobs)


@every
def test_a_node_adds_its_own_log_probability_to_its_parents(explorer: Explorer, model: str) -> None:
    nodes = one(explorer, "beam", model=model, source=SOURCE, beam=3)[0]["nodes"]
    root: dict[str, Any] = {"total": 0.0, "place": -1, "fate": "kept"}
    for at, node in enumerate(nodes):
        parent = nodes[node["parent"]] if node["parent"] is not None else root
        assert node["parent"] is None or node["parent"] < at
        assert node["place"] == parent["place"] + 1
        assert parent["fate"] == "kept"
        assert node["total"] == pytest.approx(parent["total"] + node["logprob"], rel=1e-6)
    assert {node["fate"] for node in nodes} >= {"kept", "ended"}


def test_a_search_with_changes_has_a_tree(explorer: Explorer) -> None:
    question = {"model": "transformer", "source": SOURCE, "beam": 3, "changes": [{"op": "block", "tokens": [0, 1]}]}
    message, _ = one(explorer, "beam", **question)
    answer = result(read(explorer, "transformer", beam=3, changes=question["changes"]))
    assert message["finished"][0]["text"] == answer["text"]
    assert message["nodes"] != one(explorer, "beam", model="transformer", source=SOURCE, beam=3)[0]["nodes"]


def test_more_hypotheses_than_beams_are_refused(explorer: Explorer) -> None:
    assert "use a wider beam" in fault(explorer, {"kind": "beam", "source": SOURCE, "beam": 2, "nbest": 3})


@every
def test_sinusoids_distances_and_periods_are_those_of_the_paper(explorer: Explorer, model: str) -> None:
    message, arrays = one(explorer, "positions", model=model, count=20)
    table, width = arrays["sinusoidal"], arrays["sinusoidal"].shape[1]
    for position in (0, 1, 19):
        for pair in range(width // 2):
            angle = position / 10000 ** (2 * pair / width)
            assert table[position, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-6)
    distance = np.linalg.norm(table[3].astype(float) - table[11])
    assert arrays["distances"][3, 11] == pytest.approx(distance, rel=1e-4)
    assert arrays["periods"][:2] == pytest.approx([2 * math.pi] * 2)
    assert arrays["periods"].shape == (width,)
    kinds = {
        "transformer": "sinusoidal",
        "norm last, learned": "learned",
        "convs2s": "learned",
        "rotary, window": "rotary",
        "alibi, additive": "alibi",
    }
    assert message["kind_of_model"] == kinds.get(model, "none")
    assert ("learned" in arrays) == (message["kind_of_model"] == "learned")


def test_learned_positions_are_the_models_own(explorer: Explorer, translators: dict[str, Translator]) -> None:
    _, arrays = one(explorer, "positions", model="norm last, learned", count=9)
    weight = translators["norm last, learned"].model.get_parameter("encoder.embedding.position.weight")
    np.testing.assert_allclose(arrays["learned"], weight.detach().numpy()[:9], rtol=1e-6)
    assert arrays["learned_distances"].shape == (9, 9)
