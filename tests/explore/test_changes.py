"""Changes have the same effect in a search as in a pass over a given target, and end with the answer."""

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


def ablate_all(translator: Translator, how: str) -> list[dict[str, Any]]:
    """Return changes that ablate every head of every layer."""
    return [
        {"op": "ablate", "part": part, "layer": layer, "heads": list(range(attention.heads)), "how": how}
        for part, layers in attention_layers(translator.model).items()
        for layer, attention in enumerate(layers)
    ]


def sentence_tokens(translator: Translator) -> int:
    return len(translator.tokenizers["source"].encode(SOURCE)) + 1


@attentive
def test_without_changes_the_answer_is_the_same_before_and_after_others_with_changes(
    translators: dict[str, Translator], model: str
) -> None:
    question = {"id": 1, "kind": "read", "model": model, "source": SOURCE}
    before = list(Explorer(translators).answer(question))
    changed = list(Explorer(translators).answer({**question, "changes": ablate_all(translators[model], "mean")}))
    after = list(Explorer(translators).answer({**question, "changes": []}))
    assert before == after
    assert changed != after
    assert not any(tap.watched for tap in named_taps(translators[model].model).values())


@attentive
def test_ablation_to_uniform_equals_replacing_all_weights_by_uniform_ones(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    translator = translators[model]
    ids = target_ids(read(explorer, model, target="Ich kann gehen"))
    changed = read(explorer, model, target_ids=ids, changes=ablate_all(translator, "uniform"))
    masks: dict[str, torch.Tensor] = {}

    def record_mask(name: str, mask: torch.Tensor) -> torch.Tensor:
        masks[name.removesuffix(".mask")] = mask
        return mask

    def uniform(name: str, weights: torch.Tensor) -> torch.Tensor:
        visible = masks[name.removesuffix(".weights")].expand_as(weights).double()
        return visible / visible.sum(-1, keepdim=True).clamp(min=1)

    source = [*translator.tokenizers["source"].encode(SOURCE), END]
    with (
        torch.no_grad(),
        replacing(translator.model, "*.mask", record_mask),
        replacing(translator.model, "*.weights", uniform),
    ):
        logits = translator.model(Ragged.from_list([source]), Ragged.from_list([[START, *ids[:-1]]]))
    expected = logits.log_softmax(-1)[range(len(ids)), ids]
    assert result(changed)["logprobs"] == pytest.approx(expected.tolist(), rel=1e-9)
    assert result(changed)["logprobs"] != result(read(explorer, model, target_ids=ids))["logprobs"]


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
    # The queries of the first layer are unchanged, so its weights are the old ones without the blocked tokens.
    point = {"part": "cross", "layer": 0, "head": 0, "query": 0}
    _, plain = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, **point)
    _, changed = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, changes=block, **point)
    remaining = plain["weights"].copy()
    remaining[[1, 3]] = 0
    np.testing.assert_allclose(changed["weights"], remaining * plain["weights"].sum() / remaining.sum(), atol=1e-6)


