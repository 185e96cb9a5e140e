"""Lists and archives of pictures become records, and what is wrong in them is an error that names the line."""

import gzip
import io
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.records import lists_from

from regard.data.archive import open_archive
from regard.data.build import build_store
from regard.data.cache import files_digest
from regard.data.corpus import Reader
from regard.data.fields import Fields, ImageField, LabelField, TextsField, learn_fields, load_fields, split_parts
from regard.data.pictures import load_image
from regard.data.store import Store
from regard.recipe import (
    Corpus,
    Data,
    DigitsCorpus,
    FieldKind,
    ImagesCorpus,
    ImageSettings,
    PhrasebookCorpus,
    Recipe,
    ScenesCorpus,
    Text,
    TsvCorpus,
)
from regard.text import END, Tokenizer

CAPTIONS: dict[str, FieldKind] = {"image": "image", "captions": "texts"}
LABELS: dict[str, FieldKind] = {"image": "image", "label": "label"}
SMALL = ImageSettings(size=4)


def picture(value: int, side: int = 4) -> bytes:
    """A PNG file of one shade of grey."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (value,) * 3).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the pictures 10.png, 20.png and 30.png, each of that shade."""
    for value in (10, 20, 30):
        (tmp_path / f"{value}.png").write_bytes(picture(value))
    return tmp_path


def records(corpus: Corpus, kinds: dict[str, FieldKind], root: Path) -> list[tuple[str, ...]]:
    """The records of a corpus."""
    return list(Reader.of(Data(train=(corpus,), root=str(root)), tuple(kinds)).records(corpus))


def stored(
    corpus: Corpus, kinds: dict[str, FieldKind], root: Path, images: ImageSettings = SMALL
) -> tuple[Store, Fields]:
    """The store of a corpus, with fields learned from it."""
    data = Data(train=(corpus,), root=str(root))
    recipe = Recipe(task="own", data=data, text=Text(kind="char", size=100, bytes=False), image=images)
    fields = learn_fields(kinds, Reader.of(data, tuple(kinds)).records(corpus), recipe)
    return build_store(corpus, data, fields, cache=root / "cache", keep_text=True), fields


def shades(store: Store) -> list[int]:
    """The shade of each picture of a store."""
    rows = store.gather(np.arange(len(store)))["image"]
    tensor = rows.to_tensor(*SMALL.shape)
    assert tensor.dtype == torch.uint8
    assert tensor.shape == (len(store), 3, 4, 4)
    return [int(shade.unique().item()) for shade in tensor]


