"""What a run takes over from the run it starts from."""

from pathlib import Path

import pytest

from regard.recipe import dump, parse
from regard.train.start import inherit_text_settings

DATA = '[data]\ntrain = [{ to = "de", pairs = 20 }]\n'


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Return a folder with the recipe of another run."""
    (tmp_path / "recipe.toml").write_text(dump(parse(DATA, ["text.size=500", "text.kind=unigram"])), encoding="utf-8")
    return tmp_path


def test_a_text_setting_that_train_start_would_discard_is_refused(other: Path) -> None:
    recipe = parse(DATA, [f"train.start='{other}'", "text.size=900", "text.kind=unigram"])
    with pytest.raises(
        ValueError, match=r"text\.size is 500 there and 900 here; remove it .* train.vocabulary = 'new'"
    ):
        inherit_text_settings(recipe)


def test_text_settings_are_taken_over_and_symbols_and_sampling_are_kept(other: Path) -> None:
    recipe = parse(DATA, [f"train.start='{other}'", "text.size=500", "text.sampling=0.1", 'text.symbols=["<x>"]'])
    text = inherit_text_settings(recipe).text
    assert (text.size, text.kind, text.sampling, text.symbols) == (500, "unigram", 0.1, ("<x>",))


def test_a_new_vocabulary_has_the_settings_of_its_own_recipe(other: Path) -> None:
    recipe = parse(DATA, [f"train.start='{other}'", "train.vocabulary=new", "text.size=900"])
    assert inherit_text_settings(recipe).text.size == 900
