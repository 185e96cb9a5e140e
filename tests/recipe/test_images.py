"""The section of pictures belongs to tasks with pictures, and their files are lists of pictures."""

import pytest

from regard.recipe import ImagesCorpus, ImageSettings, Recipe, dump, parse, render
from regard.recipe.images import as_images

PAIR = "[data]\ntrain = [{ to = 'de' }]\n"
OWN = "task = 'own'\n[data]\ntrain = [{ kind = 'scenes' }]\n"


def test_a_recipe_without_pictures_has_no_section_of_them() -> None:
    recipe = parse(PAIR)
    assert "[image]" not in dump(recipe)
    assert "[image]" not in render(recipe)
    assert not any(name.startswith("image.") for name in recipe.architecture)


def test_settings_of_pictures_are_written_and_are_part_of_the_architecture() -> None:
    recipe = parse(OWN, ["image.size=80", "image.fit=crop"])
    assert recipe.image == ImageSettings(size=80, fit="crop")
    assert recipe.image.shape == (3, 80, 80)
    assert parse(dump(recipe)) == parse(render(recipe)) == recipe
    assert {name: value for name, value in recipe.architecture.items() if name.startswith("image")} == {
        "image.size": 80,
        "image.channels": 3,
        "image.fit": "crop",
    }


def test_settings_of_pictures_in_a_recipe_for_texts_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[image\] has settings of tasks with pictures, and .* task = 'translation'"):
        parse(PAIR, ["image.size=80"])
    assert parse(PAIR, ["image.size=64"]).image == ImageSettings()


@pytest.mark.parametrize("setting", ["image.size=0", "image.size=2000", "image.channels=2", "image.fit=stretch"])
def test_an_impossible_size_is_an_error(setting: str) -> None:
    with pytest.raises(ValueError, match=setting.partition("=")[0]):
        parse(OWN, [setting])


def test_a_file_of_a_task_with_pictures_is_a_list_of_pictures_unless_a_kind_is_named() -> None:
    assert as_images({"path": "list.tsv"}) == {"path": "list.tsv", "kind": "images"}
    for table in ({"path": "list.tsv", "kind": "tsv"}, {"kind": "scenes"}, None, 7):
        assert as_images(table) == table


def test_the_keys_of_a_corpus_of_pictures_are_read() -> None:
    table = {"kind": "images", "path": "train.npz", "captions": "train.tsv", "weight": 2.0}
    recipe = Recipe.model_validate({"task": "own", "data": {"train": [table]}})
    (corpus,) = recipe.data.train
    assert corpus == ImagesCorpus(path="train.npz", captions="train.tsv", weight=2.0)
    assert corpus.paths == ("train.npz", "train.tsv")
    assert Recipe.model_validate({"task": "own", "data": {"train": [{"path": "a.npz"}]}}).data.train[0].kind == "images"
