"""Source and target together, and the folder they live in."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from tests.text.conftest import corpus

from regard.text import Tokenizers

LINES = corpus()


def pairs() -> Iterator[tuple[str, str]]:
    """A stream: it can be read once."""
    yield from zip(LINES[:60], LINES[60:120], strict=True)


@pytest.fixture(scope="module")
def joint() -> Tokenizers:
    return Tokenizers.learn(pairs(), size=400, symbols=("<2de>",))


@pytest.fixture(scope="module")
def separate() -> Tokenizers:
    return Tokenizers.learn(pairs(), kind="word", size=300, joint=False, lowercase=True)


def test_a_joint_vocabulary_is_one_object(joint: Tokenizers) -> None:
    assert joint.joint
    assert joint.source is joint.target
    assert len(joint.source) == 400


def test_separate_vocabularies_know_their_own_side(separate: Tokenizers) -> None:
    assert not separate.joint
    assert separate.source.id("street") > 3
    assert separate.source.id("straße") == 1
    assert separate.target.id("straße") > 3


def test_learning_twice_gives_the_same_pair(separate: Tokenizers) -> None:
    again = Tokenizers.learn(pairs(), kind="word", size=300, joint=False, lowercase=True)
    assert again == separate
    assert again.fingerprint == separate.fingerprint


def test_a_pair_cannot_be_changed(joint: Tokenizers) -> None:
    with pytest.raises(FrozenInstanceError):
        joint.source = joint.target  # type: ignore[misc]


@pytest.mark.parametrize("which", ["joint", "separate"])
def test_a_pair_comes_back_from_its_folder_or_its_run(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    both: Tokenizers = request.getfixturevalue(which)
    both.save(tmp_path / "run" / "tokenizer")
    for place in (tmp_path / "run" / "tokenizer", tmp_path / "run"):
        loaded = Tokenizers.load(place)
        assert loaded == both
        assert loaded.joint == both.joint
        assert loaded.target.settings == both.target.settings
    names = {path.name for path in (tmp_path / "run" / "tokenizer").iterdir()}
    assert names == {"tokenizer.json", *(["joint.model"] if which == "joint" else ["source.model", "target.model"])}


def test_the_index_can_be_read_by_a_person(separate: Tokenizers, tmp_path: Path) -> None:
    separate.save(tmp_path)
    index = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert index["version"] == 1
    assert index["source"]["kind"] == "word"
    assert index["source"]["lowercase"] is True
    assert index["target"]["size"] == len(separate.target)


def test_a_folder_written_over_holds_the_new_pair(joint: Tokenizers, separate: Tokenizers, tmp_path: Path) -> None:
    separate.save(tmp_path)
    joint.save(tmp_path)
    assert Tokenizers.load(tmp_path) == joint


def test_one_model_file_is_a_joint_pair(joint: Tokenizers, tmp_path: Path) -> None:
    joint.source.save(tmp_path / "some.model")
    loaded = Tokenizers.load(tmp_path / "some.model")
    assert loaded.joint
    assert loaded == joint


@pytest.mark.parametrize("index", ["", "{", "[]", "null", "{}", '{"version": 1, "joint": {}}', "\x00"])
def test_a_damaged_index_is_refused_by_name(joint: Tokenizers, tmp_path: Path, index: str) -> None:
    joint.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(index)
    with pytest.raises(ValueError, match=r"tokenizer\.json.*learn it again"):
        Tokenizers.load(tmp_path)


def test_an_index_of_another_version_is_refused(joint: Tokenizers, tmp_path: Path) -> None:
    joint.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(ValueError, match="version 2, and this regard reads version 1"):
        Tokenizers.load(tmp_path)


def test_a_missing_or_foreign_model_is_refused_by_name(joint: Tokenizers, separate: Tokenizers, tmp_path: Path) -> None:
    joint.save(tmp_path / "one")
    separate.save(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "source.model", tmp_path / "one" / "joint.model")
    with pytest.raises(ValueError, match=r"joint\.model is not the model"):
        Tokenizers.load(tmp_path / "one")
    (tmp_path / "two" / "target.model").unlink()
    with pytest.raises(ValueError, match=r"target\.model is not there"):
        Tokenizers.load(tmp_path / "two")


def test_a_flipped_bit_is_found(joint: Tokenizers, tmp_path: Path) -> None:
    joint.save(tmp_path)
    blob = bytearray(joint.source.model)
    at = blob.index("▁the".encode())
    blob[at + 3] ^= 1
    (tmp_path / "joint.model").write_bytes(blob)
    with pytest.raises(ValueError, match=r"joint\.model is not the model"):
        Tokenizers.load(tmp_path)


def test_a_place_without_a_tokenizer_is_refused_with_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no tokenizer\.json.*name a run"):
        Tokenizers.load(tmp_path)
    with pytest.raises(ValueError, match=r"it is not there.*name a run"):
        Tokenizers.load(tmp_path / "none")


def test_more_symbols_leave_every_id_what_it_is(joint: Tokenizers) -> None:
    more = joint.extended(["<2de>", "<2fr>"])
    line = "the animal did not cross the street"
    assert more.joint
    assert len(more.source) == len(joint.source) + 1
    assert more.source.encode(line) == joint.source.encode(line)
    assert len(joint.source) in more.source.encode(f"<2fr> {line}")


def test_more_symbols_of_two_vocabularies_are_the_sources(separate: Tokenizers) -> None:
    more = separate.extended(["<2fr>"])
    assert len(more.source) == len(separate.source) + 1
    assert more.target is separate.target


def test_a_symbol_that_cannot_be_one_is_refused(joint: Tokenizers) -> None:
    with pytest.raises(ValueError, match="white space"):
        joint.extended(["<to german>"])
