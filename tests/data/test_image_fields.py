"""Fields with pictures are learned, saved and loaded; their data are prepared and batched."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.records import lists_from

from regard.data.batch import Batch, RandomKey, per_sequence
from regard.data.batching import Feed
from regard.data.fields import ImageField, LabelField, TextsField, learn_fields, load_fields
from regard.data.prepare import prepare
from regard.data.rows import Lengths, Numbers, Rows
from regard.recipe import Data, DigitsCorpus, FieldKind, Filter, ImageSettings, Recipe, ScenesCorpus, Text, parse
from regard.text import END, Tokenizer

CAPTIONS: dict[str, FieldKind] = {"image": "image", "captions": "texts"}
LABELS: dict[str, FieldKind] = {"image": "image", "label": "label"}
SMALL = ImageSettings(size=4)


class TestFields:
    def test_an_image_field_encodes_channel_by_channel(self, tmp_path: Path) -> None:
        Image.new("RGB", (4, 4), (10, 10, 10)).save(tmp_path / "10.png")
        pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        Image.fromarray(pixels).save(tmp_path / "picture.png")
        field = ImageField(SMALL)
        rows = field.encode([str(tmp_path / "picture.png"), str(tmp_path / "10.png")])
        np.testing.assert_array_equal(rows.ids[:48].reshape(3, 4, 4), pixels.transpose(2, 0, 1))
        assert rows.lengths.tolist() == [48, 48] == [len(field)] * 2
        assert (rows.ids.dtype.name, field.dtype.name, field.shape) == ("uint8", "uint8", (3, 4, 4))
        assert field.encode([]).lengths.tolist() == []
        assert field.decode(rows.ids[:48].tolist()) == ""

    def test_pictures_that_are_read_differently_have_other_fingerprints(self) -> None:
        settings = [{}, {"size": 32}, {"channels": 1}, {"fit": "crop"}, {"fit": "pad"}]
        fields = [ImageField(ImageSettings.model_validate(values)) for values in settings]
        assert len({field.fingerprint for field in fields}) == 5

    def test_alternative_texts_keep_their_number_and_order(self) -> None:
        field = TextsField(Tokenizer.learn(["a dog runs", "one dog"], 300))
        (ids,) = lists_from(field.encode(["a dog\t\t one dog \t"]))
        assert ids.count(END) == 2
        assert field.decode(ids) == "a dog\tone dog"
        assert [field.tokenizer.decode(text) for text in field.texts(ids)] == ["a dog", "one dog"]
        assert field.kind == "texts"

    @pytest.mark.parametrize("kinds", [CAPTIONS, LABELS])
    def test_fields_with_pictures_are_learned_saved_and_loaded(
        self, tmp_path: Path, kinds: dict[str, FieldKind]
    ) -> None:
        corpus = ScenesCorpus() if kinds is CAPTIONS else DigitsCorpus()
        recipe = Recipe(
            task="own", data=Data(train=(corpus,)), text=Text(kind="char", size=100, bytes=False), image=SMALL
        )
        learned = learn_fields(kinds, [("a.png", "a dog\ta cat"), ("b.png", "a cat")], recipe)
        learned.save(tmp_path)
        loaded = load_fields(tmp_path, kinds, recipe.image)
        assert loaded.fingerprint == learned.fingerprint
        assert loaded.sizes == learned.sizes
        assert loaded.sizes["image"] == 48
        assert (tmp_path / "tokenizer").exists() == (kinds is CAPTIONS)
        assert isinstance(loaded[list(kinds)[1]], TextsField if kinds is CAPTIONS else LabelField)


@dataclass(frozen=True, eq=False)
class PictureBatch(Batch):
    """Pictures alone."""

    image_BCHW: torch.Tensor = per_sequence(fill=0)


@dataclass(frozen=True)
class PictureTask:
    """What is needed of a task to prepare its data."""

    kinds: dict[str, FieldKind]
    multiline: bool = False
    filters: tuple[Filter, ...] = ("empty", "long", "duplicate")
    cut_at: int | None = None
    tagged: str | None = None

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        return (np.ones(len(lengths["image"]), np.int64),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> PictureBatch:
        return PictureBatch(rows["image"].to_tensor(3, 16, 16))

    def collate_for_training(self, rows: Mapping[str, Rows], index: Numbers, draw: RandomKey) -> PictureBatch:
        return self.collate(rows, index)


@pytest.mark.parametrize("kinds", [CAPTIONS, LABELS])
def test_data_with_pictures_are_prepared_and_batched(tmp_path: Path, kinds: dict[str, FieldKind]) -> None:
    kind = "scenes" if kinds is CAPTIONS else "digits"
    corpora = f"train = [{{ kind = '{kind}', count = 40 }}]\nvalid = {{ kind = '{kind}', count = 9, split = 'valid' }}"
    text = f"task = 'own'\n[data]\n{corpora}\nlongest = 100\n[text]\nkind = 'char'\nbytes = false\nsize = 60\n"
    recipe, task = parse(text + "[image]\nsize = 16\n"), PictureTask(kinds)
    for _ in range(2):  # the second time from the cache
        prepared = prepare(recipe, task, tmp_path)
        assert str(prepared).startswith("vocabulary  image: image, 16 x 16, colour; ")
        assert prepared.summary()["vocabulary"]["image"] == {"kind": "image", "size": 768}
        assert prepared.summary()["valid"]["examples"] == 9
        assert prepared.notices() == []
    feed = Feed(prepared.stores, (1.0,), tokens=7, collator=task)
    batches = [batch for step in feed.epoch(0) for batch in step]
    assert sum(map(len, batches)) == 40
    assert {tuple(batch.image_BCHW.shape[1:]) for batch in batches if isinstance(batch, PictureBatch)} == {(3, 16, 16)}


@pytest.mark.parametrize("longest", [20, 400])
def test_of_validation_data_captions_are_measured_one_by_one(tmp_path: Path, longest: int) -> None:
    for value in (10, 20):
        Image.new("L", (4, 4), value).save(tmp_path / f"{value}.png")
    (tmp_path / "list.tsv").write_text("10.png\ta dog\tone dog\tthe dog\tthis dog\n20.png\ta dog in the garden runs\n")
    table = f"{{ kind = 'images', path = '{tmp_path / 'list.tsv'}' }}".replace("'list.tsv'", "list.tsv")
    text = f"task = 'own'\n[data]\nroot = '{tmp_path}'\nlongest = {longest}\ntrain = [{table}]\nvalid = {table}\n"
    recipe = parse(text + "[text]\nkind = 'char'\nbytes = false\nsize = 60\n[image]\nsize = 4\n")
    prepared = prepare(recipe, PictureTask(CAPTIONS), tmp_path)
    assert prepared.valid is not None
    assert prepared.valid.too_long == ((2,) if longest == 20 else ())
