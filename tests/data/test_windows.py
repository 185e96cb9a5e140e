"""Windows of a series: each once, no row of the future in the past, and the stores they are views of."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.build import build_store
from regard.data.fields import Fields, SeriesField
from regard.data.series import read_series
from regard.data.store import Store
from regard.data.windows import Windows
from regard.recipe import Data, SeriesCorpus

ROWS = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of a series whose values are the numbers of their rows, and ten times that."""
    folder = tmp_path_factory.mktemp("series")
    dates = np.datetime64("2024-01-01") + np.arange(ROWS)
    text = "date,a,b\n" + "".join(f"{date},{row},{10 * row}\n" for row, date in enumerate(dates))
    (folder / "rows.csv").write_text(text, encoding="utf-8")
    corpus = SeriesCorpus(path="rows.csv")
    field = SeriesField("date", ("a", "b"), (0.0, 0.0), (1.0, 10.0), read_series(folder / "rows.csv").step)
    data = Data(train=(corpus,), root=str(folder))
    return build_store(corpus, data, Fields({"series": field}), cache=folder / "cache", drop=())


def test_a_store_has_every_row_scaled(store: Store) -> None:
    assert len(store) == ROWS
    assert store.fields["series"].ids.dtype == np.float32
    np.testing.assert_array_equal(store.column("series").ids.reshape(ROWS, 2), np.arange(ROWS)[:, None].repeat(2, 1))


@given(st.integers(0, 30), st.integers(1, 40), st.integers(1, 12), st.integers(1, 8))
def test_each_window_of_a_part_occurs_once_and_its_future_stays_in_the_part(
    store: Store, first: int, size: int, lookback: int, horizon: int
) -> None:
    last = min(first + size, ROWS)
    possible = [start for start in range(ROWS) if start + lookback >= first and start + lookback + horizon <= last]
    if not possible:
        with pytest.raises(ValueError, match="too few"):
            Windows(store, first, last, lookback, horizon)
        return
    windows = Windows(store, first, last, lookback, horizon)
    rows = windows.gather(np.arange(len(windows)))["series"]
    values = rows.ids.reshape(len(windows), lookback + horizon, 2)[..., 0]
    assert values[:, 0].tolist() == possible
    np.testing.assert_array_equal(np.diff(values, axis=1), 1)
    assert values[:, :lookback].max() < last - horizon + 1
    assert values[:, lookback:].min() == max(first, lookback)
    assert values.max() == last - 1  # the last window is not dropped
    assert (rows.lengths == windows.lengths["series"]).all()
    assert windows.longest["series"] == 2 * (lookback + horizon)


def test_consecutive_parts_forecast_every_row_once_as_first_step(store: Store) -> None:
    parts = [Windows(store, first, last, 5, 2) for first, last in ((0, 20), (20, 30), (30, ROWS))]
    firsts = [part.gather(np.arange(len(part)))["series"].ids.reshape(len(part), 7, 2)[:, 5, 0] for part in parts]
    assert [rows.tolist() for rows in firsts] == [[*range(5, 19)], [*range(20, 29)], [*range(30, 39)]]


def test_the_windows_of_the_usual_split_of_etth1_are_as_many_as_published(store: Store) -> None:
    etth1 = object.__new__(Store)
    etth1.__dict__.update(store.__dict__)
    counts = [len(Windows(etth1, first, last, 336, 96)) for first, last in ((0, 8640), (8640, 11520), (11520, 14400))]
    assert counts == [8209, 2785, 2785]


def test_windows_survive_pickling(store: Store) -> None:
    windows = Windows(store, 10, 30, 4, 2)
    copy = pickle.loads(pickle.dumps(windows))
    np.testing.assert_array_equal(
        copy.gather(np.array([0, 15]))["series"].ids, windows.gather(np.array([0, 15]))["series"].ids
    )


def test_windows_that_do_not_exist_are_an_error(store: Store) -> None:
    windows = Windows(store, 10, 30, 4, 2)
    with pytest.raises(IndexError, match="windows 0 to 18"):
        windows.gather(np.array([19]))
    with pytest.raises(ValueError, match="no text"):
        windows.text(np.array([0]))


def test_a_field_scales_by_the_training_rows_and_keeps_constant_columns(tmp_path: Path) -> None:
    values = np.stack([np.arange(10.0), np.full(10, 0.1)], 1)
    text = "date,a,b\n" + "".join(f"2024-01-{row + 1:02},{a},{b}\n" for row, (a, b) in enumerate(values))
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    series = read_series(tmp_path / "rows.csv")
    field = SeriesField.learn([(series, 2, 8)])
    assert field.means == pytest.approx((4.5, 0.1))
    assert field.scales == pytest.approx((values[2:8, 0].std(), 1.0))
    field.save("series", tmp_path)
    assert SeriesField.load("series", tmp_path) == field
    rows = field.encode(["7\t0.1"])
    assert [float(text) for text in field.decode(rows.ids.tolist()).split("\t")] == pytest.approx([7, 0.1], rel=1e-6)
    (tmp_path / "series.json").write_text('{"series": {"columns": ["a"]}}', encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        SeriesField.load("series", tmp_path)


def test_training_series_must_have_the_same_columns(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"date,{name}\n2024-01-01,1\n2024-01-02,2\n", encoding="utf-8")
    parts = [(read_series(tmp_path / f"{name}.csv"), 0, 2) for name in "ab"]
    with pytest.raises(ValueError, match=r"b.csv has the columns b at steps of 1 day, and .*a.csv has a"):
        SeriesField.learn(parts)
