"""The settings as data: every one documented, few of them, and known to editors."""

import json
from pathlib import Path

import pytest

from regard.recipe import catalogue, find_settings, json_schema

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_says_what_it_does() -> None:
    assert [each.key for each in catalogue() if not each.meaning.endswith((".", ")"))] == []


def test_the_number_of_settings_grows_only_by_decision() -> None:
    assert len(catalogue()) == 105


def test_a_setting_is_found_by_its_key_or_by_a_name_only_it_has() -> None:
    assert find_settings("warmup") == find_settings("train.warmup")
    assert find_settings("train.warmup")[0].paper == "Vaswani et al. 2017, §5.3"


def test_a_setting_of_several_families_is_told_for_each_that_differs() -> None:
    told = {each.families: each.meaning for each in find_settings("model.width")}
    assert told == {
        ("transformer",): "Width of the residual stream, the paper's d_model (§3.1).",
        ("sutskever", "bahdanau", "luong"): "Width of the states.",
        ("convs2s",): "Width of the layers.",
    }
    assert [each.allowed for each in find_settings("model.kind")] == [
        "one of transformer, sutskever, bahdanau, luong, convs2s"
    ]


@pytest.mark.parametrize(
    ("key", "words"),
    [("train.warmpu", "did you mean train.warmup"), ("kind", "write the whole key"), ("zzz", "no setting")],
)
def test_an_unknown_setting_is_an_error_that_helps(key: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_settings(key)


def test_the_schema_for_editors_is_current() -> None:
    kept = ROOT / "docs" / "recipe.schema.json"
    assert json.loads(kept.read_text(encoding="utf-8")) == json.loads(json_schema())
