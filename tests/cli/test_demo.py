"""`regard demo`, with a budget too small to learn much but large enough to show everything."""

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


def demo(folder: Path, *words: str) -> Result:
    told = ["--run", str(folder), "--sentences", "6", "--plain", *words]
    return CliRunner().invoke(app, ["demo", *TINY, *told], catch_exceptions=False)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Arabic, because it asks more of everything that draws."""
    folder = tmp_path_factory.mktemp("runs") / "demo-ar"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder.parent / "cache"))
        return folder, demo(folder, "--to", "ar")


def test_the_demonstration_goes_from_sentences_to_a_report(shown: tuple[Path, Result]) -> None:
    folder, said = shown
    assert said.exit_code == 0
    for part in ("1. Sentences", "2. Training", "3. Sentences it has never", "4. Which word", "5. And then"):
        assert part in said.stdout
    assert (folder / "report.html").is_file()
    assert (folder / "report.png").is_file()
    assert str(folder / "report.html") in said.stdout


def test_progress_goes_to_stderr_and_results_to_stdout(shown: tuple[Path, Result]) -> None:
    _, said = shown
    assert "step 4/4  validation loss" in said.stderr
    assert "validation loss" not in said.stdout


def test_each_lecture_sentence_is_said_to_be_right_or_wrong(shown: tuple[Path, Result]) -> None:
    _, said = shown
    assert "the animal did not cross the street because it was too tired" in said.stdout
    # Four steps teach nobody Arabic: everything is wrong, and what it should be stands there.
    assert said.stdout.count("    ✗ ") == 8
    assert "should be: أستطيع الذهاب وحيداً" in said.stdout
    assert "test   0.0 % right to the letter (0 of 10)" in said.stdout
    assert "novel  0.0 % right to the letter (0 of 6)" in said.stdout


def test_alignments_are_measured_and_their_place_is_kept(shown: tuple[Path, Result]) -> None:
    folder, said = shown
    assert "AER|pairs:6|" in said.stdout
    kept = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert kept["alignment"]["tap"] in said.stdout
    assert kept["alignment"]["reason"] == "gold links"


def test_the_report_shows_the_scores_and_the_attention(shown: tuple[Path, Result]) -> None:
    page = (shown[0] / "report.html").read_text(encoding="utf-8")
    assert "exact match, novel" in page
    assert page.count("<figcaption>") == 4
    assert page.count('<div class="sample">') == 8
    assert 'dir="rtl"' in page


@pytest.mark.parametrize("to", ["de", "fr", "it", "ar"])
def test_the_recipe_speaks_the_language_asked_for_throughout(to: str) -> None:
    recipe = demo_recipe(to)
    assert recipe.name == f"demo-{to}"
    for corpus in (*recipe.data.train, recipe.data.valid, recipe.data.test):
        assert corpus is not None
        assert corpus.model_dump()["to"] == to


def test_the_demonstration_trains_by_the_recipe_that_can_be_read_beside_the_others() -> None:
    recipe = load(ROOT / "recipes" / "phrasebook.toml")
    assert demo_recipe("de", ["name=phrasebook"]) == recipe
