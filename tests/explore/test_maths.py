"""Each number of the maths view follows from those before it, computed by numpy in double precision."""

from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.explore.asking import fault, one, read, target_ids
from tests.explore.conftest import HEADED, SINGLE, SOURCE
from torch import nn

from regard.explore import Explorer
from regard.explore.attention import attention_layers
from regard.models.recurrent.luong import AttentionalLayer
from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.attention.scores import AdditiveScore, BilinearScore
from regard.predict import Translator

Table = NDArray[np.float64]


headed = pytest.mark.parametrize("model", HEADED)
part = pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])


def numbers(explorer: Explorer, model: str, **where: Any) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return the message and the arrays of one query."""
    ids = target_ids(read(explorer, model))
    message, arrays = one(explorer, "maths", model=model, source=SOURCE, target_ids=ids, **where)
    assert [stage["tensor"] for stage in message["stages"]] == list(
        dict.fromkeys(s["tensor"] for s in message["stages"])
    )
    for stage in message["stages"]:
        assert list(arrays[stage["tensor"]].shape) == stage["shape"]
        assert stage["formula"]
    assert arrays.keys() == {stage["tensor"] for stage in message["stages"]}
    return message, {name: array.astype(np.float64) for name, array in arrays.items()}


def close(actual: Table, expected: Table, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Assert that arrays are equal in single precision, which frames have."""
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def softmax(scores: Table) -> Table:
    exponentials = np.exp(scores - scores.max())
    weights: Table = exponentials / exponentials.sum()
    return weights


@headed
@part
@pytest.mark.parametrize("layer", [0, 1])
def test_weights_mixture_and_output_of_a_head_follow_from_its_query_keys_and_values(
    explorer: Explorer, translators: dict[str, Translator], model: str, part: Any, layer: int
) -> None:
    module = attention_layers(translators[model].model)[part][layer].module
    assert isinstance(module, MultiHeadAttention)
    _, seen = numbers(explorer, model, part=part, layer=layer, head=1, query=2)
    match module.score:
        case AdditiveScore():
            hidden = np.tanh(seen["projected_query"] + seen["projected_keys"])
            scores = hidden @ seen["outer"]
        case BilinearScore():
            scores = seen["k"] @ seen["projected_query"]
        case _:
            scores = seen["k"] @ seen["q"] / np.sqrt(len(seen["q"]))
    scores = scores + seen.get("bias", 0)
    close(seen["scores"], scores)
    masked = np.where(seen["mask"] == 1, -np.inf, scores)
    close(seen["masked"], masked)
    close(seen["weights"], softmax(masked))
    close(seen["mixed"], softmax(masked) @ seen["v"])
    size = module.value_size
    close(seen["joined"][size : 2 * size], seen["mixed"])
    out = module.out
    weight = out.weight.detach().numpy()
    bias = 0 if out.bias is None else out.bias.detach().numpy()
    close(seen["output"], weight @ seen["joined"] + bias)
    close(seen["residual"], seen["stream"] + seen["output"])


@headed
@part
def test_the_input_of_a_head_follows_from_the_residual_stream_and_the_token(
    explorer: Explorer, translators: dict[str, Translator], model: str, part: Any
) -> None:
    _, seen = numbers(explorer, model, part=part, layer=0, head=0, query=1)
    if "position" in seen:
        concatenated = seen["sum"].size > seen["position"].size
        joined = np.concatenate([seen["embedding"], seen["position"]])
        close(seen["sum"], joined if concatenated else seen["embedding"] + seen["position"])
    else:
        np.testing.assert_array_equal(seen["sum"], seen["embedding"])
    if part != "cross":
        np.testing.assert_array_equal(seen["stream"], seen["sum"])
    for before, after in (("stream", "entered"), ("residual", "normed")):
        if model == "norm last, learned" and before == "stream":
            np.testing.assert_array_equal(seen["entered"], seen["stream"])
            continue
        normalised = (seen[before] - seen[before].mean()) / np.sqrt(seen[before].var() + 1e-5)
        # The scale of a norm is initialised to 1, which the fixture multiplies by 1.5, and the shift to 0.
        close(seen[after], 1.5 * normalised, rtol=1e-4, atol=1e-4)


