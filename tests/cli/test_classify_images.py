"""`regard classify`, `regard evaluate` and `regard figure` for classifiers of pictures."""

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.data.digits import digits

DIGITS = list(digits("test", 4))


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    """Return the names of some picture files."""
    for number, digit in enumerate(DIGITS):
        Image.fromarray(digit.image).save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(len(DIGITS))]


def run(*words: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"], input=text)


def refused(*words: str | Path) -> str:
    result = run(*words)
    assert isinstance(result.exception, ValueError), result.output
    return str(result.exception)


def test_each_picture_gives_its_name_a_label_and_a_probability(digits_run: Path, pictures: list[str]) -> None:
    by_argument = run("classify", digits_run, *pictures, "--quiet")
    by_line = run("classify", digits_run, "--quiet", text="\n".join(pictures) + "\n")
    assert by_argument.exit_code == by_line.exit_code == 0
    assert by_argument.stdout == by_line.stdout
    rows = [line.split("\t") for line in by_line.stdout.splitlines()]
    assert [name for name, _, _ in rows] == pictures
    assert all(label in "0123456789" and 0 < float(probability) <= 1 for _, label, probability in rows)


def test_a_bad_picture_is_an_error_and_all_others_are_classified(
    digits_run: Path, pictures: list[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_bytes(Path(pictures[0]).read_bytes()[:60])
    names = [pictures[0], str(tmp_path / "bad.png"), "nowhere.png", pictures[1]]
    result = run("classify", digits_run, *names, "--quiet")
    assert result.exit_code == 1
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [pictures[0], pictures[1]]
    assert f"error: {tmp_path / 'bad.png'} is damaged" in result.stderr
    assert "error: nowhere.png does not exist" in result.stderr
    assert "Traceback" not in result.stderr


def test_json_has_the_name_and_on_request_attention(digits_run: Path, pictures: list[str]) -> None:
    (line,) = run("classify", digits_run, pictures[0], "--json", "--attention", "--quiet").stdout.splitlines()
    table = json.loads(line)
    assert table["image"] == pictures[0]
    assert len(table["probabilities"]) == 10
    assert len(table["attention"]["rollout"]) == 7
    (short,) = run("classify", digits_run, pictures[0], "--json", "--top", "2", "--quiet").stdout.splitlines()
    assert list(json.loads(short)["probabilities"]) == list(table["probabilities"])[:2]
    (columns,) = run("classify", digits_run, pictures[0], "--top", "2", "--quiet").stdout.splitlines()
    assert columns.split("\t")[1::2] == list(table["probabilities"])[:2]


def test_several_files_of_texts_are_refused(classifier_run: Path) -> None:
    assert "texts are read from one file" in refused("classify", classifier_run, "a.txt", "b.txt")


def test_evaluate_scores_the_pictures_of_the_recipe_or_of_a_list(
    digits_run: Path, pictures: list[str], tmp_path: Path
) -> None:
    own = run("evaluate", digits_run)
    assert own.exit_code == 0, own.exception
    assert "40 pictures of" in own.stdout
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in pictures), encoding="utf-8")
    (tmp_path / "labels.txt").write_text("".join(f"{digit.label}\n" for digit in DIGITS), encoding="utf-8")
    files = ["--source", str(tmp_path / "names.txt"), "--reference", str(tmp_path / "labels.txt")]
    table = json.loads(run("evaluate", digits_run, *files, "--json", "--against", digits_run).stdout)
    assert table["pictures"] == 4
    assert [score["name"] for score in table["scores"]] == ["accuracy", "macro F1", "calibration error"]
    assert table["comparison"]["difference"] == 0


def test_a_figure_shows_the_picture_and_two_maps(digits_run: Path, pictures: list[str], tmp_path: Path) -> None:
    out = tmp_path / "patches.png"
    result = run("figure", digits_run, pictures[0], "--kind", "patches", "-o", out, "--dpi", "50")
    assert result.exit_code == 0, result.exception
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "needs a picture, as in" in refused("figure", digits_run, "--kind", "patches")
    assert "draw one of kind patches or curves" in refused("figure", digits_run, pictures[0], "--kind", "heads")


def test_a_figure_of_patches_needs_a_classifier_of_pictures(classifier_run: Path, pictures: list[str]) -> None:
    assert "give a run with task = 'image_classification'" in refused(
        "figure", classifier_run, pictures[0], "--kind", "patches"
    )