@attentive
def test_a_source_with_all_tokens_blocked_gives_no_weights_and_finite_log_probabilities(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    tokens = list(range(sentence_tokens(translators[model])))
    frames = read(explorer, model, changes=[{"op": "block", "tokens": tokens}])
    assert all(not table.any() for (part, _), table in tables(frames).items() if part == "cross")
    assert all(np.isfinite(result(frames)["logprobs"]))


@headed
def test_with_all_cross_attention_heads_at_zero_the_source_does_not_matter(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    ablations = [change for change in ablate_all(translators[model], "zero") if change["part"] == "cross"]
    ids = target_ids(read(explorer, model, target="Ich kann gehen"))
    changed = [
        result(read(explorer, model, source=source, target_ids=ids, changes=ablations))["logprobs"]
        for source in (SOURCE, OTHER)
    ]
    plain = [result(read(explorer, model, source=source, target_ids=ids))["logprobs"] for source in (SOURCE, OTHER)]
    assert changed[0] == pytest.approx(changed[1], rel=1e-9)
    assert plain[0] != pytest.approx(plain[1], rel=1e-9)


@headed
def test_keeping_some_heads_ablates_the_others_and_keeping_all_changes_nothing(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model))
    layer = {"part": "decoder", "layer": 1}

    def logprobs(*changes: dict[str, Any]) -> list[float]:
        values: list[float] = result(read(explorer, model, target_ids=ids, changes=list(changes)))["logprobs"]
        return values

    assert logprobs({"op": "keep", **layer, "heads": [1]}) == logprobs({"op": "ablate", **layer, "heads": [0]})
    assert logprobs({"op": "keep", **layer, "heads": [0, 1]}) == pytest.approx(logprobs(), rel=1e-9)


@headed
def test_mean_ablation_uses_the_mean_output_of_the_head_over_the_sentence(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    translator, ids = translators[model], target_ids(read(explorer, model))
    change = {"op": "ablate", "part": "encoder", "layer": 1, "heads": [0], "how": "mean"}
    changed = result(read(explorer, model, target_ids=ids, changes=[change]))["logprobs"]

    def average(_: str, mixed: torch.Tensor) -> torch.Tensor:
        changed = mixed.clone()
        changed[:, 0] = mixed[:, 0].mean(0)
        return changed

    source = [*translator.tokenizers["source"].encode(SOURCE), END]
    with torch.no_grad(), replacing(translator.model, "encoder.layers.1.self.mixed", average):
        logits = translator.model(Ragged.from_list([source]), Ragged.from_list([[START, *ids[:-1]]]))
    assert changed == pytest.approx(logits.log_softmax(-1)[range(len(ids)), ids].tolist(), rel=1e-9)


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
    question = {"model": model, "source": SOURCE, "target_ids": ids, **point}
    _, arrays = one(explorer, "row", **question, query=query, changes=[change])
    visible = arrays["weights"] > 0
    expected = np.array(weights) / 4 * visible
    if model == "luong, local":
        assert not arrays["weights"][1:-1].any()
    else:
        np.testing.assert_allclose(arrays["weights"], expected / expected.sum())
    _, before = one(explorer, "row", **question, query=0)
    _, after = one(explorer, "row", **question, query=0, changes=[change])
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
def test_a_search_with_changes_agrees_with_a_pass_over_its_output(
    explorer: Explorer, translators: dict[str, Translator], model: str, beam: int
) -> None:
    count = sentence_tokens(translators[model])
    for change in [*CHANGES, *(INSIDE if model in HEADED else [])][::beam]:
        if "weights" in change and change["part"] != "decoder":
            change = {**change, "weights": change["weights"][:count]}
        answer = result(read(explorer, model, beam=beam, changes=[change]))
        options = translators[model].search_options(translators[model].options.override(beam=beam))
        penalty = ((5 + len(answer["logprobs"])) / 6) ** options.length_penalty
        assert answer["score"] == pytest.approx(sum(answer["logprobs"]) / penalty), change
        for token, best in zip(answer["target"][:-1], answer["candidates"], strict=False):
            allowed = [candidate["id"] for candidate in best if candidate["id"] not in (PAD, START)]
            assert beam > 1 or token["id"] == allowed[0], change


@attentive
def test_a_baseline_does_not_change_the_output(
    translators: dict[str, Translator], explorer: Explorer, model: str
) -> None:
    ids = target_ids(read(explorer, model, target="Ich kann"))
    for change in ({"op": "block", "tokens": [0]}, {"op": "ablate", "part": "cross", "layer": 0, "heads": [0]}):
        output = target_ids(read(explorer, model, changes=[change]))
        for baseline in (output, ids):
            fresh = Explorer(translators)
            again = result(read(fresh, model, changes=[change], baseline=baseline))
            assert [token["id"] for token in again["target"]] == output
            assert len(again["baseline"]["logprobs"]) >= len(baseline) - 1


def test_a_baseline_that_stays_the_most_probable_is_not_searched_for_again(translators: dict[str, Translator]) -> None:
    translator = translators["norm last, learned"]
    keep = [{"op": "keep", "part": "cross", "layer": 0, "heads": [0, 1]}]
    source = translator.tokenizers["source"].encode(SOURCE)
    with torch.no_grad():
        logits = translator.model(Ragged.from_list([[*source, END]]), Ragged.from_list([[START]]))
        weight = translator.model.output.weight
        before = weight.clone()
        # The end symbol is the most probable first token, so the output is not truncated.
        weight[END] = weight[int(logits[0].argmax())] * 2
    try:
        frames = read(Explorer(translators), "norm last, learned", changes=keep, baseline=[END])
        assert target_ids(frames) == [END]
        assert not [message for message, _ in frames if message["kind"] == "target"]
    finally:
        with torch.no_grad():
            weight.copy_(before)


@attentive
def test_the_baseline_is_scored_with_the_changes(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model))
    block = [{"op": "block", "tokens": [0]}]
    scored = result(read(explorer, model, changes=block, baseline=ids))["baseline"]["logprobs"]
    assert scored == result(read(explorer, model, changes=block, target_ids=ids))["logprobs"]


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_an_invalid_change_is_refused_with_a_reason(explorer: Explorer, change: dict[str, Any], message: str) -> None:
    question = {"kind": "read", "model": "transformer", "source": SOURCE, "changes": [change]}
    assert message in fault(explorer, question)


def test_a_change_of_attention_that_the_family_does_not_have_is_refused(explorer: Explorer) -> None:
    def message(model: str, change: dict[str, Any]) -> str:
        return fault(explorer, {"kind": "read", "model": model, "source": SOURCE, "changes": [change]})

    assert "no cross-attention" in message("sutskever", {"op": "block", "tokens": [0]})
    assert "no 'encoder' attention" in message("luong", {"op": "keep", "part": "encoder", "layer": 0, "heads": [0]})
