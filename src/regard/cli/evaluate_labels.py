"""`regard evaluate` for classifiers: accuracy, F1 of each class, calibration, and a comparison with another run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.score import print_scores, print_table
from regard.cli.streams import existing_file, line_counter

if TYPE_CHECKING:
    from regard.predict import ClassifiedImage, ClassifiedText, ImageClassifier, TextClassifier
    from regard.score.classification import ClassScore, McNemarTest
    from regard.score.metric import Score
    from regard.score.significance import Interval

BLOCK = 1000  # texts that are classified between two updates of the counter


@dataclass(frozen=True)
class _Data:
    """Texts, or names of pictures, with their labels, and where they come from."""

    name: str
    texts: list[str]
    labels: list[str]
    unit: str
    """What is classified, in the plural."""


@dataclass(frozen=True)
class _Comparison:
    """The comparison with another classifier."""

    name: str
    baseline: "Score"
    difference: float
    test: "McNemarTest"


@dataclass(frozen=True)
class _Report:
    """All that is printed."""

    data: str
    texts: int
    unit: str
    scores: "tuple[Score, ...]"
    interval: "Interval"
    classes: "list[ClassScore]"
    comparison: _Comparison | None


def evaluate_labels(
    run: str,
    source: str | None,
    reference: Sequence[str],
    against: str | None,
    output: str | None,
    figure: str | None,
    as_json: bool,
    device: str,
    precision: str,
) -> None:
    """Classify a test set with a run, and print how good the predictions are; see `regard evaluate`."""
    from regard.data.fields import LabelsField
    from regard.score.classification import (
        accuracy,
        class_scores,
        correct,
        expected_calibration_error,
        macro_f1,
        wilson_interval,
    )

    if figure:
        check_figure(figure)
    data = _read_data(run, source, reference)
    classifier = _load(run, device, precision)
    multi_label = isinstance(classifier.label_field, LabelsField)
    if figure and multi_label:
        raise ValueError("--figure draws a confusion matrix, which needs one label per text; this run has several")
    labels = _known_labels(classifier, data, run)
    results = _classify(classifier, data.texts)
    predictions = [result.labels for result in results]
    is_correct = correct(labels, predictions)
    error = expected_calibration_error([result.probability for result in results], is_correct)
    scores = accuracy(labels, predictions), macro_f1(labels, predictions), error
    comparison = None
    if against:
        other = _predictions_of(against, data, device, precision, multi_label)
        comparison = _compare(against, labels, predictions, other)
    if output:
        Path(output).write_text("".join(f"{result.label}\n" for result in results), encoding="utf-8")
    if figure:
        _draw(Path(figure), [label for (label,) in labels], [result.label for result in results])
    interval = wilson_interval(int(is_correct.sum()), len(is_correct))
    report = _Report(data.name, len(labels), data.unit, scores, interval, class_scores(labels, predictions), comparison)
    _print_json(report) if as_json else _print_tables(report)


def _read_data(run: str, source: str | None, reference: Sequence[str]) -> _Data:
    """Return the texts and labels of the files or, without files, of the recipe's test or validation corpus."""
    from regard.bundle import load_bundle_recipe
    from regard.data.corpus import Reader
    from regard.data.prepare import corpus_name
    from regard.recipe import TASK_FIELDS, TextCorpus
    from regard.run_path import find_run

    recipe = load_bundle_recipe(find_run(run).folder)
    (field, _), unit = TASK_FIELDS[recipe.task], "pictures" if recipe.task == "image_classification" else "texts"
    if bool(source) != bool(reference):
        missing = "--reference" if source else "--source"
        raise ValueError(f"{missing} is missing; give both, or neither for the test or validation set of the recipe")
    if len(reference) > 1:
        raise ValueError("an example has one line of labels; give --reference once")
    if source:
        paths = {field: str(existing_file(source).resolve()), "label": str(existing_file(reference[0]).resolve())}
        name, corpus = f"{source} and {reference[0]}", TextCorpus(files=paths)
        texts, labels = zip(*Reader((field, "label"), Path()).records(corpus), strict=True)
        return _Data(name, list(texts), list(labels), unit)
    test_set = recipe.data.test or recipe.data.valid
    if test_set is None:
        raise ValueError(
            f"the recipe of {run} has neither data.test nor data.valid; give the {unit} with --source and their labels "
            "with --reference"
        )
    records = Reader.of(recipe.data, (field, "label"), recipe.seed).records(test_set)
    texts, labels = zip(*records, strict=True)
    return _Data(corpus_name(test_set), list(texts), list(labels), unit)


