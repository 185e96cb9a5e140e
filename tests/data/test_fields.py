"""Fields encode raw values to ids and back; their vocabularies are learned from records and saved with a run."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import lists_from

from regard.data.fields import LabelField, TextField, learn_fields, load_fields, with_tokenizers
from regard.recipe import Data, FieldKind, PhrasebookCorpus, Recipe, Text
from regard.text import Tokenizers

CLASSES = ("bad", "good", "so so")
KINDS: dict[str, FieldKind] = {"question": "text", "label": "label", "answer": "text"}
RECORDS = [(f"is {number} good?", "yes" if number % 3 else "no", f"it is {number}") for number in range(60)]


def recipe(**text: object) -> Recipe:
    """A recipe with these settings of its `[text]` section."""
    settings = Text.model_validate({"size": 300, **text})
    return Recipe(task="answering", data=Data(train=(PhrasebookCorpus(to="de"),)), text=settings)


class TestLabelField:
    @given(st.lists(st.sampled_from(CLASSES)))
    def test_a_label_becomes_the_position_of_its_class_and_back(self, values: list[str]) -> None:
        field = LabelField(CLASSES)
        rows = field.encode(values)
        assert [rows.ids.dtype, rows.offsets.dtype] == [np.dtype(np.int32), np.dtype(np.int64)]
        assert lists_from(rows) == [[CLASSES.index(value)] for value in values]
        assert [field.decode(ids) for ids in lists_from(rows)] == values
        assert len(field) == 3

    @pytest.mark.parametrize(
        ("value", "hint"), [("goood", r"did you mean 'good'\?"), ("zzz", "the classes are bad, good, so so")]
    )
    def test_an_unknown_label_is_an_error_that_names_a_class(self, value: str, hint: str) -> None:
        with pytest.raises(ValueError, match=f"the label '{value}' does not occur in the training data; {hint}"):
            LabelField(CLASSES).encode(["good", value])

    def test_equal_classes_have_equal_fingerprints(self) -> None:
        assert LabelField(CLASSES).fingerprint == LabelField(tuple(CLASSES)).fingerprint
        others = [CLASSES[::-1], CLASSES[:2], ("bad", "good", "so", "so so"), ("bad good", "so so")]
        assert len({LabelField(classes).fingerprint for classes in [CLASSES, *others]}) == 5

    @pytest.mark.parametrize(("count", "dtype"), [(1, np.uint16), (65_536, np.uint16), (65_537, np.int32)])
    def test_the_type_holds_every_class(self, count: int, dtype: type) -> None:
        field = LabelField(tuple(map(str, range(count))))
        assert field.dtype == dtype
        assert field.encode([str(count - 1)]).ids.astype(field.dtype).tolist() == [count - 1]

    @pytest.mark.parametrize(
        ("classes", "complaint"),
        [
            (("a", "a"), "repeats one"),
            ((), "not 0; is it the right column"),
            (tuple(map(str, range(100_001))), "not 100,001; is it the right column"),
        ],
    )
    def test_an_impossible_list_of_classes_is_refused(self, classes: tuple[str, ...], complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            LabelField(classes)


class TestTextField:
    @given(st.lists(st.text(st.sampled_from("abc xyzäñ")), max_size=5))
    def test_a_text_becomes_the_ids_of_its_tokenizer_and_back(self, values: list[str]) -> None:
        tokenizer = TOKENIZERS["source"]
        field = TextField(tokenizer)
        rows = field.encode(values)
        assert lists_from(rows) == [tokenizer.encode(value) for value in values]
        assert [field.decode(ids) for ids in lists_from(rows)] == [" ".join(value.split()) for value in values]
        assert (len(field), field.fingerprint) == (len(tokenizer), tokenizer.fingerprint)
        assert field.dtype == np.uint16


TOKENIZERS = Tokenizers.learn([("abc xyz", "xyz äñ")], kind="char", size=300)


class TestLearning:
    def test_fields_keep_the_order_and_the_kinds_of_the_task(self) -> None:
        fields = learn_fields(KINDS, iter(RECORDS), recipe())
        assert {name: field.kind for name, field in fields.items()} == KINDS
        assert list(fields) == list(KINDS)
        assert fields.sizes == {name: len(field) for name, field in fields.items()}
        assert isinstance(fields["label"], LabelField)
        assert fields["label"].classes == ("no", "yes")

    def test_texts_share_a_vocabulary_unless_the_recipe_says_otherwise(self) -> None:
        joint = learn_fields(KINDS, RECORDS, recipe())
        apart = learn_fields(KINDS, RECORDS, recipe(joint=False))
        assert list(joint.tokenizers) == list(apart.tokenizers) == ["question", "answer"]
        assert joint.tokenizers.joint
        assert not apart.tokenizers.joint

    def test_a_vocabulary_is_learned_from_the_column_of_its_field(self) -> None:
        records = [("aaa", "b", "ccc")] * 5
        fields = learn_fields(KINDS, records, recipe(kind="char", joint=False, bytes=False))
        unknown = {
            name: tokenizer.id("<unk>") in tokenizer.encode("ac") for name, tokenizer in fields.tokenizers.items()
        }
        assert unknown == {"question": True, "answer": True}
        assert fields["question"].decode(lists_from(fields["question"].encode(["aa"]))[0]) == "aa"
        assert fields["answer"].decode(lists_from(fields["answer"].encode(["cc"]))[0]) == "cc"

    def test_tokenizers_alone_make_text_fields(self) -> None:
        fields = with_tokenizers(TOKENIZERS)
        assert {name: field.kind for name, field in fields.items()} == {"source": "text", "target": "text"}
        assert fields.tokenizers == TOKENIZERS
        assert fields.fingerprint == TOKENIZERS.fingerprint


class TestSaving:
    @pytest.mark.parametrize("joint", [True, False])
    @pytest.mark.parametrize("names", [["question"], ["question", "answer"], ["question", "label"], list(KINDS)])
    def test_saved_fields_are_loaded_equal(self, tmp_path: Path, names: list[str], joint: bool) -> None:
        kinds = {name: KINDS[name] for name in names}
        records = [tuple(record[list(KINDS).index(name)] for name in names) for record in RECORDS]
        fields = learn_fields(kinds, records, recipe(joint=joint))
        fields.save(tmp_path)
        loaded = load_fields(tmp_path, kinds)
        assert list(loaded) == names
        assert loaded.fingerprint == fields.fingerprint
        assert loaded.sizes == fields.sizes
        assert (tmp_path / "labels.json").exists() == ("label" in names)

    def test_classes_of_any_script_are_saved_readably(self, tmp_path: Path) -> None:
        LabelField.save_all({"label": LabelField(("schlecht", "سعيد", "\u2028"))}, tmp_path / "labels.json")
        assert "سعيد" in (tmp_path / "labels.json").read_text(encoding="utf-8")
        [loaded] = LabelField.load_all(tmp_path / "labels.json", ["label"]).values()
        assert loaded == ("schlecht", "سعيد", "\u2028")

    def test_missing_labels_are_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"labels\.json is missing: it lists the classes of label"):
            LabelField.load_all(tmp_path / "labels.json", ["label"])

    @pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"label": 7}', '{"label": []}', '{"label": ["a", "a"]}'])
    def test_damaged_labels_are_an_error(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "labels.json"
        path.write_text(damage)
        with pytest.raises(ValueError, match=r"labels\.json is damaged .*train again"):
            LabelField.load_all(path, ["label"])

    def test_a_file_with_other_label_fields_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "labels.json"
        path.write_text(json.dumps({"topic": ["a", "b"]}))
        with pytest.raises(ValueError, match="label"):
            LabelField.load_all(path, ["label"])
