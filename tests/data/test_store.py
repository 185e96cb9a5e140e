"""A store gives back what was written, and a damaged one is never opened."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.encode import Rows
from regard.data.filters import FilterReport
from regard.data.store import Manifest, Store
from regard.data.writer import SideWriter

SEQUENCE = st.lists(st.integers(0, 65_535), max_size=8)
PAIRS = st.lists(st.tuples(SEQUENCE, SEQUENCE), min_size=1, max_size=30)
TEXTS = ["", "a", "ä\n", "日本語", "\0", "أستطيع", "🙂 b"]


def rows(sequences: list[list[int]], dtype: str, texts: list[str] | None) -> Rows:
    ids = np.array([token for sequence in sequences for token in sequence], dtype)
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    if texts is None:
        return Rows(ids, lengths, None, None)
    data = [text.encode() for text in texts]
    return Rows(ids, lengths, b"".join(data), np.array([len(each) for each in data], np.int64))


def write(folder: Path, pairs: list[tuple[list[int], list[int]]], dtype: str = "<u2", *, text: bool = False) -> Store:
    """A store of these pairs, written in two pieces."""
    folder.mkdir(exist_ok=True)
    sides = []
    for side, name in enumerate(("source", "target")):
        with SideWriter(folder, name, np.dtype(dtype), text) as writer:
            for part in (slice(0, 1), slice(1, None)):
                texts = [text_of(i, side) for i in range(len(pairs))][part] if text else None
                writer.append(rows([pair[side] for pair in pairs[part]], dtype, texts))
            sides.append(writer.finish())
    manifest = Manifest(
        version=1, pairs=len(pairs), tag=None, source=sides[0], target=sides[1], report=FilterReport(kept=len(pairs))
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Store.open(folder)


def text_of(pair: int, side: int) -> str:
    return TEXTS[(pair * 2 + side) % len(TEXTS)]


@given(pairs=PAIRS, dtype=st.sampled_from(["<u2", "<i4"]))
def test_every_sequence_is_where_its_offsets_say(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[list[int], list[int]]], dtype: str
) -> None:
    store = write(tmp_path_factory.mktemp("store"), pairs, dtype)
    assert len(store) == len(pairs)
    for side, part in enumerate((store.source, store.target)):
        assert part.ids.dtype == np.dtype(dtype)
        read = [part.ids[part.offsets[i] : part.offsets[i + 1]].tolist() for i in range(len(store))]
        assert read == [pair[side] for pair in pairs]
        assert store.lengths[side].tolist() == [len(pair[side]) for pair in pairs]
        assert store.longest[side] == max(len(pair[side]) for pair in pairs)


@given(pairs=PAIRS, data=st.data())
def test_gathering_is_taking_one_pair_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    store = write(tmp_path_factory.mktemp("store"), pairs, text=True)
    which = data.draw(st.lists(st.integers(0, len(pairs) - 1)))
    gathered = store.gather(np.array(which, np.int32))
    for side, (ids, offsets) in enumerate((gathered[:2], gathered[2:])):
        assert [ids.dtype, offsets.dtype] == [np.dtype(np.int32), np.dtype(np.int64)]
        assert ids.tolist() == [token for i in which for token in pairs[i][side]]
        assert offsets.tolist() == [sum(len(pairs[i][side]) for i in which[:end]) for end in range(len(which) + 1)]
    assert store.text(np.array(which, np.int64)) == ([text_of(i, 0) for i in which], [text_of(i, 1) for i in which])


@pytest.mark.parametrize("which", [[-1], [3], [0, 7]])
def test_a_pair_that_is_not_there_cannot_be_gathered(tmp_path: Path, which: list[int]) -> None:
    store = write(tmp_path, [([1], [2])] * 3)
    with pytest.raises(IndexError, match="pairs 0 to 2"):
        store.gather(np.array(which))


def test_text_that_was_not_kept_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_text"):
        write(tmp_path, [([1], [2])]).text(np.array([0]))


def test_a_store_can_be_pickled(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(write(tmp_path, [([1], [2, 3])])))
    assert store.gather(np.array([0]))[2].tolist() == [2, 3]


def test_a_folder_without_manifest_is_no_store(tmp_path: Path) -> None:
    write(tmp_path, [([1], [2])])
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ValueError, match="no manifest"):
        Store.open(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_store_with_any_file_cut_grown_or_gone_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path, [([1, 2], [2]), ([], [7] * 9)], text=True)
    assert len(names(tmp_path)) == 11
    for name in names(tmp_path):
        path = tmp_path / name
        whole = path.read_bytes()
        for damaged in (whole[:-1], b"", whole + b"\0", None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"damaged|no store"):
                Store.open(tmp_path)
        path.write_bytes(whole)
    Store.open(tmp_path)


@pytest.mark.parametrize("name", ["source.offsets", "target.lengths", "source.text-offsets"])
def test_a_store_whose_offsets_are_overwritten_is_not_opened(tmp_path: Path, name: str) -> None:
    write(tmp_path, [([1, 2], [2]), ([4], [7] * 9)], text=True)
    size = (tmp_path / name).stat().st_size
    for damage in (bytes(size), b"\xff" * size, np.random.default_rng(1).bytes(size)):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(ValueError, match="do not add up"):
            Store.open(tmp_path)
