"""Predictions of a classifier: labels, probabilities, attention weights in the original text, and long texts."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.classified import CLASSES, SENTENCES, train_classifier

from regard.bundle import load_bundle_recipe
from regard.predict import AttendedSpan, ClassifiedText, TextClassifier
from regard.recipe import dump, parse
from regard.tasks import load, load_bundle, load_classifier, load_translator

TEXTS = ["The cat sees a red dog. It runs.", "", "Blue!", "A dog. It is\u00a0green. No cat.", "red " * 500]


@pytest.fixture(scope="module")
def attending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer with attention pooling."""
    return train_classifier(tmp_path_factory.mktemp("runs") / "attending", "transformer", "attention")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent model whose texts may have several labels."""
    return train_classifier(tmp_path_factory.mktemp("runs") / "several", "rnn", "mean", several=True)


def close(left: ClassifiedText, right: ClassifiedText) -> bool:
    return left.labels == right.labels and all(
        abs(left.probabilities[name] - right.probabilities[name]) < 1e-5 for name in CLASSES
    )


@pytest.fixture(params=["classifier_run", "attending", "several"])
def run(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def test_a_run_is_loaded_as_a_classifier_that_knows_its_sentences(classifier_run: Path) -> None:
    classifier = load(classifier_run, "cpu")
    assert isinstance(classifier, TextClassifier)
    assert [classifier(text).label for text, _ in SENTENCES] == [label for _, label in SENTENCES]
    assert classifier.classes == CLASSES


def test_texts_are_classified_in_order_as_each_by_itself(run: Path) -> None:
    classifier = load_classifier(run, "cpu")
    together = classifier.classify(TEXTS * 3)
    alone = [classifier.classify([text])[0] for text in TEXTS]
    assert all(close(left, right) for left, right in zip(together, alone * 3, strict=True))
    assert [result.text for result in together] == TEXTS * 3


def test_probabilities_are_sorted_and_those_of_single_labels_sum_to_one(classifier_run: Path) -> None:
    result = load_classifier(classifier_run, "cpu")("a red cat")
    values = list(result.probabilities.values())
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1.0)
    assert result.probability == values[0]


def test_several_labels_are_those_of_at_least_one_half(several: Path) -> None:
    classifier = load_classifier(several, "cpu")
    both, neither = classifier(["A red cat. A blue dog.", "A cat."])
    assert (both.labels, both.label) == (("blue", "red"), "blue,red")
    assert (neither.labels, neither.label) == ((), "")
    wrong = [1 - value for name, value in both.probabilities.items() if name not in both.labels]
    right = [both.probabilities[name] for name in both.labels]
    assert both.probability == pytest.approx(float(np.prod(right + wrong)))


def test_attention_of_a_document_covers_its_words_and_sentences(classifier_run: Path) -> None:
    classifier = load_classifier(classifier_run, "cpu")
    text = "  The cat sees a red dog.\tIt runs. "
    result = classifier(text, attention=True)
    assert result.words is not None
    assert result.sentences is not None
    assert [text[span.start : span.end] for span in result.sentences] == ["The cat sees a red dog.", "It runs."]
    assert [text[span.start : span.end] for span in result.words] == text.split()
    assert sum(span.weight for span in result.sentences) == pytest.approx(1.0)
    assert sum(span.weight for span in result.words) == pytest.approx(1.0)
    first = [span.weight for span in result.words if span.end <= result.sentences[0].end]
    assert sum(first) == pytest.approx(result.sentences[0].weight)
    best = max(result.words, key=lambda span: span.weight)
    assert text[best.start : best.end] == "red"


def test_attention_of_a_text_covers_its_words_and_leaves_the_rest_to_its_symbols(attending: Path) -> None:
    text = "The cat sees a red dog."
    result = load_classifier(attending, "cpu")(text, attention=True)
    assert result.words is not None
    assert result.sentences is None
    assert [text[span.start : span.end] for span in result.words] == text.split()
    assert 0 < sum(span.weight for span in result.words) < 1


def test_attention_does_not_change_the_prediction_and_empty_texts_have_none(run: Path) -> None:
    classifier = load_classifier(run, "cpu")
    if run.name == "several":
        with pytest.raises(ValueError, match=r"no attention weights .* classification.pooling = 'attention'"):
            classifier(TEXTS, attention=True)
        return
    plain, watched = classifier.classify(TEXTS), classifier.classify(TEXTS, attention=True)
    assert all(close(left, right) for left, right in zip(plain, watched, strict=True))
    assert watched[1].words == ()
    assert classifier("", attention=True).words == ()


def test_a_part_that_normalisation_removes_keeps_its_span(classifier_run: Path) -> None:
    text = "A red cat. \u200b\u200b! Dog."
    result = load_classifier(classifier_run, "cpu")(text, attention=True)
    assert result.words is not None
    assert sum(span.weight for span in result.words) == pytest.approx(1.0)
    assert all(isinstance(span, AttendedSpan) and text[span.start : span.end].strip() for span in result.words)


def test_the_end_of_a_long_text_is_ignored_with_a_warning(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    classifier = load_classifier(run, "cpu")
    begin = "A red cat. "
    long = begin + "It runs. " * 12_000  # more than 100,000 characters
    with caplog.at_level(logging.WARNING, "regard"):
        result = classifier([begin, long], first=7)[1]
    (record,) = caplog.records
    assert f"1 of 2 texts have more than {classifier.longest} tokens" in record.getMessage()
    assert "text 8 has" in record.getMessage()
    assert close(result, classifier.classify([begin + "It runs. " * 200])[0])


def test_a_model_with_learned_positions_reads_no_more_than_they_allow(tmp_path: Path) -> None:
    run = train_classifier(
        tmp_path / "run", "transformer", "first", more=("model.position=learned", "model.positions=6"), steps=0
    )
    classifier = load_classifier(run, "cpu")
    assert classifier.longest == 4
    assert classifier("a cat sees a red dog and runs").labels


def test_half_precision_gives_almost_the_same_probabilities(run: Path) -> None:
    exact, half = load_classifier(run, "cpu", "float32"), load_classifier(run, "cpu", "bfloat16")
    for left, right in zip(exact.classify(TEXTS), half.classify(TEXTS), strict=True):
        assert all(abs(left.probabilities[name] - right.probabilities[name]) < 0.1 for name in CLASSES)


def test_an_unknown_precision_and_another_task_are_refused(classifier_run: Path, memorised: Path) -> None:
    with pytest.raises(ValueError, match="no precision 'int8'; choose auto, float32 or bfloat16"):
        load(classifier_run, "cpu", "int8")
    with pytest.raises(ValueError, match="task = 'translation', but this needs a run with task = 'classification'"):
        load_classifier(memorised, "cpu")
    with pytest.raises(ValueError, match="task = 'classification', but this needs a run with task = 'translation'"):
        load_translator(classifier_run, "cpu")


def test_a_changed_pooling_or_changed_labels_are_found_before_anything_is_predicted(
    attending: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    copy.mkdir()
    for path in attending.rglob("*"):
        target = copy / path.relative_to(attending)
        target.mkdir(exist_ok=True) if path.is_dir() else target.write_bytes(path.read_bytes())
    labels = (copy / "labels.json").read_text(encoding="utf-8")
    (copy / "labels.json").write_text(labels.replace("red", "rot"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"are not those that model.safetensors was trained with"):
        load_bundle(copy)
    (copy / "labels.json").write_text(labels, encoding="utf-8")
    recipe = parse(dump(load_bundle_recipe(copy)), ["classification.pooling=mean"])
    (copy / "recipe.toml").write_text(dump(recipe), encoding="utf-8")
    with pytest.raises(ValueError, match=r"classification.pooling is 'mean' and was 'attention'"):
        load_bundle(copy)


def test_no_texts_have_no_predictions(classifier_run: Path) -> None:
    assert load_classifier(classifier_run, "cpu")([]) == []
    assert torch.is_grad_enabled()
