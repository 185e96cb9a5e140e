"""The answer to `read` contains what the model computed, for every family."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from tests.explore.asking import ask, one, read, result, tables, target_ids
from tests.explore.conftest import ATTENTIVE, HEADED, SETTINGS, SOURCE

from regard.explore import Explorer, inspect, read_frame, write_frame
from regard.explore.frames import quantize_weights
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.predict import Translator
from regard.text import END, START

every = pytest.mark.parametrize("model", SETTINGS)
attentive = pytest.mark.parametrize("model", ATTENTIVE)


def test_a_frame_is_a_safetensors_file_whose_arrays_lie_where_views_may_begin() -> None:
    arrays: dict[str, Any] = {
        "odd": np.arange(3, dtype=np.uint8),
        "wide": np.ones((2, 3), np.float32),
        "half": np.ones(5, np.float16),
    }
    frame = write_frame({"id": 1, "words": "Größe قطة"}, arrays)
    for name, array in load(frame).items():
        np.testing.assert_array_equal(array, arrays[name])
    size = int.from_bytes(frame[:8], "little")
    header = json.loads(frame[8 : 8 + size])
    assert (8 + size) % 8 == 0
    assert all(header[name]["data_offsets"][0] % array.itemsize == 0 for name, array in arrays.items())
    assert read_frame(frame)[0] == {"id": 1, "words": "Größe قطة"}


def test_a_shade_is_near_its_weight_and_zero_and_one_are_exact() -> None:
    weights = np.linspace(0, 1, 1001)
    back = (quantize_weights(weights) / 255.0) ** 2
    assert np.abs(back - weights).max() < 1 / 255
    assert (quantize_weights(np.array([0.0, 1.0])) == [0, 255]).all()
    assert quantize_weights(np.array([1e-4])) > 0


@every
def test_frames_come_in_order_and_only_the_last_says_so(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model)
    kinds = list(dict.fromkeys(message["kind"] for message, _ in frames))
    assert kinds == [each for each in ("tokens", "attention", "target", "result", "heads") if each in kinds] or (
        kinds == ["tokens", "target", "result", "attention", "heads"]
    )
    assert [message["last"] for message, _ in frames] == [False] * (len(frames) - 1) + [True]
    assert {message["id"] for message, _ in frames} == {1}


@every
@pytest.mark.parametrize("beam", [1, 4])
def test_the_translation_is_the_translators_own(
    explorer: Explorer, translators: dict[str, Translator], model: str, beam: int
) -> None:
    found, meant = result(read(explorer, model, beam=beam)), translators[model](SOURCE, beam=beam)
    assert found["text"] == meant.text
    assert found["score"] == pytest.approx(meant.score)
    assert found["logprobs"] == pytest.approx(meant.token_logprobs)
    links = None if meant.alignment is None else " ".join(f"{one}-{other}" for one, other in meant.alignment)
    assert found["alignment"] == links


@attentive
def test_all_weights_of_all_layers_come_and_sum_to_one(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model)
    said = {part["part"]: part for part in _facts(explorer, model)["parts"]}
    found = tables(frames)
    assert found.keys() == {(name, layer) for name, part in said.items() for layer in range(part["layers"])}
    sources, targets = len(result(frames)["source"]), len(result(frames)["target"])
    shapes = {"encoder": (sources, sources), "decoder": (targets, targets), "cross": (targets, sources)}
    for (part, _), table in found.items():
        assert table.shape == (said[part]["heads"], *shapes[part])
        if model != "luong, local":  # whose weights a bell makes smaller
            off = np.abs(((table / 255.0) ** 2).sum(-1) - 1)
            assert off.max() < table.shape[-1] / 255


@attentive
def test_an_exact_row_is_what_passes_the_models_tap(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    ids = target_ids(read(explorer, model))
    translator = translators[model]
    source = [*translator.tokenizers["source"].encode(SOURCE), END]
    with recording(translator.model, "*.weights") as seen:
        translator.model(Ragged.from_list([source]), Ragged.from_list([[START, *ids[:-1]]]))
    for place, (name, (weights,)) in enumerate(seen.items()):
        part = "encoder" if name.startswith("encoder") else "decoder" if "self" in name else "cross"
        layer = [each for each in seen if _same_part(each, name)].index(name)
        query, head = place % weights.shape[2], place % weights.shape[1]
        query_of_head = {"part": part, "layer": layer, "head": head, "query": query}
        _, arrays = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, **query_of_head)
        assert arrays["weights"].dtype == np.float32
        np.testing.assert_allclose(arrays["weights"], weights[0, head, query].detach().numpy(), atol=1e-6)


def _same_part(one: str, other: str) -> bool:
    return one.split(".")[0] == other.split(".")[0] and ("self" in one) == ("self" in other)


@every
def test_tokens_say_where_in_the_line_they_stand(explorer: Explorer, model: str) -> None:
    message, _ = one(explorer, "tokens", model=model, source=SOURCE)
    *real, end = message["tokens"]
    assert (end["special"], end["word"], end["id"]) == (True, None, END)
    assert all(SOURCE[slice(*token["span"])] == token["text"] for token in real)
    assert message["words"] == SOURCE.split()
    joined = ["".join(token["text"] for token in real if token["word"] == at) for at in range(len(message["words"]))]
    assert [word.strip() for word in joined] == message["words"]


def test_an_empty_line_has_nothing_but_its_end(explorer: Explorer) -> None:
    message, _ = one(explorer, "tokens", source="")
    assert [token["special"] for token in message["tokens"]] == [True]


@every
def test_a_given_translation_is_read_instead_of_searched_for(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model, target="Ich kann gehen")
    assert result(frames)["text"] == "Ich kann gehen"
    assert not [message for message, _ in frames if message["kind"] == "target"]
    again = read(explorer, model, target_ids=target_ids(frames))
    assert result(again)["logprobs"] == result(frames)["logprobs"]


@every
def test_a_forced_beginning_is_kept_and_one_that_ends_is_all(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model, target="Ich kann"))
    assert target_ids(read(explorer, model, prefix=ids[:-1]))[: len(ids) - 1] == ids[:-1]
    assert target_ids(read(explorer, model, prefix=ids)) == ids


@every
def test_candidates_are_the_most_probable_and_agree_with_the_log_probabilities(explorer: Explorer, model: str) -> None:
    found = result(read(explorer, model, candidates=5))
    for token, logprob, best in zip(found["target"], found["logprobs"], found["candidates"], strict=True):
        assert len(best) == 5
        assert [each["logprob"] for each in best] == sorted((each["logprob"] for each in best), reverse=True)
        best_logprobs = {candidate["id"]: candidate["logprob"] for candidate in best}
        assert best_logprobs.get(token["id"], logprob) == pytest.approx(logprob)


def test_tokens_are_sent_one_by_one_as_they_are_generated(explorer: Explorer) -> None:
    frames = read(explorer, "transformer")
    prefixes = [[token["id"] for token in message["tokens"]] for message, _ in frames if message["kind"] == "target"]
    ids = target_ids(frames)
    assert prefixes == [ids[:count] for count in range(1, len(ids) + 1)]


def test_the_layer_that_is_seen_comes_first_and_what_is_not_wanted_does_not_come(explorer: Explorer) -> None:
    frames = read(explorer, "transformer", want=["cross"], first={"part": "cross", "layer": 1})
    assert list(tables(frames)) == [("cross", 1), ("cross", 0)]


@attentive
def test_heads_in_numbers_are_what_the_weights_say(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    frames = read(explorer, model)
    weights = inspect(translators[model], SOURCE, target_ids(frames)).weights
    for each in frames[-1][0]["heads"]:
        rows = weights[each["part"], each["layer"]][each["head"]][:-1].astype(np.float64)
        spread = [-sum(w * np.log(w) for w in row if w > 0) for row in rows]
        away = [sum(w * abs(i - j) for j, w in enumerate(row)) for i, row in enumerate(rows)]
        meant = [np.mean([row.max() for row in rows]), np.mean(spread), np.mean(away)]
        assert [each["confidence"], each["entropy"], each["distance"]] == pytest.approx(meant)


def test_another_view_of_the_same_sentence_computes_nothing_again(
    explorer: Explorer, translators: dict[str, Translator]
) -> None:
    ids = target_ids(read(explorer, "transformer"))
    with recording(translators["transformer"].model, "*") as seen:
        read(explorer, "transformer")
        one(explorer, "row", model="transformer", source=SOURCE, target_ids=ids, part="cross", layer=0, head=0, query=0)
    assert not any(seen.values())


@every
def test_a_model_is_described_with_its_parts(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    described = _facts(explorer, model)
    assert (described["task"], described["input"]) == ("translation", "source")
    assert described["learned_positions"] == (model in ("norm last, learned", "convs2s"))
    assert described["parameters"] == sum(each.numel() for each in translators[model].model.parameters())
    parts = ["encoder", "decoder", "cross"] if model in HEADED else [] if model == "sutskever" else ["cross"]
    assert [part["part"] for part in described["parts"]] == parts


def _facts(explorer: Explorer, model: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [each for each in ask(explorer, "models")[0][0]["models"] if each["name"] == model]
    return found
