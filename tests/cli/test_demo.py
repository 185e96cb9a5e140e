"""`regard demo`, with a tiny model that learns little but passes through every part."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.cli.demo import demo_recipe
from regard.recipe import load

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "train.steps=4", "train.every=2", "train.tokens=256", "train.translate=2", "train.precision=float32",
    "data.train.0.pairs=300", "data.valid.pairs=10", "data.test.pairs=10", "text.size=400",
    "model.width=16", "model.inner=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=2",
    "decode.beam=1",
]  # fmt: skip


def demo(folder: Path, *arguments: str) -> Result:
    options = ["--run", str(folder), "--sentences", "6", "--plain", *arguments]
    return CliRunner().invoke(app, ["demo", *TINY, *options], catch_exceptions=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Run the demo in Arabic, which makes most demands on the figures."""
    folder = tmp_path_factory.mktemp("runs") / "demo-ar"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder.parent / "cache"))
        return folder, demo(folder, "--to", "ar")


def test_the_demo_runs_from_training_data_to_a_report(finished: tuple[Path, Result]) -> None:
    folder, result = finished
    assert result.exit_code == 0
    for heading in ("1. Training data", "2. Training", "3. Translating", "4. Word alignments", "5. Report"):
        assert heading in result.stdout
    assert (folder / "report.html").is_file()
    assert (folder / "report.png").is_file()
    assert str(folder / "report.html") in result.stdout


def test_progress_goes_to_stderr_and_results_to_stdout(finished: tuple[Path, Result]) -> None:
    _, result = finished
    assert "step 4/4  validation loss" in result.stderr
    assert "validation loss" not in result.stdout


def test_each_lecture_sentence_is_marked_as_right_or_wrong(finished: tuple[Path, Result]) -> None:
    _, result = finished
    assert "the animal did not cross the street because it was too tired" in result.stdout
    # After four steps every translation is wrong, so every reference is printed.
    assert result.stdout.count("    ✗ ") == 8
    assert "reference: أستطيع الذهاب وحيداً" in result.stdout
    assert "test   0.0 % exact matches (0 of 10)" in result.stdout
    assert "novel  0.0 % exact matches (0 of 6)" in result.stdout


def test_alignments_are_scored_and_the_best_head_is_stored(finished: tuple[Path, Result]) -> None:
    folder, result = finished
    assert "AER|pairs:6|" in result.stdout
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert scores["alignment"]["tap"] in result.stdout
    assert scores["alignment"]["reason"] == "gold links"


def test_the_report_shows_the_scores_and_the_attention(finished: tuple[Path, Result]) -> None:
    page = (finished[0] / "report.html").read_text(encoding="utf-8")
    assert "exact match, novel" in page
    assert page.count("<figcaption>") == 4
    assert page.count('<div class="sample">') == 8
    assert 'dir="rtl"' in page


@pytest.mark.parametrize("to", ["de", "fr", "it", "ar"])
def test_every_corpus_of_the_recipe_has_the_target_language(to: str) -> None:
    recipe = demo_recipe(to)
    assert recipe.name == f"demo-{to}"
    for corpus in (*recipe.data.train, recipe.data.valid, recipe.data.test):
        assert corpus is not None
        assert corpus.model_dump()["to"] == to


def test_the_demo_uses_the_phrasebook_recipe_of_the_recipes_folder() -> None:
    recipe = load(ROOT / "recipes" / "phrasebook.toml")
    assert demo_recipe("de", ["name=phrasebook"]) == recipe
