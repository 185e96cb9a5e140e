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


def test_a_frame_is_a_safetensors_file_with_aligned_arrays() -> None:
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


def test_quantized_weights_are_close_and_exact_at_zero_and_one() -> None:
    weights = np.linspace(0, 1, 1001)
    back = (quantize_weights(weights) / 255.0) ** 2
    assert np.abs(back - weights).max() < 1 / 255
    assert (quantize_weights(np.array([0.0, 1.0])) == [0, 255]).all()
    assert quantize_weights(np.array([1e-4])) > 0


@every
def test_frames_are_in_order_and_only_the_last_is_marked_as_last(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model)
    kinds = list(dict.fromkeys(message["kind"] for message, _ in frames))
    assert kinds == [kind for kind in ("tokens", "attention", "target", "result", "heads") if kind in kinds] or (
        kinds == ["tokens", "target", "result", "attention", "heads"]
    )
    assert [message["last"] for message, _ in frames] == [False] * (len(frames) - 1) + [True]
    assert {message["id"] for message, _ in frames} == {1}


@every
@pytest.mark.parametrize("beam", [1, 4])
def test_the_answer_has_the_output_of_the_translator(
    explorer: Explorer, translators: dict[str, Translator], model: str, beam: int
) -> None:
    answer, expected = result(read(explorer, model, beam=beam)), translators[model](SOURCE, beam=beam)
    assert answer["text"] == expected.text
    assert answer["score"] == pytest.approx(expected.score)
    assert answer["logprobs"] == pytest.approx(expected.token_logprobs)
    links = None if expected.alignment is None else " ".join(f"{one}-{other}" for one, other in expected.alignment)
    assert answer["alignment"] == links


@attentive
def test_the_weights_of_all_layers_are_sent_and_sum_to_one(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model)
    parts = {part["part"]: part for part in _description(explorer, model)["parts"]}
    weights = tables(frames)
    assert weights.keys() == {(name, layer) for name, part in parts.items() for layer in range(part["layers"])}
    sources, targets = len(result(frames)["source"]), len(result(frames)["target"])
    shapes = {"encoder": (sources, sources), "decoder": (targets, targets), "cross": (targets, sources)}
    for (part, _), table in weights.items():
        assert table.shape == (parts[part]["heads"], *shapes[part])
        if model != "luong, local":  # its weights are multiplied by a Gaussian
            difference = np.abs(((table / 255.0) ** 2).sum(-1) - 1)
            assert difference.max() < table.shape[-1] / 255


@attentive
def test_a_row_has_the_weights_recorded_at_the_tap_of_the_model(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    ids = target_ids(read(explorer, model))
    translator = translators[model]
    source = [*translator.tokenizers["source"].encode(SOURCE), END]
    with recording(translator.model, "*.weights") as seen:
        translator.model(Ragged.from_list([source]), Ragged.from_list([[START, *ids[:-1]]]))
    for number, (name, (weights,)) in enumerate(seen.items()):
        part = "encoder" if name.startswith("encoder") else "decoder" if "self" in name else "cross"
        layer = [tap for tap in seen if _same_part(tap, name)].index(name)
        query, head = number % weights.shape[2], number % weights.shape[1]
        query_of_head = {"part": part, "layer": layer, "head": head, "query": query}
        _, arrays = one(explorer, "row", model=model, source=SOURCE, target_ids=ids, **query_of_head)
        assert arrays["weights"].dtype == np.float32
        np.testing.assert_allclose(arrays["weights"], weights[0, head, query].detach().numpy(), atol=1e-6)


def _same_part(one: str, other: str) -> bool:
    return one.split(".")[0] == other.split(".")[0] and ("self" in one) == ("self" in other)


@every
def test_tokens_have_their_spans_and_words_in_the_line(explorer: Explorer, model: str) -> None:
    message, _ = one(explorer, "tokens", model=model, source=SOURCE)
    *real, end = message["tokens"]
    assert (end["special"], end["word"], end["id"]) == (True, None, END)
    assert all(SOURCE[slice(*token["span"])] == token["text"] for token in real)
    assert message["words"] == SOURCE.split()
    joined = ["".join(token["text"] for token in real if token["word"] == at) for at in range(len(message["words"]))]
    assert [word.strip() for word in joined] == message["words"]


def test_an_empty_line_has_only_the_end_symbol(explorer: Explorer) -> None:
    message, _ = one(explorer, "tokens", source="")
    assert [token["special"] for token in message["tokens"]] == [True]


@every
def test_a_given_translation_is_scored_and_not_searched_for(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model, target="Ich kann gehen")
    assert result(frames)["text"] == "Ich kann gehen"
    assert not [message for message, _ in frames if message["kind"] == "target"]
    again = read(explorer, model, target_ids=target_ids(frames))
    assert result(again)["logprobs"] == result(frames)["logprobs"]


@every
def test_the_output_begins_with_a_forced_prefix_and_equals_one_that_ends(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model, target="Ich kann"))
    assert target_ids(read(explorer, model, prefix=ids[:-1]))[: len(ids) - 1] == ids[:-1]
    assert target_ids(read(explorer, model, prefix=ids)) == ids


