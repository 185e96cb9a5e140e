"""The tree of a search, and how places are told apart."""

import math
from typing import Any

import numpy as np
import pytest
from tests.analysis.look.asking import fault, one, read, result
from tests.analysis.look.conftest import OUTLINES, SOURCE

from regard.analysis.look import Looker
from regard.translator import Translator

every = pytest.mark.parametrize("model", OUTLINES)


@every
def test_the_best_way_through_the_tree_is_the_translators_answer(
    looker: Looker, translators: dict[str, Translator], model: str
) -> None:
    message, _ = one(looker, "beam", model=model, source=SOURCE, beam=4)
    meant = translators[model](SOURCE, beam=4)
    nodes = [message["nodes"][at] for at in message["best"]]
    assert message["finished"][0] == {"node": message["best"][-1], "text": meant.text, "score": nodes[-1]["score"]}
    assert nodes[-1]["score"] == pytest.approx(meant.score)
    assert [node["piece"] for node in nodes] == [*meant.tokens, "</s>"]
    assert [node["logprob"] for node in nodes] == pytest.approx(meant.token_logprobs)


@every
def test_a_node_adds_its_own_log_probability_to_its_parents(looker: Looker, model: str) -> None:
    nodes = one(looker, "beam", model=model, source=SOURCE, beam=3)[0]["nodes"]
    root: dict[str, Any] = {"total": 0.0, "place": -1, "fate": "kept"}
    for at, node in enumerate(nodes):
        above = nodes[node["parent"]] if node["parent"] is not None else root
        assert node["parent"] is None or node["parent"] < at
        assert node["place"] == above["place"] + 1
        assert above["fate"] == "kept"
        assert node["total"] == pytest.approx(above["total"] + node["logprob"], rel=1e-6)
    assert {node["fate"] for node in nodes} >= {"kept", "ended"}


def test_a_search_under_changes_has_a_tree_too(looker: Looker) -> None:
    told = {"model": "transformer", "source": SOURCE, "beam": 3, "changes": [{"op": "block", "tokens": [0, 1]}]}
    message, _ = one(looker, "beam", **told)
    found = result(read(looker, "transformer", beam=3, changes=told["changes"]))
    assert message["finished"][0]["text"] == found["text"]
    assert message["nodes"] != one(looker, "beam", model="transformer", source=SOURCE, beam=3)[0]["nodes"]


def test_more_best_than_beams_are_refused(looker: Looker) -> None:
    assert "widen" in fault(looker, {"kind": "beam", "source": SOURCE, "beam": 2, "nbest": 3})


@every
def test_sines_cosines_distances_and_periods_are_the_papers(looker: Looker, model: str) -> None:
    message, arrays = one(looker, "positions", model=model, count=20)
    table, width = arrays["sinusoidal"], arrays["sinusoidal"].shape[1]
    for place in (0, 1, 19):
        for pair in range(width // 2):
            angle = place / 10000 ** (2 * pair / width)
            assert table[place, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[place, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-6)
    apart = np.linalg.norm(table[3].astype(float) - table[11])
    assert arrays["distances"][3, 11] == pytest.approx(apart, rel=1e-4)
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


def test_learned_positions_are_the_models_own(looker: Looker, translators: dict[str, Translator]) -> None:
    _, arrays = one(looker, "positions", model="norm last, learned", count=9)
    weight = translators["norm last, learned"].model.get_parameter("encoder.embedding.position.weight")
    np.testing.assert_allclose(arrays["learned"], weight.detach().numpy()[:9], rtol=1e-6)
    assert arrays["learned_distances"].shape == (9, 9)
