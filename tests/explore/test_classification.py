"""Explore a classifier: classes, attention weights, and the effects of erasing sentences and words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.classified import CLASSES, train_classifier
from tests.explore.asking import Frame, ask, fault, one

from regard.explore import Explorer, ModelInfo, model_info
from regard.explore.adapters import TranslatorAdapter
from regard.explore.classification import BLOCK, InspectedClassifier
from regard.notebook.recording import record
from regard.predict import TextClassifier, Translator
from regard.recipe import parse
from regard.score.rationale import Rationale, erase
from regard.tasks import load_classifier

TEXT = "No dog sees the red cat. A cat runs. It is blue here."
SENTENCES = [(0, 24), (25, 36), (37, 53)]
POOLED = {
    "attention": ("transformer", "attention", False),
    "first": ("transformer", "first", False),
    "several": ("rnn", "mean", True),
}
every_model = pytest.mark.parametrize("name", ["han", *POOLED])


@pytest.fixture(scope="module")
def classifiers(classifier_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextClassifier]:
    """Return a hierarchical model, and models with each other pooling, which have hardly been trained."""
    folder = tmp_path_factory.mktemp("classifiers")
    runs = {name: train_classifier(folder / name, *settings, steps=5) for name, settings in POOLED.items()}
    return {name: load_classifier(run, "cpu") for name, run in {"han": classifier_run, **runs}.items()}


@pytest.fixture
def explorer(classifiers: dict[str, TextClassifier]) -> Explorer:
    return Explorer(classifiers)


def erasing(level: str, *numbers: int) -> dict[str, Any]:
    return {"op": "erase", "level": level, "numbers": list(numbers)}


def rationale(words: list[list[Any]]) -> Rationale:
    """Return the text with its parts, from the spans in a message; weights do not matter here."""
    spans = [(start, end) for start, end, _ in words]
    return Rationale(TEXT, spans, [0.0] * len(spans), SENTENCES, [0.0] * len(SENTENCES), ())


def changes_by_part(frames: list[Frame]) -> dict[tuple[str, int], Any]:
    return {
        (message["level"], number): row
        for message, arrays in frames
        for number, row in zip(message["numbers"], arrays["change"], strict=True)
    }


@every_model
def test_a_text_has_the_probabilities_and_weights_that_the_classifier_gives(
    explorer: Explorer, classifiers: dict[str, TextClassifier], name: str
) -> None:
    classifier = classifiers[name]
    message, arrays = one(explorer, "classify", model=name, text=TEXT)
    expected = classifier(TEXT, attention=bool(classifier.attention_levels)).to_json()
    weighted = {level: message.pop(level) for level in ("words", "sentences")}
    assert {key: message[key] for key in expected if key not in weighted} == {
        key: value for key, value in expected.items() if key not in weighted
    }
    assert (message["kind"], message["text"], message["erased"], arrays) == ("document", TEXT, [], {})
    assert [(start, end) for start, end, _ in weighted["sentences"]] == SENTENCES
    assert [TEXT[start:end] for start, end, _ in weighted["words"]] == TEXT.split()
    if not classifier.attention_levels:
        assert {weight for spans in weighted.values() for _, _, weight in spans} == {None}
        return
    assert weighted["words"] == expected["words"]
    sums = [sum(weight for start, _, weight in expected["words"] if begin <= start < end) for begin, end in SENTENCES]
    by_sentence = [weight for _, _, weight in weighted["sentences"]]
    assert by_sentence == pytest.approx(sums, abs=1e-6)
    if "sentences" in expected:
        assert weighted["sentences"] == expected["sentences"]


@every_model
def test_an_effect_is_the_change_of_each_probability_without_one_part(
    explorer: Explorer, classifiers: dict[str, TextClassifier], name: str
) -> None:
    classifier = classifiers[name]
    document, _ = one(explorer, "classify", model=name, text=TEXT)
    frames = ask(explorer, "effects", model=name, text=TEXT)
    assert [message["last"] for message, _ in frames] == [False] * (len(frames) - 1) + [True]
    changes, whole = changes_by_part(frames), rationale(document["words"])
    assert len(changes) == len(SENTENCES) + len(TEXT.split())
    for (level, number), change in changes.items():
        without = erase(whole, whole.words_of([number]) if level == "sentence" else {number})
        after, before = classifier(without).probabilities, document["probabilities"]
        assert change == pytest.approx([after[label] - before[label] for label in CLASSES], abs=1e-6)


@every_model
def test_what_is_erased_has_no_weight_and_the_rest_is_classified_alone(
    explorer: Explorer, classifiers: dict[str, TextClassifier], name: str
) -> None:
    changes = [erasing("sentence", 1), erasing("word", 4, 5)]
    message, _ = one(explorer, "classify", model=name, text=TEXT, changes=changes)
    assert message["text"] == "No dog sees the.\n\nIt is blue here."
    assert message["erased"] == [4, 5, 6, 7, 8]
    classifier = classifiers[name]
    rest = classifier(message["text"], attention=bool(classifier.attention_levels))
    assert message["probabilities"] == rest.probabilities
    if rest.words is not None:
        remaining = [weight for _, _, weight in message["words"] if weight is not None]
        assert remaining == [span.weight for span in rest.words]
        assert [weight is None for _, _, weight in message["words"]] == [number in range(4, 9) for number in range(13)]
        assert [weight is None for _, _, weight in message["sentences"]] == [False, True, False]
        assert sum(weight or 0 for _, _, weight in message["sentences"]) == pytest.approx(sum(remaining))
    effects = changes_by_part(ask(explorer, "effects", model=name, text=TEXT, changes=changes))
    assert set(effects) == {("sentence", 0), ("sentence", 2), *(("word", at) for at in (0, 1, 2, 3, 9, 10, 11, 12))}
    without = classifier("No dog sees the.").probabilities
    expected = [without[label] - rest.probabilities[label] for label in CLASSES]
    assert effects["sentence", 2] == pytest.approx(expected, abs=1e-6)


def test_sentences_come_first_and_then_the_words_with_the_largest_weights(explorer: Explorer) -> None:
    text = " ".join(["The cat runs here now, and the dog sees it."] * 4)
    document, _ = one(explorer, "classify", model="han", text=text)
    frames = ask(explorer, "effects", model="han", text=text)
    assert [message["level"] for message, _ in frames] == ["sentence", "word", "word"]
    order = [number for message, _ in frames[1:] for number in message["numbers"]]
    weights = [document["words"][number][2] for number in order]
    assert (len(order), weights) == (40, sorted(weights, reverse=True))


def test_a_text_with_everything_erased_has_no_effects(explorer: Explorer) -> None:
    changes = [erasing("sentence", 0, 1, 2)]
    message, _ = one(explorer, "classify", model="han", text=TEXT, changes=changes)
    assert message["text"] == ""
    effects, arrays = one(explorer, "effects", model="han", text=TEXT, changes=changes)
    assert (effects["numbers"], effects["last"], arrays["change"].shape) == ([], True, (0, len(CLASSES)))


@pytest.mark.parametrize("name", ["han", "attention", "first"])
def test_the_end_of_a_long_text_is_neither_listed_nor_read(
    explorer: Explorer, classifiers: dict[str, TextClassifier], name: str
) -> None:
    text = "The cat sees a dog. " * 40
    words = one(explorer, "classify", model=name, text=text)[0]["words"]
    assert 40 < len(words) < 80 <= len(text.split())
    classifier = classifiers[name]
    short = text[: words[-1][1]]
    assert classifier(short).probabilities == pytest.approx(classifier.classify([text])[0].probabilities, abs=1e-6)


def test_a_question_that_became_stale_stops_between_two_blocks(explorer: Explorer) -> None:
    text = " ".join(["The cat runs."] * BLOCK)
    answer = explorer.answer({"kind": "effects", "model": "han", "text": text}, iter([False, True]).__next__)
    assert len(list(answer)) == 1


def test_the_models_are_described(explorer: Explorer, memorised: Path) -> None:
    models = {model["name"]: model for model in one(explorer, "models")[0]["models"]}
    levels = {name: model["levels"] for name, model in models.items()}
    assert levels == {"han": ["word", "sentence"], "attention": ["word"], "first": [], "several": []}
    han = models["han"]
    assert (han["task"], han["input"], han["classes"], han["parts"]) == ("classification", "text", list(CLASSES), [])
    assert [model["several"] for model in models.values()] == [False, False, False, True]
    assert one(explorer, "tokens", text="A cat.")[0]["words"] == ["A", "cat."]


def test_a_run_on_generated_documents_has_unseen_documents_as_examples() -> None:
    corpus = '{ kind = "documents", label = "topic" }'
    recipe = parse(
        f'name = "d"\ntask = "classification"\n[data]\ntrain = [{corpus}]\nvalid = {corpus}\n[model]\nkind = "han"\n'
    )
    info = model_info(recipe)
    assert (info.family, len(set(info.examples))) == ("han", 8)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"kind": "classify", "text": " "}, "the input text is empty"),
        ({"kind": "classify", "source": TEXT}, "does not read 'source'"),
        ({"kind": "classify", "text": TEXT, "changes": [erasing("word", 13)]}, "no word 13 in this text; they are 0"),
        ({"kind": "effects", "text": TEXT, "changes": [erasing("sentence", 3)]}, "no sentence 3"),
        ({"kind": "effects", "text": TEXT, "changes": [{"op": "block", "tokens": [1]}]}, "changes"),
        ({"kind": "read", "text": TEXT}, "han is a classifier, which does not answer 'read'; ask 'classify'"),
        ({"kind": "figure", "figure": "lines", "text": TEXT}, "there is no figure 'lines'; figures are document"),
        ({"kind": "figure", "figure": "document", "text": TEXT, "model": "first"}, "has no attention weights"),
    ],
)
def test_a_question_that_a_classifier_cannot_answer_says_why(
    explorer: Explorer, question: dict[str, Any], sentence: str
) -> None:
    assert sentence in fault(explorer, question)


def test_a_model_that_decodes_does_not_classify(translators: dict[str, Translator]) -> None:
    explorer = Explorer(translators)
    field = TranslatorAdapter.input_field
    assert "is no classifier" in fault(explorer, {"kind": "classify", field: "I can go"})


def test_a_figure_of_the_document_comes_with_its_code(explorer: Explorer) -> None:
    message, arrays = one(explorer, "figure", figure="document", text=TEXT, scale="sqrt")
    assert arrays["file"].tobytes().lstrip().startswith(b"<?xml")
    assert f"regard.figure(model, {TEXT!r}, 'document', scale='sqrt')" in message["python"]


def test_a_recording_holds_the_text_and_its_effects(explorer: Explorer) -> None:
    asked = [question for question, _ in record(explorer, TEXT, "").about(TEXT)]
    assert [question["kind"] for question in asked] == ["models", "classify", "effects"]
    assert json.dumps(asked)


def test_a_document_is_classified_once_for_all_questions_about_it(classifiers: dict[str, TextClassifier]) -> None:
    inspected = InspectedClassifier("han", classifiers["han"], ModelInfo())
    first, second = inspected.read(TEXT), inspected.read(TEXT)
    assert first.result is second.result
    assert np.isclose(sum(first.rationale.sentence_weights), 1)
