"""The command `regard classify`, and `regard evaluate` for classifiers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.classified import CLASSES, SENTENCES
from typer.testing import CliRunner

from regard.cli import app

LABELS = [label for _, label in SENTENCES]
LINES = "".join(f"{text}\n" for text, _ in SENTENCES)


def run(*words: str | Path, text: str | bytes | None = None) -> list[str]:
    """Return the output lines of a command, without a new process."""
    result = CliRunner().invoke(app, [*map(str, words), "--device", "cpu"], input=text)
    assert result.exit_code == 0, result.exception
    return result.stdout.split("\n")[:-1]


def refused(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [*map(str, words), "--device", "cpu"], input="a\n")
    assert isinstance(result.exception, ValueError | OSError), result.output
    return str(result.exception)


def test_each_line_gives_a_label_a_tab_and_a_probability(classifier_run: Path) -> None:
    rows = [line.split("\t") for line in run("classify", classifier_run, "--quiet", text=LINES)]
    assert [label for label, _ in rows] == LABELS
    assert all(0.5 < float(probability) <= 1 for _, probability in rows)


def test_every_line_has_an_output_line_whatever_it_holds(classifier_run: Path, tmp_path: Path) -> None:
    hostile = [b"", b"A red cat.", b"\xff\xfe", b"  ", b"\x00\x1b[31m", b"a" * 100_000, "日本語。".encode()]
    (tmp_path / "in.txt").write_bytes(b"\n".join(hostile) + b"\n")
    rows = run("classify", classifier_run, tmp_path / "in.txt", "--quiet")
    assert len(rows) == len(hostile)
    assert rows[1].startswith("red\t")


def test_top_prints_the_most_probable_classes_and_probabilities_all_of_them(classifier_run: Path) -> None:
    (two,) = run("classify", classifier_run, "--top", "2", "--quiet", text="A red cat.\n")
    (all_of_them,) = run("classify", classifier_run, "--probabilities", "--quiet", text="A red cat.\n")
    assert all_of_them.split("\t")[:4] == two.split("\t")
    assert sorted(all_of_them.split("\t")[::2]) == list(CLASSES)


def test_json_holds_probabilities_and_on_request_attention(classifier_run: Path) -> None:
    text = "A red cat. It runs."
    (line,) = run("classify", classifier_run, "--json", "--attention", "--quiet", text=f"{text}\n")
    result = json.loads(line)
    assert result["label"] == "red"
    assert sum(result["probabilities"].values()) == pytest.approx(1.0)
    start, end, _ = max(result["words"], key=lambda span: span[2])
    assert text[start:end] == "red"
    assert len(result["sentences"]) == 2
    (short,) = run("classify", classifier_run, "--json", "--top", "1", "--quiet", text=f"{text}\n")
    assert list(json.loads(short)["probabilities"]) == ["red"]


def test_a_line_is_classified_before_the_next_one_arrives(classifier_run: Path) -> None:
    command = [sys.executable, "-m", "regard", "classify", str(classifier_run), "--device", "cpu", "--quiet"]
    pipe, environment = subprocess.PIPE, {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    for text, label in SENTENCES[:2]:
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline().decode().split("\t")[0] == label
    _, complaint = process.communicate(timeout=600)
    assert (process.returncode, complaint) == (0, b"")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "there is no run at nowhere"),
        (["RUN", "nowhere.txt"], "nowhere.txt does not exist"),
        (["RUN", "--attention"], "use it together with --json"),
        (["RUN", "--top", "2", "--probabilities"], "use one of the two"),
        (["OTHER"], "was trained with task = 'translation', but this needs a run with task = 'classification'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(
    classifier_run: Path, memorised: Path, words: list[str], sentence: str
) -> None:
    runs = {"RUN": str(classifier_run), "OTHER": str(memorised)}
    assert sentence in refused("classify", *(runs.get(word, word) for word in words))


def test_evaluate_scores_the_validation_set_of_the_recipe(classifier_run: Path, tmp_path: Path) -> None:
    figure = tmp_path / "confusion.svg"
    text = "\n".join(run("evaluate", classifier_run, "--figure", figure))
    assert "12 texts of valid.tsv" in text
    assert "accuracy                             100.00" in text
    assert "95 % confidence interval: 75.75 to 100.00 (12 of 12)" in text
    assert "green     100.0%  100.0%  100.0%      4" in text
    assert figure.read_text(encoding="utf-8").startswith("<?xml")


def test_evaluate_compares_with_the_predictions_of_another_system(classifier_run: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(LINES, encoding="utf-8")
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")
    (tmp_path / "other.txt").write_text("red\n" * len(LABELS), encoding="utf-8")
    files = ["--source", str(tmp_path / "texts.txt"), "--reference", str(tmp_path / "labels.txt")]
    output = tmp_path / "out.txt"
    lines = run("evaluate", classifier_run, *files, "--against", tmp_path / "other.txt", "--output", output, "--json")
    report = json.loads("\n".join(lines))
    assert output.read_text(encoding="utf-8").split() == LABELS
    assert report["texts"] == 12
    assert [score["name"] for score in report["scores"]] == ["accuracy", "macro F1", "calibration error"]
    assert report["comparison"]["difference"] == pytest.approx(100 - 100 / 3)
    assert report["comparison"]["test"] == {"only_system": 8, "only_baseline": 0, "p_value": 2 / 2**8}
    same = json.loads("\n".join(run("evaluate", classifier_run, *files, "--against", classifier_run, "--json")))
    assert same["comparison"]["test"]["p_value"] == 1.0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--beam", "4"], "--beam means nothing for a classifier"),
        (["--metric", "bleu"], "--metric means nothing for a classifier"),
        (["--source", "TEXTS"], "--reference is missing"),
        (["--source", "TEXTS", "--reference", "WRONG"], "line 2: the label 'purple' does not occur"),
        (["--against", "WRONG"], "has 2 lines, but the test set has 12 texts"),
        (["--figure", "map.gif"], "unknown format of a figure"),
    ],
)
def test_an_evaluation_that_cannot_be_done_is_refused(
    classifier_run: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    files = {"TEXTS": "a\nb\n", "WRONG": "red\npurple\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert sentence in refused(
        "evaluate", classifier_run, *(str(tmp_path / word) if word in files else word for word in words)
    )


def test_a_translation_run_has_no_confusion_matrix(memorised: Path) -> None:
    assert "--figure draws the confusion matrix of labels or tags" in refused(
        "evaluate", memorised, "--figure", "a.png"
    )
