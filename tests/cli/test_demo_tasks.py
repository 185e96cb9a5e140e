"""`regard demo --task`, with tiny models that learn little but pass through every part."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.cli.demo_tasks import task_recipe
from regard.train.report.log import read_log

ROOT = Path(__file__).resolve().parents[2]
TINY = ["train.steps=3", "train.every=3", "train.tokens=256", "train.precision=float32", "text.size=500"]
SMALL_MODEL = {
    "language_model": [
        "model.width=16", "model.inner=32", "model.heads=2", "model.decoder_layers=1", "data.train.0.pairs=200",
        "data.valid.pairs=10", "data.test.pairs=10", "train.translate=2",
    ],
    "classification": [
        "model.width=8", "model.embedding=8", "data.train.0.count=200", "data.valid.count=10", "data.test.count=10",
    ],
    "chat": [
        "model.width=16", "model.inner=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
        "data.train.0.count=60", "data.valid.count=4", "data.test.count=4", "train.translate=2",
    ],
    "tagging": [
        "model.width=8", "model.embedding=8", "data.train.0.pairs=200", "data.valid.pairs=10", "data.test.pairs=10",
    ],
    "forecasting": [
        "model.width=8", "data.train.0.rows=1500", "data.valid.rows=1500", "data.test.rows=1500",
    ],
    "captioning": [
        "model.width=8", "model.patch=16", "data.train.0.count=50", "data.valid.count=4", "data.test.count=4",
    ],
}  # fmt: skip

SMALL_DIGITS = [
    "model.width=8", "model.inner=8", "model.heads=2", "data.train.0.count=60", "data.valid.count=10",
    "data.test.count=10",
]  # fmt: skip


def run_demo(folder: Path, task: str, label: str = "sentiment") -> Result:
    options = ["--task", task, "--label", label, "--run", str(folder), "--sentences", "6", "--plain"]
    small = SMALL_DIGITS if label == "digits" else SMALL_MODEL[task]
    return CliRunner().invoke(app, ["demo", *TINY, *small, *options], catch_exceptions=False)


def check_report(result: Result, run: Path, *figures: str) -> str:
    """Check that everything named on the screen exists, and return the report."""
    for name in ("report.png", *figures):
        assert str(run / name) in result.stdout
        assert (run / name).read_bytes().startswith(b"\x89PNG")
    assert str(run / "report.html") in result.stdout
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_a_language_model_is_trained_on_english_and_continues_prompts(cache: Path) -> None:
    result = run_demo(cache / "run", "language_model")
    assert result.exit_code == 0
    assert re.search(r"test +\d+\.\d+ per token, \d+\.\d+ per word, \d\.\d+ bits per byte", result.stdout)
    assert re.search(r"novel +\d+\.\d+ per token", result.stdout)
    assert "the animal did not … " in result.stdout
    assert re.search(r"these queens … close \d+\.\d, closes \d+\.\d", result.stdout)
    page = check_report(result, cache / "run", "surprisal.png")
    assert "Unseen sentences" in page
    assert "bits per byte" in page
    assert "Surprisal of each word of:" in page
    assert all(sample.input and sample.reference for sample in read_log(cache / "run").samples)


@pytest.mark.parametrize("task", SMALL_MODEL)
def test_the_recipe_of_a_demo_has_its_task(task: str) -> None:
    assert task_recipe(task).task == task
    assert task_recipe(task, overrides=["train.steps=7"]).train.steps == 7


def test_a_tagger_learns_the_language_that_was_named() -> None:
    recipe = task_recipe("tagging", "ar")
    assert recipe.name == "demo-tagging-ar"
    for corpus in (*recipe.data.train, recipe.data.valid, recipe.data.test):
        assert corpus is not None
        assert corpus.model_dump()["to"] == "ar"


def test_a_classifier_learns_the_labels_that_were_named() -> None:
    recipe = task_recipe("classification", label="topic")
    assert recipe.name == "demo-classification-topic"
    for corpus in (*recipe.data.train, recipe.data.valid, recipe.data.test):
        assert corpus is not None
        assert corpus.model_dump()["label"] == "topic"


def test_a_classifier_is_trained_on_documents_and_its_attention_is_judged(cache: Path) -> None:
    result = run_demo(cache / "run", "classification")
    assert result.exit_code == 0
    assert re.search(r"(positive|negative): .*\*\w+\*", result.stdout)
    assert "the sentence with the largest weight decides in" in result.stdout
    assert "comprehensiveness, gold" in result.stdout
    page = check_report(result, cache / "run", "document.png")
    assert "Attention is not an explanation" in page
    assert "Attention weights of:" in page


def test_digits_are_drawn_and_classified_by_patches(cache: Path) -> None:
    result = run_demo(cache / "run", "classification", "digits")
    assert result.exit_code == 0
    assert re.search(r"accuracy \d+\.\d", result.stdout)
    assert f"regard classify {cache / 'run'} {cache / 'run' / 'digit.png'} --top 3" in result.stdout
    page = check_report(result, cache / "run", "patches.png")
    assert "Unseen digits" in page
    assert (cache / "run" / "digit.png").is_file()


def test_a_tagger_is_scored_by_tag(cache: Path) -> None:
    result = run_demo(cache / "run", "tagging")
    assert result.exit_code == 0
    assert re.search(r"NOUN +\d+\.\d+% +\d+\.\d+% +\d+\.\d+%", result.stdout)
    page = check_report(result, cache / "run", "tags.png", "confusion.png")
    assert "The hardest sentences" in page
    assert "How often each correct tag has each predicted tag" in page


def test_a_chatbot_is_trained_on_small_talk_judged_and_talked_to(cache: Path) -> None:
    result = run_demo(cache / "run", "chat")
    assert result.exit_code == 0
    assert re.search(r" 1 user .*\n +2 bot  ", result.stdout)
    assert re.search(r"\d+\.\d % \(\d+ of \d+\) right answers to questions that an earlier turn answers", result.stdout)
    assert "the most attended turn is the one with the answer" in result.stdout
    assert re.search(
        r"the history \d+\.\d\d, earlier turns in random order \d+\.\d\d, the last turn alone", result.stdout
    )
    assert "you> What is my name?" in result.stdout
    page = check_report(result, cache / "run", "dialogue.png")
    assert "A conversation" in page


def test_a_forecaster_is_compared_with_baselines_and_its_attention_is_judged(cache: Path) -> None:
    result = run_demo(cache / "run", "forecasting")
    assert result.exit_code == 0
    assert re.search(r"seasonal-naive\(\d+\) +\d\.\d{3} +\d\.\d{3}", result.stdout)
    assert re.search(r"attention is largest at the cause in +\d+\.\d%", result.stdout)
    page = check_report(result, cache / "run", "forecast.png")
    assert "Attention, judged" in page
    assert (cache / "run" / "seasonal.csv").read_text(encoding="utf-8").startswith("date,signal,response,other\n")


def test_a_captioner_is_trained_on_scenes_and_its_attention_is_judged(cache: Path) -> None:
    result = run_demo(cache / "run", "captioning")
    assert result.exit_code == 0
    assert re.search(r"scene:train/1/0: \w+", result.stdout)
    assert re.search(r"exact caption \d+\.\d% of 6 scenes", result.stdout)
    assert re.search(r"the largest weight of a word is on what it is about: \d+\.\d%", result.stdout)
    check_report(result, cache / "run")
