"""Every setting is documented, and the schema for editors is current."""

import json
from pathlib import Path

import pytest

from regard.recipe import catalogue, find_settings, json_schema

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_has_a_description() -> None:
    assert [setting.key for setting in catalogue() if not setting.description.endswith((".", ")"))] == []


def test_the_number_of_settings_is_a_decision() -> None:
    assert len(catalogue()) == 190


def test_a_setting_is_found_by_its_key_or_by_a_name_only_it_has() -> None:
    assert find_settings("warmup") == find_settings("train.warmup")
    assert find_settings("train.warmup")[0].paper == "Vaswani et al. 2017, §5.3"


def test_a_setting_is_described_for_each_family_in_which_it_differs() -> None:
    descriptions = {setting.families: setting.description for setting in find_settings("model.width")}
    assert descriptions == {
        ("transformer", "hierarchical"): "Width of the residual stream, the paper's d_model (§3.1).",
        ("sutskever", "bahdanau", "luong", "hran"): "Width of the hidden states.",
        ("convs2s",): "Width of the layers.",
        ("rnn",): "Width of the hidden states in each direction.",
        ("han",): "Width of the hidden states of words and sentences in each direction.",
        ("patch", "inverted"): "Width of the residual stream.",
        ("lstm",): "Width of the hidden states.",
    }
    assert [setting.allowed for setting in find_settings("model.kind")] == [
        "one of transformer, sutskever, bahdanau, luong, convs2s, hran, hierarchical, rnn, han, patch, inverted, lstm, "
        "nlinear, dlinear"
    ]


@pytest.mark.parametrize(
    ("key", "message"),
    [("train.warmpu", "did you mean train.warmup"), ("kind", "write the whole key"), ("zzz", "no setting")],
)
def test_an_unknown_setting_is_an_error_with_a_suggestion(key: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_settings(key)


def test_the_schema_for_editors_is_current() -> None:
    saved = ROOT / "docs" / "recipe.schema.json"
    assert json.loads(saved.read_text(encoding="utf-8")) == json.loads(json_schema())