def _load(run: str, device: str, precision: str) -> "TextClassifier | ImageClassifier":
    """Open a classifier of texts or of pictures."""
    from regard.cli.evaluate import task_of
    from regard.tasks import load_classifier, load_image_classifier

    if task_of(run) == "image_classification":
        return load_image_classifier(run, device, precision)
    return load_classifier(run, device, precision)


def _known_labels(classifier: "TextClassifier | ImageClassifier", data: _Data, run: str) -> list[tuple[str, ...]]:
    """Return the labels of each text, after checking that the classifier knows them."""
    from regard.data.fields.label import UnknownLabelError

    field = classifier.label_field
    try:
        field.encode(data.labels)
    except UnknownLabelError as error:
        raise ValueError(f"{data.name}, line {error.index + 1}: {error}; {run} cannot predict it") from None
    return [tuple(field.split(value)) for value in data.labels]


def _classify(
    classifier: "TextClassifier | ImageClassifier", texts: Sequence[str]
) -> "list[ClassifiedText | ClassifiedImage]":
    from regard.predict import TextClassifier

    results: list[ClassifiedText | ClassifiedImage] = []
    with line_counter("classified") as count:
        for begin in range(0, len(texts), BLOCK):
            part = texts[begin : begin + BLOCK]
            if isinstance(classifier, TextClassifier):
                results += classifier(part, first=begin + 1)
            else:
                results += classifier.classify(part)
            count(len(results) - begin)
    return results


def _predictions_of(against: str, data: _Data, device: str, precision: str, multi_label: bool) -> list[tuple[str, ...]]:
    """Return the predictions of another run, or those in a file."""
    from regard.data.fields import LabelField, LabelsField
    from regard.files import read_lines

    if Path(against).is_dir() or against.endswith(".safetensors"):
        return [result.labels for result in _classify(_load(against, device, precision), data.texts)]
    lines = [line for block in read_lines(existing_file(against)) for line in block]
    if len(lines) != len(data.texts):
        raise ValueError(f"{against} has {len(lines)} lines, but the test set has {len(data.texts)} {data.unit}")
    return [tuple((LabelsField if multi_label else LabelField).split(line)) for line in lines]


def _compare(
    name: str, labels: list[tuple[str, ...]], system: list[tuple[str, ...]], baseline: list[tuple[str, ...]]
) -> _Comparison:
    from regard.score.classification import accuracy, mcnemar

    score = accuracy(labels, baseline)
    return _Comparison(name, score, accuracy(labels, system).value - score.value, mcnemar(labels, system, baseline))


def check_figure(figure: str) -> None:
    """Raise a ValueError, before anything is classified, if a figure cannot be written in this format."""
    from regard.plot.save import format_of

    format_of(Path(figure))


def _draw(path: Path, labels: list[str], predictions: list[str]) -> None:
    from regard.plot import confusion, save
    from regard.score.classification import confusion_matrix

    classes = sorted({*labels, *predictions})
    save(confusion(confusion_matrix(labels, predictions, classes), classes), path)


def _print_json(report: _Report) -> None:
    table: dict[str, Any] = {
        "data": report.data,
        report.unit: report.texts,
        "scores": [asdict(score) for score in report.scores],
        "accuracy_interval": [100 * bound for bound in report.interval],
        "classes": [asdict(score) for score in report.classes],
    }
    if report.comparison is not None:
        table["comparison"] = asdict(report.comparison)
    typer.echo(json.dumps(table, ensure_ascii=False, indent=2))


def _print_tables(report: _Report) -> None:
    low, high = (100 * bound for bound in report.interval)
    typer.echo(f"{report.texts:,} {report.unit} of {report.data}\n")
    print_scores(list(report.scores), as_json=False)
    typer.echo(f"accuracy, 95 % confidence interval: {low:.2f} to {high:.2f} {report.scores[0].detail}\n")
    rows = [
        (score.name, f"{score.precision:.1%}", f"{score.recall:.1%}", f"{score.f1:.1%}", str(score.support))
        for score in report.classes
    ]
    print_table(("class", "precision", "recall", "F1", report.unit), rows)
    if report.comparison is not None:
        other, test = report.comparison, report.comparison.test
        typer.echo(
            f"\nagainst {other.name}: accuracy {other.baseline.value:.2f}, difference {other.difference:+.2f}; right "
            f"only here {test.only_system:,}, right only there {test.only_baseline:,}; McNemar's exact test: "
            f"p = {test.p_value:.4f}"
        )