@every
def test_candidates_are_the_most_probable_and_agree_with_the_log_probabilities(explorer: Explorer, model: str) -> None:
    answer = result(read(explorer, model, candidates=5))
    for token, logprob, best in zip(answer["target"], answer["logprobs"], answer["candidates"], strict=True):
        assert len(best) == 5
        best_logprobs = {candidate["id"]: candidate["logprob"] for candidate in best}
        assert list(best_logprobs.values()) == sorted(best_logprobs.values(), reverse=True)
        assert best_logprobs.get(token["id"], logprob) == pytest.approx(logprob)


def test_tokens_are_sent_one_by_one_as_they_are_generated(explorer: Explorer) -> None:
    frames = read(explorer, "transformer")
    prefixes = [[token["id"] for token in message["tokens"]] for message, _ in frames if message["kind"] == "target"]
    ids = target_ids(frames)
    assert prefixes == [ids[:count] for count in range(1, len(ids) + 1)]


def test_the_first_layer_is_chosen_and_parts_that_are_not_wanted_are_not_sent(explorer: Explorer) -> None:
    frames = read(explorer, "transformer", want=["cross"], first={"part": "cross", "layer": 1})
    assert list(tables(frames)) == [("cross", 1), ("cross", 0)]


@attentive
def test_the_measures_of_heads_follow_from_their_weights(
    explorer: Explorer, translators: dict[str, Translator], model: str
) -> None:
    frames = read(explorer, model)
    weights = inspect(translators[model], SOURCE, target_ids(frames)).weights
    for head in frames[-1][0]["heads"]:
        rows = weights[head["part"], head["layer"]][head["head"]][:-1].astype(np.float64)
        entropies = [-sum(w * np.log(w) for w in row if w > 0) for row in rows]
        distances = [sum(w * abs(i - j) for j, w in enumerate(row)) for i, row in enumerate(rows)]
        expected = [np.mean([row.max() for row in rows]), np.mean(entropies), np.mean(distances)]
        assert [head["confidence"], head["entropy"], head["distance"]] == pytest.approx(expected)


def test_another_question_about_the_same_sentence_is_answered_from_the_cache(
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
    described = _description(explorer, model)
    assert (described["task"], described["input"]) == ("translation", "source")
    assert described["learned_positions"] == (model in ("norm last, learned", "convs2s"))
    assert described["parameters"] == sum(weight.numel() for weight in translators[model].model.parameters())
    parts = ["encoder", "decoder", "cross"] if model in HEADED else [] if model == "sutskever" else ["cross"]
    assert [part["part"] for part in described["parts"]] == parts


def _description(explorer: Explorer, model: str) -> dict[str, Any]:
    description: dict[str, Any]
    (description,) = [entry for entry in ask(explorer, "models")[0][0]["models"] if entry["name"] == model]
    return description
