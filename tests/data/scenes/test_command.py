"""The command `regard scenes`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from regard.cli import app
from regard.data.corpus import Reader
from regard.data.pictures import load_image
from regard.data.scenes import scenes
from regard.recipe import Data, ImagesCorpus


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["scenes", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_captions() -> None:
    assert run("-n", "3", "--to", "it", "--seed", "2").splitlines() == [
        scene.caption for scene in scenes("train", 3, "it", 2)
    ]


def test_the_folder_is_a_corpus_for_training(tmp_path: Path) -> None:
    run("-n", "3", "--to", "de", "--out", str(tmp_path / "shapes"))
    corpus = ImagesCorpus(path="captions.tsv")
    data = Data(train=(corpus,), root=str(tmp_path / "shapes"))
    records = list(Reader.of(data, ("image", "captions")).records(corpus))
    for (image, caption), scene in zip(records, scenes("train", 3, "de"), strict=True):
        assert caption == scene.caption
        with Image.open(image) as opened:
            assert opened.format == "PNG"
        np.testing.assert_array_equal(load_image(image, 64), scene.image)


def test_json_has_the_boxes_of_each_word(tmp_path: Path) -> None:
    output = run("-n", "2", "--split", "novel", "--json", "--out", str(tmp_path))
    for line, scene in zip(output.splitlines(), scenes("novel", 2), strict=True):
        value = json.loads(line)
        assert (tmp_path / value["image"]).is_file()
        assert value["caption"] == scene.caption
        assert [word["text"] for word in value["words"]] == scene.caption.split()
        assert [word["boxes"] and [tuple(box) for box in word["boxes"]] for word in value["words"]] == [
            word.boxes and list(word.boxes) for word in scene.words
        ]
    assert json.loads(run("-n", "1", "--json"))["image"] == "scene:train/0/0"


@pytest.mark.parametrize("arguments", [("--to", "es"), ("--split", "dev")])
def test_an_unknown_name_raises(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["scenes", *arguments])
    assert isinstance(result.exception, ValueError)
    assert "choose one of" in str(result.exception)