def test_only_later_tokens_are_masked_and_only_in_a_decoder(explorer: Explorer) -> None:
    _, seen = numbers(explorer, "transformer", part="decoder", layer=1, head=0, query=2)
    assert seen["mask"].tolist() == [0, 0, 0] + [1] * (seen["mask"].size - 3)
    assert not seen["weights"][3:].any()
    for name in ("encoder", "cross"):
        assert not numbers(explorer, "transformer", part=name, layer=1, head=0, query=2)[1]["mask"].any()
    _, near = numbers(explorer, "rotary, window", part="encoder", layer=0, head=0, query=3)
    assert [at for at, hidden in enumerate(near["mask"]) if not hidden] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("model", SINGLE)
def test_weights_and_context_of_single_head_attention_follow_from_its_scores(explorer: Explorer, model: str) -> None:
    _, seen = numbers(explorer, model, part="cross", layer=0, head=0, query=2)
    if "projected_keys" in seen:
        energies = np.tanh(seen["projected_query"] + seen["projected_keys"]) @ seen["outer"]
    else:
        energies = seen["keys"] @ seen.get("projected_query", seen["query"])
    close(seen["energies"], energies)
    weights = softmax(np.where(seen["mask"] == 1, -np.inf, energies))
    if "aligned" in seen:
        close(seen["aligned"], weights)
        away = np.arange(weights.size) - seen["place"]
        np.testing.assert_array_equal(seen["mask"], np.abs(away) > 2)
        weights = weights * np.exp(-(away**2) / 2)  # D = 2, so σ = 1
    close(seen["weights"], weights)
    close(seen["context"], weights @ seen.get("values", seen["keys"]))


def test_each_family_is_shown_with_the_formula_of_its_score(explorer: Explorer) -> None:
    formulas = {"bahdanau": "tanh", "luong": "qᵀ W k", "luong, dot, not fed": "q·k", "luong, local": "tanh"}
    for model, formula in formulas.items():
        message, _ = numbers(explorer, model, part="cross", layer=0, head=0, query=0)
        (energies,) = [stage for stage in message["stages"] if stage["name"] == "energies"]
        assert formula in energies["formula"]


def test_the_token_of_a_query_is_the_one_before_the_predicted_token(explorer: Explorer) -> None:
    ids = target_ids(read(explorer, "transformer", target="Ich kann gehen"))
    question = {"model": "transformer", "source": SOURCE, "target_ids": ids, "part": "decoder", "layer": 0, "head": 0}
    message, _ = one(explorer, "maths", **question, query=0)
    assert message["token"]["piece"] == "<s>"
    message, _ = one(explorer, "maths", **question, query=2)
    assert message["token"]["id"] == ids[1]
    assert [key["id"] for key in message["keys"]][1:] == ids[:-1]


def test_the_numbers_are_those_of_the_changed_model(explorer: Explorer) -> None:
    ids = target_ids(read(explorer, "transformer"))
    question = {"model": "transformer", "source": SOURCE, "target_ids": ids, "part": "cross", "layer": 0, "head": 0}
    change = {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "zero"}
    _, seen = one(explorer, "maths", **question, query=1, changes=[change])
    assert not seen["mixed"].any()
    assert seen["joined"].any()


def test_an_unknown_query_is_refused_with_a_message(explorer: Explorer) -> None:
    question = {"kind": "maths", "model": "transformer", "source": SOURCE, "target_ids": [5, 6], "part": "cross"}
    assert "no query 3" in fault(explorer, {**question, "layer": 0, "head": 0, "query": 3})


def test_a_decoder_without_formulas_of_its_own_is_shown_with_general_ones(
    translators: dict[str, Translator], explorer: Explorer
) -> None:
    class UnknownLayer(nn.Module):
        forward = AttentionalLayer.forward

        def __init__(self, known: AttentionalLayer) -> None:
            super().__init__()
            self.cross, self.combine, self.vector, self.drop = known.cross, known.combine, known.vector, known.drop

    translator = copy(translators["luong"])
    translator.model = deepcopy(translator.model)
    known = translator.model.get_submodule("decoder.top")
    assert isinstance(known, AttentionalLayer)
    translator.model.set_submodule("decoder.top", UnknownLayer(known))
    query = {"source": SOURCE, "target_ids": [5, 6], "part": "cross", "layer": 0, "head": 0, "query": 1}
    declared, _ = one(explorer, "maths", model="luong", **query)
    general, arrays = one(Explorer({"unknown": translator}), "maths", **query)
    assert [stage["name"] for stage in declared["stages"]][:-1] == [stage["name"] for stage in general["stages"]]
    assert declared["stages"][-1]["formula"] == "h̃ = tanh(W_c [context; h])"
    assert arrays["weights"].sum() == pytest.approx(1.0, abs=1e-6)
