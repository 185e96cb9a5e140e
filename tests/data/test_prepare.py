"""Preparing the data of a recipe: any part of the cache may be lost or damaged."""

import logging
from pathlib import Path

import pytest

from regard.data.cache import cache_folder
from regard.data.prepare import Prepared, prepare
from regard.recipe import Recipe, parse
from regard.tasks import make_task

RECIPE = """
[data]
train = [{ to = "de", pairs = 60 }]
valid = { to = "de", pairs = 12, split = "valid" }
[text]
size = 330
joint = false
[model]
tied = "decoder"
"""


def prepared(recipe: Recipe) -> Prepared:
    return prepare(recipe, make_task(recipe), Path("unused"))


@pytest.mark.parametrize("harm", ["lost", "cut", "changed"])
def test_a_vocabulary_in_the_cache_that_is_lost_or_damaged_is_learned_again(
    harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = parse(RECIPE)
    before = prepared(recipe).fields.fingerprint
    files = [path for path in sorted((cache_folder() / "vocabulary").rglob("*")) if path.is_file()]
    assert [path.name for path in files] == ["source.model", "target.model", "tokenizer.json"]
    for path in files:
        data = path.read_bytes()
        match harm:
            case "lost":
                path.unlink()
            case "cut":
                path.write_bytes(data[: len(data) // 2])
            case "changed":
                middle = data.index(b"model") if path.suffix == ".json" else len(data) // 2
                path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        caplog.clear()
        with caplog.at_level(logging.WARNING, "regard"):
            assert prepared(recipe).fields.fingerprint == before
        [warning] = caplog.messages
        assert "The vocabulary is learned again." in warning
        assert path.read_bytes() == data


def test_the_report_has_the_validation_data() -> None:
    recipe = parse(RECIPE)
    report = prepared(recipe)
    assert "data.valid: the phrasebook\n12 examples" in str(report)
    assert report.summary()["valid"]["examples"] == 12
    assert "test" not in report.summary()


def test_validation_data_of_which_nothing_is_short_enough_are_an_error(tmp_path: Path) -> None:
    for side in ("en", "de"):
        (tmp_path / f"valid.{side}").write_text(("I can go " * 99 + "\n") * 3, encoding="utf-8")
    files = f"{{source='{tmp_path}/valid.en', target='{tmp_path}/valid.de'}}"
    with pytest.raises(ValueError, match=r"Every record of data.valid has more than data.longest = 90 tokens"):
        prepared(parse(RECIPE, [f"data.valid={files}", "data.longest=90"]))
