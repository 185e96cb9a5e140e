"""The numbers of a frame, computed again from each other in double precision by numpy, are the numbers of the model."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.analysis.look.asking import fault, one, read, target_ids
from tests.analysis.look.conftest import HEADED, SINGLE, SOURCE

from regard.analysis.look import Looker
from regard.analysis.look.parts import parts_of
from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.attention.scores import Additive, Bilinear
from regard.translator import Translator

Table = NDArray[np.float64]


headed = pytest.mark.parametrize("model", HEADED)
part = pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])


def numbers(looker: Looker, model: str, **where: Any) -> tuple[dict[str, Any], dict[str, Table]]:
    """Everything that is told of one query."""
    ids = target_ids(read(looker, model))
    message, arrays = one(looker, "maths", model=model, source=SOURCE, target_ids=ids, **where)
    assert [stage["tensor"] for stage in message["stages"]] == list(
        dict.fromkeys(s["tensor"] for s in message["stages"])
    )
    for stage in message["stages"]:
        assert list(arrays[stage["tensor"]].shape) == stage["shape"]
        assert stage["formula"]
    assert arrays.keys() == {stage["tensor"] for stage in message["stages"]}
    return message, {name: array.astype(np.float64) for name, array in arrays.items()}


def close(found: Table, meant: Table, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Equal to what single precision holds, which is what frames hold."""
    np.testing.assert_allclose(found, meant, rtol=rtol, atol=atol)


def softmax(scores: Table) -> Table:
    raised = np.exp(scores - scores.max())
    made: Table = raised / raised.sum()
    return made


@headed
@part
@pytest.mark.parametrize("layer", [0, 1])
def test_weights_mixture_and_output_of_a_head_follow_from_its_query_keys_and_values(
    looker: Looker, translators: dict[str, Translator], model: str, part: Any, layer: int
) -> None:
    module = parts_of(translators[model].model)[part][layer].module
    assert isinstance(module, MultiHeadAttention)
    message, seen = numbers(looker, model, part=part, layer=layer, head=1, query=2)
    match module.score:
        case Additive():
            hidden = np.tanh(seen["projected_query"] + seen["projected_keys"])
            scores = hidden @ seen["outer"]
        case Bilinear():
            scores = seen["k"] @ seen["projected_query"]
        case _:
            scores = seen["k"] @ seen["q"] / np.sqrt(message["d_k"])
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
def test_what_enters_a_head_follows_from_the_stream_and_the_token(
    looker: Looker, translators: dict[str, Translator], model: str, part: Any
) -> None:
    _, seen = numbers(looker, model, part=part, layer=0, head=0, query=1)
    if "position" in seen:
        beside = seen["sum"].size > seen["position"].size
        joined = np.concatenate([seen["embedding"], seen["position"]])
        close(seen["sum"], joined if beside else seen["embedding"] + seen["position"])
    else:
        np.testing.assert_array_equal(seen["sum"], seen["embedding"])
    if part != "cross":
        np.testing.assert_array_equal(seen["stream"], seen["sum"])
    for before, after in (("stream", "entered"), ("residual", "normed")):
        if model == "norm last, learned" and before == "stream":
            np.testing.assert_array_equal(seen["entered"], seen["stream"])
            continue
        spread = (seen[before] - seen[before].mean()) / np.sqrt(seen[before].var() + 1e-5)
        # Learned scale and shift of a norm: fresh models have ones, made 1.5, and zeros.
        close(seen[after], 1.5 * spread, rtol=1e-4, atol=1e-4)


def test_what_comes_later_is_hidden_from_a_decoder_and_nothing_else(looker: Looker) -> None:
    _, seen = numbers(looker, "transformer", part="decoder", layer=1, head=0, query=2)
    assert seen["mask"].tolist() == [0, 0, 0] + [1] * (seen["mask"].size - 3)
    assert not seen["weights"][3:].any()
    for name in ("encoder", "cross"):
        assert not numbers(looker, "transformer", part=name, layer=1, head=0, query=2)[1]["mask"].any()
    _, near = numbers(looker, "rotary, window", part="encoder", layer=0, head=0, query=3)
    assert [at for at, hidden in enumerate(near["mask"]) if not hidden] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("model", SINGLE)
def test_weights_and_context_of_the_ancestors_follow_from_their_own_scores(looker: Looker, model: str) -> None:
    _, seen = numbers(looker, model, part="cross", layer=0, head=0, query=2)
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


def test_the_score_of_each_family_is_told_by_its_name(looker: Looker) -> None:
    told = {"bahdanau": "tanh", "luong": "qᵀ W k", "luong, dot, not fed": "q·k", "luong, local": "tanh"}
    for model, formula in told.items():
        message, _ = numbers(looker, model, part="cross", layer=0, head=0, query=0)
        (energies,) = [stage for stage in message["stages"] if stage["name"] == "energies"]
        assert formula in energies["formula"]


def test_the_token_a_query_stands_on_is_the_one_before_what_it_tells(looker: Looker) -> None:
    ids = target_ids(read(looker, "transformer", target="Ich kann gehen"))
    asked = {"model": "transformer", "source": SOURCE, "target_ids": ids, "part": "decoder", "layer": 0, "head": 0}
    message, _ = one(looker, "maths", **asked, query=0)
    assert message["token"]["piece"] == "<s>"
    message, _ = one(looker, "maths", **asked, query=2)
    assert message["token"]["id"] == ids[1]
    assert [key["id"] for key in message["keys"]][1:] == ids[:-1]


def test_changed_numbers_are_the_ones_that_are_shown(looker: Looker) -> None:
    ids = target_ids(read(looker, "transformer"))
    asked = {"model": "transformer", "source": SOURCE, "target_ids": ids, "part": "cross", "layer": 0, "head": 0}
    change = {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "zero"}
    _, seen = one(looker, "maths", **asked, query=1, changes=[change])
    assert not seen["mixed"].any()
    assert seen["joined"].any()


def test_a_query_that_is_not_there_is_refused_in_words(looker: Looker) -> None:
    asked = {"kind": "maths", "model": "transformer", "source": SOURCE, "target_ids": [5, 6], "part": "cross"}
    assert "no query 3" in fault(looker, {**asked, "layer": 0, "head": 0, "query": 3})
