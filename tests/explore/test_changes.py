"""Changes act in a search as in a pass over a given target, and end with the answer."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.explore.asking import fault, one, read, result, tables, target_ids
from tests.explore.conftest import ATTENTIVE, HEADED, SOURCE

from regard.explore import Explorer
from regard.explore.attention import attention_layers
from regard.nn.ragged import Ragged
from regard.nn.tap import named_taps, replacing
from regard.predict import Translator
from regard.text import END, PAD, START

attentive = pytest.mark.parametrize("model", ATTENTIVE)
headed = pytest.mark.parametrize("model", HEADED)
OTHER = "The dogs will see me there when it has rained"


def everywhere(translator: Translator, how: str) -> list[dict[str, Any]]:
    """Return changes that ablate every head of every layer."""
    return [
        {"op": "ablate", "part": part, "layer": layer, "heads": list(range(place.heads)), "how": how}
        for part, places in attention_layers(translator.model).items()
        for layer, place in enumerate(places)
    ]


def sentence_tokens(translator: Translator) -> int:
    return len(translator.tokenizers["source"].encode(SOURCE)) + 1


@attentive
def test_no_change_is_the_baseline_bit_for_bit_before_and_after_others(
    translators: dict[str, Translator], model: str
) -> None:
    question = {"id": 1, "kind": "read", "model": model, "source": SOURCE}
    before = list(Explorer(translators).answer(question))
    changed = list(Explorer(translators).answer({**question, "changes": everywhere(translators[model], "mean")}))
    after = list(Explorer(translators).answer({**question, "changes": []}))
    assert before == after
    assert changed != after
    assert not any(tap.watched for tap in named_taps(translators[model].model).values())


@attentive
def test_all_heads_uniform_is_weights_replaced_by_uniform_ones(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    translator = translators[model]
    ids = target_ids(read(explorer, model, target="Ich kann gehen"))
    logprobs_read = read(explorer, model, target_ids=ids, changes=everywhere(translator, "uniform"))
    masks: dict[str, torch.Tensor] = {}

    def note(name: str, mask: torch.Tensor) -> torch.Tensor:
        masks[name.removesuffix(".mask")] = mask
        return mask

    def even(name: str, weights: torch.Tensor) -> torch.Tensor:
        seen = masks[name.removesuffix(".weights")].expand_as(weights).double()
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)

    source = [*translator.tokenizers["source"].encode(SOURCE), END]
    net = translator.model
    with torch.no_grad(), replacing(net, "*.mask", note), replacing(net, "*.weights", even):
        logits = net(Ragged.from_list([source]), Ragged.from_list([[START, *ids[:-1]]]))
    meant = logits.log_softmax(-1)[range(len(ids)), ids]
    assert result(logprobs_read)["logprobs"] == pytest.approx(meant.tolist(), rel=1e-9)
    assert result(logprobs_read)["logprobs"] != result(read(explorer, model, target_ids=ids))["logprobs"]


@attentive
def test_blocked_tokens_get_no_weight_and_the_others_keep_their_proportions(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model))
    block = [{"op": "block", "tokens": [1, 3]}]
    frames = read(explorer, model, target_ids=ids, changes=block)
    for (part, layer), table in tables(frames).items():
        if part == "cross":
            assert not table[..., [1, 3]].any()
            assert table.sum() > 0
            point = {"part": part, "layer": layer, "head": 0, "query": 0}
            _, arrays = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, changes=block, **point)
            if model != "luong, local":
                assert arrays["weights"].sum() == pytest.approx(1)
    # The first layer that looks still has the same queries, so its weights are the old ones but for the blocked.
    point = {"part": "cross", "layer": 0, "head": 0, "query": 0}
    _, plain = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, **point)
    _, changed = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, changes=block, **point)
    left = plain["weights"].copy()
    left[[1, 3]] = 0
    np.testing.assert_allclose(changed["weights"], left * plain["weights"].sum() / left.sum(), atol=1e-6)


@attentive
def test_a_source_blocked_altogether_gives_no_weight_and_no_failure(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    every = list(range(sentence_tokens(translators[model])))
    frames = read(explorer, model, changes=[{"op": "block", "tokens": every}])
    assert all(not table.any() for (part, _), table in tables(frames).items() if part == "cross")
    assert all(np.isfinite(result(frames)["logprobs"]))


@headed
def test_with_all_cross_heads_silent_the_source_does_not_matter(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    silent = [change for change in everywhere(translators[model], "zero") if change["part"] == "cross"]
    ids = target_ids(read(explorer, model, target="Ich kann gehen"))
    logprobs_read = [
        result(read(explorer, model, source=source, target_ids=ids, changes=silent))["logprobs"]
        for source in (SOURCE, OTHER)
    ]
    plain = [result(read(explorer, model, source=source, target_ids=ids))["logprobs"] for source in (SOURCE, OTHER)]
    assert logprobs_read[0] == pytest.approx(logprobs_read[1], rel=1e-9)
    assert plain[0] != pytest.approx(plain[1], rel=1e-9)


@headed
def test_to_keep_some_heads_is_to_silence_the_others_and_to_keep_all_is_nothing(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model))
    place = {"part": "decoder", "layer": 1}

    def logprobs(*changes: dict[str, Any]) -> list[float]:
        found: list[float] = result(read(explorer, model, target_ids=ids, changes=list(changes)))["logprobs"]
        return found

    assert logprobs({"op": "keep", **place, "heads": [1]}) == logprobs({"op": "ablate", **place, "heads": [0]})
    assert logprobs({"op": "keep", **place, "heads": [0, 1]}) == pytest.approx(logprobs(), rel=1e-9)


@headed
def test_a_mean_is_what_the_head_mixes_on_average_over_this_sentence(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    translator, ids = translators[model], target_ids(read(explorer, model))
    change = {"op": "ablate", "part": "encoder", "layer": 1, "heads": [0], "how": "mean"}
    logprobs_read = result(read(explorer, model, target_ids=ids, changes=[change]))["logprobs"]

    def average(_: str, mixed: torch.Tensor) -> torch.Tensor:
        changed = mixed.clone()
        changed[:, 0] = mixed[:, 0].mean(0)
        return changed

    source = [*translator.tokenizers["source"].encode(SOURCE), END]
    with torch.no_grad(), replacing(translator.model, "encoder.layers.1.self.mixed", average):
        logits = translator.model(Ragged.from_list([source]), Ragged.from_list([[START, *ids[:-1]]]))
    assert logprobs_read == pytest.approx(logits.log_softmax(-1)[range(len(ids)), ids].tolist(), rel=1e-9)


@attentive
def test_an_edited_row_replaces_the_weights_and_is_normalised(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    ids = target_ids(read(explorer, model))
    query = len(ids) - 1
    weights = [0.0] * sentence_tokens(translators[model])
    weights[0], weights[-1] = 3.0, 1.0
    change = {"op": "row", "part": "cross", "layer": 0, "head": 0, "query": query, "weights": weights}
    point = {"part": "cross", "layer": 0, "head": 0}
    asked = {"model": model, "source": SOURCE, "target_ids": ids, **point}
    _, arrays = one(explorer, "row", **asked, query=query, changes=[change])
    seen = arrays["weights"] > 0
    meant = np.array(weights) / 4 * seen
    if model == "luong, local":
        assert not arrays["weights"][1:-1].any()
    else:
        np.testing.assert_allclose(arrays["weights"], meant / meant.sum())
    _, before = one(explorer, "row", **asked, query=0)
    _, after = one(explorer, "row", **asked, query=0, changes=[change])
    np.testing.assert_array_equal(before["weights"], after["weights"])


CHANGES: list[dict[str, Any]] = [
    {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "zero"},
    {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "mean"},
    {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "uniform"},
    {"op": "block", "tokens": [0, 2]},
    {"op": "row", "part": "cross", "layer": 0, "head": 0, "query": 1, "weights": [1.0] + [0.0] * 40},
]
INSIDE: list[dict[str, Any]] = [
    {"op": "ablate", "part": "decoder", "layer": 0, "heads": [1], "how": "uniform"},
    {"op": "row", "part": "decoder", "layer": 1, "head": 1, "query": 2, "weights": [1.0, 0.0, 0.0]},
    {"op": "ablate", "part": "encoder", "layer": 0, "heads": [0, 1], "how": "mean"},
    {"op": "row", "part": "encoder", "layer": 1, "head": 0, "query": 0, "weights": [1.0] + [0.0] * 40},
]


@attentive
@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_under_changes_finds_what_the_whole_target_says_of_itself(
    explorer: Explorer, translators: dict[str, Translator], model: str, beam: int
) -> None:
    count = sentence_tokens(translators[model])
    for change in [*CHANGES, *(INSIDE if model in HEADED else [])][::beam]:
        if "weights" in change and change["part"] != "decoder":
            change = {**change, "weights": change["weights"][:count]}
        found = result(read(explorer, model, beam=beam, changes=[change]))
        options = translators[model].search_options(translators[model].options.override(beam=beam))
        penalty = ((5 + len(found["logprobs"])) / 6) ** options.length_penalty
        assert found["score"] == pytest.approx(sum(found["logprobs"]) / penalty), change
        for token, best in zip(found["target"][:-1], found["candidates"], strict=False):
            allowed = [each["id"] for each in best if each["id"] not in (PAD, START)]
            assert beam > 1 or token["id"] == allowed[0], change


@attentive
def test_a_baseline_changes_nothing_of_what_is_found(
    translators: dict[str, Translator], explorer: Explorer, model: str
) -> None:
    ids = target_ids(read(explorer, model, target="Ich kann"))
    for change in ({"op": "block", "tokens": [0]}, {"op": "ablate", "part": "cross", "layer": 0, "heads": [0]}):
        found = target_ids(read(explorer, model, changes=[change]))
        for baseline in (found, ids):
            fresh = Explorer(translators)
            again = result(read(fresh, model, changes=[change], baseline=baseline))
            assert [token["id"] for token in again["target"]] == found
            assert len(again["baseline"]["logprobs"]) >= len(baseline) - 1


def test_what_a_change_leaves_the_most_probable_is_not_searched_for_again(translators: dict[str, Translator]) -> None:
    taught, keep = translators["norm last, learned"], [{"op": "keep", "part": "cross", "layer": 0, "heads": [0, 1]}]
    source = taught.tokenizers["source"].encode(SOURCE)
    with torch.no_grad():
        logits = taught.model(Ragged.from_list([[*source, END]]), Ragged.from_list([[START]]))
        weight = taught.model.output.weight
        before = weight.clone()
        # The end is what it says at once, so nothing is cut.
        weight[END] = weight[int(logits[0].argmax())] * 2
    try:
        frames = read(Explorer(translators), "norm last, learned", changes=keep, baseline=[END])
        assert target_ids(frames) == [END]
        assert not [message for message, _ in frames if message["kind"] == "target"]
    finally:
        with torch.no_grad():
            weight.copy_(before)


@attentive
def test_the_baseline_is_judged_under_the_changes(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model))
    block = [{"op": "block", "tokens": [0]}]
    judged = result(read(explorer, model, changes=block, baseline=ids))["baseline"]["logprobs"]
    assert judged == result(read(explorer, model, changes=block, target_ids=ids))["logprobs"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": "ablate", "part": "cross", "layer": 9, "heads": [0]}, "no layer 9"),
        ({"op": "ablate", "part": "cross", "layer": 0, "heads": [7]}, "no head 7"),
        ({"op": "keep", "part": "cross", "layer": 0, "heads": []}, "heads"),
        ({"op": "block", "tokens": [99]}, "no source token 99"),
        ({"op": "row", "part": "cross", "layer": 0, "head": 0, "query": 0, "weights": [1.0]}, "the row has 1 weights"),
        ({"op": "row", "part": "decoder", "layer": 0, "head": 0, "query": 3, "weights": [1.0]}, "attends to 4 keys"),
        ({"op": "row", "part": "decoder", "layer": 0, "head": 0, "query": 0, "weights": [0.0]}, "zero"),
        ({"op": "row", "part": "encoder", "layer": 0, "head": 0, "query": 0, "weights": [-1.0]}, "greater than"),
        ({"op": "forget"}, "op"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused_in_words(
    explorer: Explorer, change: dict[str, Any], said: str
) -> None:
    question = {"kind": "read", "model": "transformer", "source": SOURCE, "changes": [change]}
    assert said in fault(explorer, question)


def test_what_a_family_has_not_cannot_be_changed(explorer: Explorer) -> None:
    def asked(model: str, change: dict[str, Any]) -> str:
        return fault(explorer, {"kind": "read", "model": model, "source": SOURCE, "changes": [change]})

    assert "no cross-attention" in asked("sutskever", {"op": "block", "tokens": [0]})
    assert "no 'encoder' attention" in asked("luong", {"op": "keep", "part": "encoder", "layer": 0, "heads": [0]})