class TestLists:
    def test_a_line_has_a_picture_and_its_captions(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\ta dog\tone  dog\n20.png\ta cat\n")
        found = records(ImagesCorpus(path="list.tsv"), CAPTIONS, folder)
        assert found == [(str(folder / "10.png"), "a dog\tone  dog"), (str(folder / "20.png"), "a cat")]

    def test_a_line_has_a_picture_and_its_label(self, folder: Path) -> None:
        with gzip.open(folder / "list.tsv.gz", "wt") as file:
            file.write(f"10.png\t dog \tignored\n{folder / '20.png'}\tcat\n")
        found = records(ImagesCorpus(path="list.tsv.gz"), LABELS, folder)
        assert found == [(str(folder / "10.png"), "dog"), (str(folder / "20.png"), "cat")]

    def test_json_lines_have_the_same_records(self, folder: Path) -> None:
        lines = [
            {"image": "10.png", "captions": ["a dog", "one\tdog\n"], "label": 7},
            {"image": "20.png", "captions": "a cat", "label": "cat"},
        ]
        (folder / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        captions = [text for _, text in records(ImagesCorpus(path="list.jsonl"), CAPTIONS, folder)]
        assert captions == ["a dog\tone dog", "a cat"]
        assert [label for _, label in records(ImagesCorpus(path="list.jsonl"), LABELS, folder)] == ["7", "cat"]

    @pytest.mark.parametrize(
        ("name", "line", "problem"),
        [
            ("list.tsv", "20.png", "line 2: needs the path of a picture, a tab and captions"),
            ("list.tsv", "", "line 2: needs the path of a picture, a tab and captions"),
            ("list.tsv", "\ta cat", "line 2: needs the path of a picture, a tab and captions"),
            ("list.jsonl", "{", "line 2: not JSON"),
            ("list.jsonl", "[]", "line 2: needs an object with the keys 'image' and 'captions'; its keys are: none"),
            ("list.jsonl", '{"image": "a"}', "'captions'; its keys are: 'image'"),
            ("list.jsonl", '{"image": "", "captions": "a"}', "'image' must be the path of a picture"),
            ("list.jsonl", '{"image": "a", "captions": [1]}', "'captions' a string or an array of strings"),
            ("list.jsonl", '{"image": "a", "captions": "\\ud800"}', "line 2: contains a lone surrogate"),
        ],
    )
    def test_a_malformed_line_is_an_error_that_names_it(self, folder: Path, name: str, line: str, problem: str) -> None:
        first = "10.png\ta dog" if name.endswith("tsv") else '{"image": "10.png", "captions": "a dog"}'
        (folder / name).write_text(f"{first}\n{line}\n")
        with pytest.raises(ValueError, match=problem):
            records(ImagesCorpus(path=name), CAPTIONS, folder)

    def test_a_label_is_one_string(self, folder: Path) -> None:
        (folder / "list.jsonl").write_text('{"image": "10.png", "label": ["a", "b"]}\n')
        with pytest.raises(ValueError, match="line 1: 'image' must be the path of a picture, and 'label' a string"):
            records(ImagesCorpus(path="list.jsonl"), LABELS, folder)

    @pytest.mark.parametrize(
        ("name", "problem"),
        [
            ("40.png", r"line 2: the picture .*40\.png does not exist. Fix the path, or data\.root"),
            (".", r"line 2: the picture .* is a folder"),
            ("text.png", r"line 2: .*text\.png is not a picture"),
            ("empty.png", r"line 2: .*empty\.png is empty"),
            ("cut.png", r"line 2: .*cut\.png is damaged"),
        ],
    )
    def test_a_picture_that_cannot_be_read_is_an_error_that_names_list_and_line(
        self, folder: Path, name: str, problem: str
    ) -> None:
        (folder / "text.png").write_text("hello")
        (folder / "empty.png").write_text("")
        (folder / "cut.png").write_bytes(picture(1, 40)[:70])
        (folder / "list.tsv").write_text(f"10.png\ta dog\n{name}\ta cat\n")
        with pytest.raises(ValueError, match=r"list\.tsv, " + problem):
            stored(ImagesCorpus(path="list.tsv"), CAPTIONS, folder)


class TestStores:
    def test_pixels_are_stored_as_bytes_beside_captions(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\ta dog\tone dog\n20.png\ta cat\n30.png\ta cat\ta bird\n")
        store, fields = stored(ImagesCorpus(path="list.tsv"), CAPTIONS, folder)
        assert store.fields["image"].ids.dtype == np.uint8
        assert shades(store) == [10, 20, 30]
        tokens, sizes = split_parts(store.column("captions"))
        assert [len(sizes_of) for sizes_of in lists_from(sizes)] == [2, 1, 2]
        assert fields["captions"].decode(lists_from(store.column("captions"))[2]) == "a cat\ta bird"
        assert tokens.lengths.tolist() == [sum(sizes_of) for sizes_of in lists_from(sizes)]
        assert store.text(np.array([1])) == {"image": [str(folder / "20.png")], "captions": ["a cat"]}
        np.testing.assert_array_equal(load_image(store.text(np.array([1]))["image"][0], 4), np.full((4, 4, 3), 20))

    def test_a_record_without_captions_is_dropped(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\ta dog\n20.png\t \t\n30.png\ta cat\n")
        store, _ = stored(ImagesCorpus(path="list.tsv"), CAPTIONS, folder)
        assert shades(store) == [10, 30]
        assert store.report.dropped["empty"] == 1

    def test_long_is_each_caption_and_not_all_together(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\ta dog\tone dog\n20.png\tsomething else\n")
        corpus = ImagesCorpus(path="list.tsv")
        data = Data(train=(corpus,), root=str(folder), longest=9)
        recipe = Recipe(task="own", data=data, text=Text(kind="char", size=100, bytes=False), image=SMALL)
        fields = learn_fields(CAPTIONS, records(corpus, CAPTIONS, folder), recipe)
        assert shades(build_store(corpus, data, fields, cache=folder / "cache")) == [10]

    def test_a_store_is_built_again_if_a_picture_changes(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\tdark\n20.png\tlight\n")
        corpus = ImagesCorpus(path="list.tsv")
        first, _ = stored(corpus, LABELS, folder)
        assert stored(corpus, LABELS, folder)[0].folder == first.folder
        (folder / "20.png").write_bytes(picture(200))
        second, _ = stored(corpus, LABELS, folder)
        assert second.folder != first.folder
        assert (shades(first), shades(second)) == ([10, 20], [10, 200])

    def test_equal_records_are_duplicates_and_the_same_picture_with_another_label_is_not(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\tdark\n10.png\tdark\n10.png\tlight\n")
        store, _ = stored(ImagesCorpus(path="list.tsv"), LABELS, folder)
        assert store.report.dropped["duplicate"] == 1
        assert len(store) == 2

    def test_a_corpus_without_pictures_cannot_fill_an_image_field(self, folder: Path) -> None:
        (folder / "list.tsv").write_text("10.png\tdark\n")
        with pytest.raises(ValueError, match="A corpus of kind 'tsv' has no pictures"):
            stored(TsvCorpus(path="list.tsv"), LABELS, folder)


def digest_inputs(folder: Path) -> list[Path]:
    paths = [folder / f"{value}.png" for value in (10, 20, 30)]
    for path in paths:
        os.utime(path, ns=(1, time.time_ns() - 10**10))
    return paths


def test_the_digest_of_many_files_depends_on_their_contents_and_order(folder: Path) -> None:
    paths, cache = digest_inputs(folder), folder / "cache"
    digest = files_digest(paths, cache)
    assert files_digest(paths, cache) == digest == files_digest(paths, folder / "other")
    assert files_digest(paths[::-1], cache) != digest
    assert files_digest(paths[:2], cache) != digest
    paths[1].write_bytes(picture(21))
    assert files_digest(paths, cache) != digest
    paths[1].write_bytes(picture(20))
    assert files_digest(paths, cache) == digest


def packed(folder: Path, **arrays: np.ndarray) -> ImagesCorpus:  # type: ignore[type-arg]
    """The corpus of a new archive with these arrays, and with three lines of captions."""
    np.savez(folder / "pictures.npz", **arrays)
    (folder / "captions.tsv").write_text("a\tone\tfirst\nb\ttwo\nc\tthree\n")
    return ImagesCorpus(path="pictures.npz")


def encoded_arrays(values: Sequence[int]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """Encoded pictures of these shades, as arrays of an archive."""
    files = [picture(value) for value in values]
    return {
        "blob": np.frombuffer(b"".join(files), np.uint8),
        "offset": np.cumsum([0, *map(len, files)]),
    }


PIXELS = np.arange(3, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)


class TestArchives:
    def test_encoded_pictures_have_the_captions_on_the_line_of_their_number(self, folder: Path) -> None:
        corpus = packed(folder, **encoded_arrays([5, 6, 7])).model_copy(update={"captions": "captions.tsv"})
        store, _ = stored(corpus, CAPTIONS, folder)
        assert shades(store) == [5, 6, 7]
        assert store.text(np.array([0, 2])) == {
            "image": [f"{folder / 'pictures.npz'}#0", f"{folder / 'pictures.npz'}#2"],
            "captions": ["one\tfirst", "three"],
        }

    @pytest.mark.parametrize("shape", [(3, 4, 4), (3, 4, 4, 1), (3, 4, 4, 3), (3, 4, 4, 4)])
    def test_pixels_have_labels(self, folder: Path, shape: tuple[int, ...]) -> None:
        x = PIXELS.reshape(3, 4, 4, 1) * np.ones(shape[3:] or 1, np.uint8)
        x = x.reshape(shape)
        if shape[-1] == 4 and len(shape) == 4:
            x[..., 3] = 255
        store, fields = stored(packed(folder, x=x, y=np.array([7, 0, 7], np.uint8)), LABELS, folder)
        assert shades(store) == [0, 1, 2]
        assert [fields["label"].decode(ids) for ids in lists_from(store.column("label"))] == ["7", "0", "7"]

    @pytest.mark.parametrize(
        ("arrays", "problem"),
        [
            ({}, "has no pictures: it has the arrays none"),
            ({"data": PIXELS}, "has no pictures: it has the arrays data, but needs 'x'"),
            ({"x": PIXELS.astype(float), "y": np.zeros(3)}, "'x' is float64 with the shape"),
            ({"x": PIXELS[0], "y": np.zeros(3)}, r"'x' is uint8 with the shape \(4, 4\)"),
            ({"x": PIXELS, "y": np.zeros(4)}, r"'y' has the shape \(4,\), but there are 3 pictures"),
            ({"x": PIXELS}, "has no array 'y' with the labels"),
            ({**encoded_arrays([5, 6]), "offset": np.array([0, 9, 3])}, "'offset' does not divide 'blob'"),
            ({**encoded_arrays([5, 6]), "offset": np.array([0, 10**6])}, "'offset' does not divide 'blob'"),
            ({**encoded_arrays([5, 6]), "offset": np.array([0.0, 1.0])}, "'offset' does not divide 'blob'"),
            ({"x": np.array([None, 1], object), "y": np.zeros(2)}, "is not an archive of numpy arrays"),
        ],
    )
    def test_arrays_that_are_no_pictures_are_an_error(
        self,
        folder: Path,
        arrays: dict[str, np.ndarray],  # type: ignore[type-arg]
        problem: str,
    ) -> None:
        with pytest.raises(ValueError, match=problem):
            stored(packed(folder, **arrays), LABELS, folder)

    def test_a_damaged_archive_is_an_error(self, folder: Path) -> None:
        corpus = packed(folder, x=PIXELS, y=np.zeros(3))
        whole, single = (folder / "pictures.npz").read_bytes(), io.BytesIO()
        np.save(single, PIXELS)  # an array, but no archive
        for damaged in (b"", whole[:-30], whole[: len(whole) // 2], b"PK" + bytes(100), b"text", single.getvalue()):
            (folder / "pictures.npz").write_bytes(damaged)
            with pytest.raises(ValueError, match=r"pictures\.npz is not an archive of numpy arrays"):
                stored(corpus, LABELS, folder)

    def test_captions_that_are_too_few_are_an_error(self, folder: Path) -> None:
        corpus = packed(folder, **encoded_arrays([5, 6])).model_copy(update={"captions": "captions.tsv"})
        with pytest.raises(ValueError, match=r"captions\.tsv has 3 lines, but .*pictures\.npz has 2 pictures"):
            records(corpus, CAPTIONS, folder)

    def test_a_picture_that_is_damaged_is_named_by_its_number(self, folder: Path) -> None:
        arrays = encoded_arrays([5, 6])
        arrays["blob"] = arrays["blob"].copy()
        arrays["blob"][arrays["offset"][1] :] = 0
        corpus = packed(folder, **arrays, y=np.zeros(2, int))
        with pytest.raises(ValueError, match=r"line 2: .*pictures\.npz#1 is not a picture"):
            stored(corpus, LABELS, folder)

    def test_a_picture_beyond_the_end_is_an_error(self, folder: Path) -> None:
        packed(folder, x=PIXELS)
        with pytest.raises(ValueError, match="has the pictures 0 to 2, and no picture 3"):
            load_image(f"{folder / 'pictures.npz'}#3", 4)
        with pytest.raises(ValueError, match=r"none\.npz cannot be read"):
            load_image(f"{folder / 'none.npz'}#3", 4)

    def test_a_changed_archive_is_read_again(self, folder: Path) -> None:
        packed(folder, x=PIXELS)
        assert len(open_archive(folder / "pictures.npz")) == 3
        packed(folder, x=PIXELS[:2])
        assert len(open_archive(folder / "pictures.npz")) == 2

    def test_the_real_archives_are_read(self, shared_data: Path, tmp_path: Path) -> None:
        flickr = ImagesCorpus(path="flickr8k/dev.images.npz", captions="flickr8k/dev.captions.tsv.gz")
        found = records(flickr, CAPTIONS, shared_data)
        assert len(found) == 1000
        assert {text.count("\t") for _, text in found} == {4}
        assert load_image(found[-1][0], 80).std() > 10
        digits = records(ImagesCorpus(path="mnist10k/test.npz"), LABELS, shared_data)
        assert (len(digits), {label for _, label in digits}) == (1000, set("0123456789"))


class TestGenerated:
    def test_scenes_are_records_with_their_captions(self, tmp_path: Path) -> None:
        from regard.data.scenes import scenes

        store, _ = stored(ScenesCorpus(language="fr", count=7), CAPTIONS, tmp_path, ImageSettings(size=64))
        pixels = store.gather(np.arange(7))["image"].to_tensor(3, 64, 64).permute(0, 2, 3, 1).numpy()
        for number, scene in enumerate(scenes("train", 7, "fr", 0)):
            np.testing.assert_array_equal(pixels[number], scene.image)
            assert store.text(np.array([number]))["captions"] == [scene.caption]

    def test_digits_are_records_with_their_labels(self, tmp_path: Path) -> None:
        from regard.data.digits import digits

        store, fields = stored(DigitsCorpus(count=30), LABELS, tmp_path, ImageSettings(size=28, channels=1))
        pixels = store.gather(np.arange(30))["image"].to_tensor(28, 28).numpy()
        for number, digit in enumerate(digits("train", 30, 0)):
            np.testing.assert_array_equal(pixels[number], digit.image)
            assert fields["label"].decode(lists_from(store.column("label"))[number]) == digit.label


class TestFields:
    def test_an_image_field_encodes_channel_by_channel(self, folder: Path) -> None:
        pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        Image.fromarray(pixels).save(folder / "picture.png")
        field = ImageField(SMALL)
        rows = field.encode([str(folder / "picture.png"), str(folder / "10.png")])
        np.testing.assert_array_equal(rows.ids[:48].reshape(3, 4, 4), pixels.transpose(2, 0, 1))
        assert rows.lengths.tolist() == [48, 48] == [len(field)] * 2
        assert (rows.ids.dtype, field.dtype, field.shape) == (np.uint8, np.uint8, (3, 4, 4))
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


@pytest.mark.parametrize(
    ("corpus", "names", "problem"),
    [
        (ImagesCorpus(path="a.tsv"), ("source", "target"), "has image and captions or image and label"),
        (ScenesCorpus(), ("image", "label"), "has image and captions, but this task has the fields image, label"),
        (DigitsCorpus(), ("image", "captions"), "has image and label, but"),
        (ImagesCorpus(path="a.tsv", captions="b.tsv"), ("image", "captions"), "belongs to an archive of pictures"),
        (ImagesCorpus(path="a.npz"), ("image", "captions"), "captions is not set"),
        (PhrasebookCorpus(to="de"), ("image", "captions"), "generates pairs of texts"),
    ],
)
def test_a_corpus_says_which_fields_it_has(corpus: Corpus, names: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        corpus.check_fields(names)
