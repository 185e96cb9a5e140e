"""A store returns what was written, and a damaged one is never opened."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import Record, lists_from, write_store

from regard.data.store import Store

IDS = st.lists(st.integers(0, 65_535), max_size=8)
FIELDS = st.sampled_from([("text",), ("source", "target"), ("question", "answer", "label")])
RECORDS = FIELDS.flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, IDS)), min_size=1, max_size=30)
)
TEXTS = ["", "a", "ä\n", "日本語", "\0", "أستطيع", "🙂 b"]


def texts_of(records: list[Record]) -> list[dict[str, str]]:
    """A text for each value."""
    return [
        {name: TEXTS[(number * len(record) + at) % len(TEXTS)] for at, name in enumerate(record)}
        for number, record in enumerate(records)
    ]


def pairs(*lists: tuple[list[int], list[int]]) -> list[Record]:
    return [{"source": source, "target": target} for source, target in lists]


@given(records=RECORDS, dtype=st.sampled_from(["<u2", "<i4"]))
def test_every_value_is_where_the_offsets_say(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], dtype: str
) -> None:
    store = write_store(tmp_path_factory.mktemp("store"), records, dtype)
    assert len(store) == len(records)
    assert list(store.fields) == list(store.lengths) == list(store.longest) == list(records[0])
    for name, field in store.fields.items():
        assert field.ids.dtype == np.dtype(dtype)
        read = [field.ids[field.offsets[i] : field.offsets[i + 1]].tolist() for i in range(len(store))]
        assert read == [record[name] for record in records]
        assert store.lengths[name].tolist() == [len(record[name]) for record in records]
        assert store.longest[name] == max(len(record[name]) for record in records)
        assert store.tokens(name) == sum(len(record[name]) for record in records)


@given(records=RECORDS, data=st.data())
def test_gather_returns_the_records_with_these_indices(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    texts = texts_of(records)
    store = write_store(tmp_path_factory.mktemp("store"), records, texts=texts)
    indices = data.draw(st.lists(st.integers(0, len(records) - 1)))
    gathered = store.gather(np.array(indices, np.int32))
    assert list(gathered) == list(records[0])
    for name, rows in gathered.items():
        assert [rows.ids.dtype, rows.offsets.dtype] == [np.dtype(np.int32), np.dtype(np.int64)]
        assert lists_from(rows) == [records[index][name] for index in indices]
    assert store.text(np.array(indices, np.int64)) == {
        name: [texts[index][name] for index in indices] for name in records[0]
    }


@pytest.mark.parametrize("indices", [[-1], [3], [0, 7]])
def test_a_record_that_does_not_exist_cannot_be_gathered(tmp_path: Path, indices: list[int]) -> None:
    store = write_store(tmp_path, pairs(*[([1], [2])] * 3))
    with pytest.raises(IndexError, match="records 0 to 2"):
        store.gather(np.array(indices))


def test_text_that_was_not_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_text"):
        write_store(tmp_path, pairs(([1], [2]))).text(np.array([0]))


def test_a_view_of_some_records_has_them_and_their_numbers(tmp_path: Path) -> None:
    records = pairs(([1, 2], [3]), ([4] * 9, [5]), ([6], [7, 8]))
    view = write_store(tmp_path, records, texts=texts_of(records)).select(np.array([0, 2]))
    view = pickle.loads(pickle.dumps(view))
    assert len(view) == 2
    assert view.longest == {"source": 2, "target": 2}
    assert [view.tokens(name) for name in ("source", "target")] == [3, 3]
    gathered = view.gather(np.array([1, 0]))
    assert {name: lists_from(rows) for name, rows in gathered.items()} == {
        "source": [[6], [1, 2]],
        "target": [[7, 8], [3]],
    }
    assert view.text(np.array([1]))["source"] == [texts_of(records)[2]["source"]]
    assert view.record_numbers(np.array([1, 0])) == [3, 1]
    with pytest.raises(IndexError, match="records 0 to 1"):
        view.gather(np.array([2]))


def test_a_store_can_be_pickled(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(write_store(tmp_path, pairs(([1], [2, 3])))))
    assert lists_from(store.gather(np.array([0]))["target"]) == [[2, 3]]


def test_a_folder_without_manifest_is_not_a_store(tmp_path: Path) -> None:
    write_store(tmp_path, pairs(([1], [2])))
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ValueError, match="no manifest"):
        Store.open(tmp_path)


@pytest.mark.parametrize("version", [1, 3, None])
def test_a_store_of_another_version_is_not_opened(tmp_path: Path, version: int | None) -> None:
    write_store(tmp_path, pairs(([1], [2])))
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    with pytest.raises(ValueError, match="damaged or of another version"):
        Store.open(tmp_path)


@pytest.mark.parametrize("dtype", ["<u1", "<f4"])
def test_numbers_that_are_no_ids_are_read_as_they_were_written(tmp_path: Path, dtype: str) -> None:
    values = [[0, 1, 255], [], [7] * 600]
    store = write_store(tmp_path, [{"image": row} for row in values], dtype)
    assert store.fields["image"].ids.dtype == np.dtype(dtype)
    gathered = store.gather(np.array([2, 0]))["image"]
    assert gathered.ids.dtype == np.dtype(dtype)
    assert lists_from(gathered) == [values[2], values[0]]
    assert lists_from(store.column("image")) == values
    assert lists_from(store.select(np.array([1, 2])).column("image")) == values[1:]


def test_a_type_that_no_store_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a store has numbers of the types uint8, uint16, int32, float32, not float64"):
        write_store(tmp_path, [{"image": [1]}], "<f8")


def test_a_manifest_with_an_unknown_type_is_not_opened(tmp_path: Path) -> None:
    write_store(tmp_path, pairs(([1], [2])))
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace("uint16", "int64"))
    with pytest.raises(ValueError, match="damaged or of another version"):
        Store.open(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_store_with_a_truncated_extended_or_missing_file_is_not_opened(tmp_path: Path) -> None:
    records = pairs(([1, 2], [2]), ([], [7] * 9))
    write_store(tmp_path, records, texts=texts_of(records))
    assert len(names(tmp_path)) == 11
    for name in names(tmp_path):
        path = tmp_path / name
        whole = path.read_bytes()
        for damaged in (whole[:-1], b"", whole + b"\0", None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"damaged|not a store"):
                Store.open(tmp_path)
        path.write_bytes(whole)
    Store.open(tmp_path)


@pytest.mark.parametrize("name", ["source.offsets", "target.lengths", "source.text-offsets"])
def test_a_store_whose_offsets_are_overwritten_is_not_opened(tmp_path: Path, name: str) -> None:
    records = pairs(([1, 2], [2]), ([4], [7] * 9))
    write_store(tmp_path, records, texts=texts_of(records))
    size = (tmp_path / name).stat().st_size
    for damage in (bytes(size), b"\xff" * size, np.random.default_rng(1).bytes(size)):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(ValueError, match="do not add up"):
            Store.open(tmp_path)
