"""The tokenizers of several fields, and the folder they are saved in."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.text.conftest import corpus

from regard.text import Tokenizers

LINES = corpus()


def pairs() -> Iterator[tuple[str, str]]:
    """Yield pairs; a stream can be read once."""
    yield from zip(LINES[:60], LINES[60:120], strict=True)


@pytest.fixture(scope="module")
def joint() -> Tokenizers:
    return Tokenizers.learn(pairs(), size=400, symbols=("<2de>",))


@pytest.fixture(scope="module")
def separate() -> Tokenizers:
    return Tokenizers.learn(pairs(), kind="word", size=300, joint=False, lowercase=True)


def test_fields_of_a_joint_vocabulary_share_one_object(joint: Tokenizers) -> None:
    assert joint.joint
    assert joint["source"] is joint["target"]
    assert len(joint["source"]) == 400


def test_separate_vocabularies_are_learned_from_their_own_field(separate: Tokenizers) -> None:
    assert not separate.joint
    assert separate["source"].id("street") > 3
    assert separate["source"].id("straße") == 1
    assert separate["target"].id("straße") > 3


def test_learning_twice_gives_equal_tokenizers(separate: Tokenizers) -> None:
    again = Tokenizers.learn(pairs(), kind="word", size=300, joint=False, lowercase=True)
    assert again == separate
    assert again.fingerprint == separate.fingerprint


def test_the_mapping_is_immutable(joint: Tokenizers) -> None:
    with pytest.raises(TypeError):
        joint["source"] = joint["target"]  # type: ignore[index]


@pytest.mark.parametrize("which", ["joint", "separate"])
def test_tokenizers_are_loaded_from_their_folder_or_their_run(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizers: Tokenizers = request.getfixturevalue(which)
    tokenizers.save(tmp_path / "run" / "tokenizer")
    for path in (tmp_path / "run" / "tokenizer", tmp_path / "run"):
        loaded = Tokenizers.load(path)
        assert loaded == tokenizers
        assert loaded.joint == tokenizers.joint
        assert loaded["target"].settings == tokenizers["target"].settings
    names = {path.name for path in (tmp_path / "run" / "tokenizer").iterdir()}
    assert names == {"tokenizer.json", *(["joint.model"] if which == "joint" else ["source.model", "target.model"])}


def test_the_index_lists_settings_and_sizes(separate: Tokenizers, tmp_path: Path) -> None:
    separate.save(tmp_path)
    index = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert index["version"] == 1
    assert index["source"]["kind"] == "word"
    assert index["source"]["lowercase"] is True
    assert index["target"]["size"] == len(separate["target"])


def test_saving_to_a_used_folder_replaces_the_tokenizers(
    joint: Tokenizers, separate: Tokenizers, tmp_path: Path
) -> None:
    separate.save(tmp_path)
    joint.save(tmp_path)
    assert Tokenizers.load(tmp_path) == joint


def test_one_model_file_serves_all_fields(joint: Tokenizers, tmp_path: Path) -> None:
    joint["source"].save(tmp_path / "some.model")
    loaded = Tokenizers.load(tmp_path / "some.model")
    assert loaded.joint
    assert loaded == joint


@pytest.mark.parametrize("index", ["", "{", "[]", "null", "{}", '{"version": 1, "joint": {}}', "\x00"])
def test_the_error_of_a_damaged_index_names_it(joint: Tokenizers, tmp_path: Path, index: str) -> None:
    joint.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(index)
    with pytest.raises(ValueError, match=r"tokenizer\.json.*learn it again"):
        Tokenizers.load(tmp_path)


def test_an_index_of_another_version_raises(joint: Tokenizers, tmp_path: Path) -> None:
    joint.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(ValueError, match="version 2, and this version of regard reads version 1"):
        Tokenizers.load(tmp_path)


def test_the_error_of_a_missing_or_exchanged_model_names_it(
    joint: Tokenizers, separate: Tokenizers, tmp_path: Path
) -> None:
    joint.save(tmp_path / "one")
    separate.save(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "source.model", tmp_path / "one" / "joint.model")
    with pytest.raises(ValueError, match=r"joint\.model is not the model"):
        Tokenizers.load(tmp_path / "one")
    (tmp_path / "two" / "target.model").unlink()
    with pytest.raises(ValueError, match=r"target\.model is missing"):
        Tokenizers.load(tmp_path / "two")


def test_a_flipped_bit_is_detected(joint: Tokenizers, tmp_path: Path) -> None:
    joint.save(tmp_path)
    blob = bytearray(joint["source"].model)
    at = blob.index("▁the".encode())
    blob[at + 3] ^= 1
    (tmp_path / "joint.model").write_bytes(blob)
    with pytest.raises(ValueError, match=r"joint\.model is not the model"):
        Tokenizers.load(tmp_path)


def test_the_error_of_a_folder_without_tokenizers_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no tokenizer\.json.*name a run"):
        Tokenizers.load(tmp_path)
    with pytest.raises(ValueError, match=r"it does not exist.*name a run"):
        Tokenizers.load(tmp_path / "none")


def test_adding_symbols_changes_no_existing_id(joint: Tokenizers) -> None:
    more = joint.extended(["<2de>", "<2fr>"])
    line = "the animal did not cross the street"
    assert more.joint
    assert len(more["source"]) == len(joint["source"]) + 1
    assert more["source"].encode(line) == joint["source"].encode(line)
    assert len(joint["source"]) in more["source"].encode(f"<2fr> {line}")


def test_symbols_are_added_to_the_source_by_default(separate: Tokenizers) -> None:
    more = separate.extended(["<2fr>"])
    assert len(more["source"]) == len(separate["source"]) + 1
    assert more["target"] is separate["target"]


def test_adding_an_invalid_symbol_raises(joint: Tokenizers) -> None:
    with pytest.raises(ValueError, match="white space"):
        joint.extended(["<to german>"])


def test_symbols_are_added_to_the_fields_that_are_named(separate: Tokenizers) -> None:
    more = separate.extended(["<2fr>"], fields=("source", "target"))
    assert [len(more[field]) - len(separate[field]) for field in separate] == [1, 1]
    assert separate.extended(["<2fr>"], fields=()) == separate


def test_the_fields_are_those_of_the_mapping_in_order(separate: Tokenizers) -> None:
    assert list(separate) == ["source", "target"]
    assert dict(separate) == {"source": separate["source"], "target": separate["target"]}
    assert separate.fingerprint == f"{separate['source'].fingerprint}-{separate['target'].fingerprint}"
    assert hash(separate) == hash(Tokenizers(dict(separate)))


def test_a_single_field_has_a_file_of_its_own_name(tmp_path: Path) -> None:
    tokenizers = Tokenizers.learn(((line,) for line in LINES), ["text"], size=400)
    tokenizers.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"text.model", "tokenizer.json"}
    assert set(json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))) == {"version", "text"}
    assert Tokenizers.load(tmp_path, ["text"]) == tokenizers
    assert tokenizers.joint
    with pytest.raises(ValueError, match="has tokenizers for text, and none for source, target"):
        Tokenizers.load(tmp_path)


@pytest.mark.parametrize("fields", [{}, {"joint": None}])
def test_invalid_field_names_raise(fields: dict[str, None]) -> None:
    with pytest.raises(ValueError, match="field"):
        Tokenizers(fields)  # type: ignore[arg-type]
