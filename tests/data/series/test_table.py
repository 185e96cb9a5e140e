"""Tables of dates and numbers: formats that are read, and errors that name line and column."""

import gzip
import logging
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.series import TimeSeries, as_series, part_rows, read_series, seasonal_series
from regard.data.series.dates import TimeStep, parse_dates

DAYS = ["2024-02-26", "2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03"]


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table(dates: list[str], values: list[str] | None = None) -> str:
    cells = values or [str(number) for number in range(len(dates))]
    return "date,x\n" + "".join(f"{date},{cell}\n" for date, cell in zip(dates, cells, strict=True))


def days(count: int, start: str = "2024-01-01") -> list[str]:
    return [str(np.datetime64(start) + number) for number in range(count)]


def test_a_table_is_read_with_its_dates_columns_and_step(tmp_path: Path) -> None:
    text = "when,a,b\n2016-07-01 00:00:00,1.5,-2\n2016-07-01 01:00:00,2.5,3e1\n2016-07-01 02:00:00,0,1\n"
    series = read_series(write(tmp_path, text))
    assert (series.date, series.columns, str(series.step)) == ("when", ("a", "b"), "1 hour")
    assert series.values.tolist() == [[1.5, -2.0], [2.5, 30.0], [0.0, 1.0]]
    assert series.next_dates(2) == ["2016-07-01 03:00:00", "2016-07-01 04:00:00"]
    assert read_series(tmp_path / "table.csv", "when", ["b"]).columns == ("b",)
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_series(packed).values.tolist() == series.values.tolist()


@pytest.mark.parametrize(
    ("dates", "step", "following"),
    [
        (["2024-03-09", "2024-03-10", "2024-03-11"], "1 day", ["2024-03-12", "2024-03-13"]),
        (["2024-01", "2024-02", "2024-03"], "1 month", ["2024-04", "2024-05"]),
        (["2023-12-31", "2024-01-31", "2024-02-29"], "1 month", ["2024-03-31", "2024-04-30"]),
        (["2024-01-15", "2024-02-15", "2024-03-15"], "1 month", ["2024-04-15", "2024-05-15"]),
        (["2023-06-30", "2023-09-30", "2023-12-31"], "1 quarter", ["2024-03-31", "2024-06-30"]),
        (["2021", "2022", "2023"], "1 year", ["2024", "2025"]),
        (["01.02.2024 23:30", "01.02.2024 23:45", "02.02.2024 00:00"], "15 minutes",
         ["02.02.2024 00:15", "02.02.2024 00:30"]),
        (["31/12/2023", "01/01/2024", "02/01/2024"], "1 day", ["03/01/2024", "04/01/2024"]),
        (["01/02/2024", "01/03/2024", "01/04/2024", "01/05/2024"], "1 day", ["01/06/2024", "01/07/2024"]),
        (["2024/12/30", "2024/12/31", "2025/01/01"], "1 day", ["2025/01/02", "2025/01/03"]),
        (["2024-01-01T00:00Z", "2024-01-01T06:00Z", "2024-01-01T12:00Z"], "6 hours",
         ["2024-01-01T18:00Z", "2024-01-02T00:00Z"]),
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11", "2024-01-12"],
         "1 working day", ["2024-01-15", "2024-01-16"]),
        (["2024-02-27 10:00", "2024-02-28 10:00", "2024-02-29 10:00"], "1 day",
         ["2024-03-01 10:00", "2024-03-02 10:00"]),
    ],
)  # fmt: skip
def test_dates_beyond_the_end_are_written_as_those_of_the_table(
    tmp_path: Path, dates: list[str], step: str, following: list[str]
) -> None:
    series = read_series(write(tmp_path, table(dates)), "date")
    assert str(series.step) == step
    assert series.next_dates(2) == following
    assert series.dates() == dates


def test_the_change_to_summer_time_is_no_gap_if_dates_have_utc_offsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # In Central Europe, 2024-03-31 01:00+01:00 is followed by 03:00+02:00.
    dates = ["2024-03-31 00:00+01:00", "2024-03-31 01:00+01:00", "2024-03-31 03:00+02:00", "2024-03-31 04:00+02:00"]
    with caplog.at_level(logging.WARNING, "regard"):
        series = read_series(write(tmp_path, table(dates)))
    assert len(series) == 4
    assert series.next_dates(1) == ["2024-03-31 05:00+02:00"]
    assert "UTC offsets +01:00, +02:00" in caplog.text


def test_a_repeated_hour_of_winter_time_is_an_error_that_names_utc_offsets(tmp_path: Path) -> None:
    dates = ["2024-10-27 01:00", "2024-10-27 02:00", "2024-10-27 02:00", "2024-10-27 03:00"]
    with pytest.raises(ValueError, match=r"line 4: has the date of line 3, '2024-10-27 02:00'.*UTC offset"):
        read_series(write(tmp_path, table(dates)))


def test_unsorted_rows_are_sorted_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "regard"):
        series = read_series(write(tmp_path, table(DAYS[::-1])))
    assert series.values[:, 0].tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert "not in the order" in caplog.text


def test_missing_rows_and_cells_are_interpolated_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dates, values = days(40), [str(2 * number) for number in range(40)]
    values[7] = ""
    del dates[20:22], values[20:22]
    with caplog.at_level(logging.WARNING, "regard"):
        series = read_series(write(tmp_path, table(dates, values)))
    np.testing.assert_allclose(series.values[:, 0], 2.0 * np.arange(40))
    assert series.dates() == days(40)
    assert "2 of 40 rows are missing at steps of 1 day, the first after line 21" in caplog.text
    assert "1 of 38 cells of the column 'x' are empty" in caplog.text


def test_decimal_commas_and_semicolons_are_recognised(tmp_path: Path) -> None:
    semicolons = read_series(write(tmp_path, "date;x\n2024-01-01;1,5\n2024-01-02;2\n2024-01-03;-0,25\n"))
    quoted = read_series(write(tmp_path, 'date,x\n2024-01-01,"1,5"\n2024-01-02,2\n2024-01-03,"-0,25"\n', "q.csv"))
    tabs = read_series(write(tmp_path, "date\tx\n2024-01-01\t1.5\n2024-01-02\t2\n2024-01-03\t-0.25\n", "t.csv"))
    for series in (semicolons, quoted, tabs):
        assert series.values[:, 0].tolist() == [1.5, 2.0, -0.25]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is one column"),
        ("date,x\n", "no rows"),
        ("date,x\n2024-01-01,1\n", "has 1 row"),
        ("date,x\n2024-01-01,1\n2024-01-02,high\n", r"line 3: 'high' in the column 'x' is not a finite number"),
        ("date,x\n2024-01-01,1\n2024-01-02,inf\n", r"line 3: 'inf' in the column 'x'"),
        ("date,x\n2024-01-01,1\n2024-01-02,'1.234,5'\n", r"line 3: has 3 cells, and the first line names 2"),
        ("date;x\n2024-01-01;1\n2024-01-02;1.234,5\n", r"line 3: '1.234,5'.*without thousands separators"),
        ("date,x\n2024-01-01,1\n2024-01-02,2,3\n", r"line 3: has 3 cells.*decimal commas"),
        ("date,x\n2024-01-01,1\n2024-01-01,2\n2024-01-02,3\n", r"line 3: has the date of line 2"),
        ("date,x\n2024-01-01,1\n2024-01-32,2\n", r"line 3: '2024-01-32' is no date"),
        ("date,x\n2024-01-01 00:00+01:00,1\n2024-01-01 01:00,2\n", r"line 3: .*give all dates a UTC offset, or none"),
        ("date,x\n2024-01-01,1\n2024-01-02,2\n2024-01-07,3\n2024-01-19,4\n", "no regular step"),
        ("date,x\n2024-01-01 00:00,1\n2024-01-01 02:00,2\n2024-01-01 04:00,3\n2024-01-01 05:00,4\n",
         "between two steps"),
        ("time,x\none,1\ntwo,2\n", "no column has dates"),
        ("2024-01-01,1\n2024-01-02,2\n", "its first line is data"),
        ("date,x,x\n2024-01-01,1,2\n", "two columns are called 'x'"),
        ("date,\n2024-01-01,\n2024-01-02,\n", r"2 of 2 cells of the column ''"),
        (table(["01/02/2024", "01/02/2025"]), "do not tell days from months"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_an_error_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_series(write(tmp_path, text))


def test_too_many_missing_rows_or_cells_are_an_error(tmp_path: Path) -> None:
    dates = days(40)
    with pytest.raises(ValueError, match=r"7 of 40 rows are missing at steps of 1 day, and at most 10%"):
        read_series(write(tmp_path, table(dates[:10] + dates[17:])))
    with pytest.raises(ValueError, match=r"5 of 40 cells of the column 'x' are missing"):
        read_series(write(tmp_path, table(dates, ["1"] * 35 + [""] * 5), "cells.csv"))


def test_a_missing_file_or_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.csv does not exist"):
        read_series(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"has no column 'y'; its columns are date, x"):
        read_series(write(tmp_path, table(DAYS)), columns=["y"])


def test_columns_in_memory_are_checked_as_those_of_a_file() -> None:
    made = as_series({"day": DAYS, "x": np.arange(7)}, "day", ["x"])
    assert made.next_dates(1) == ["2024-03-04"]
    with pytest.raises(ValueError, match="has no column 'y'"):
        as_series({"day": DAYS, "x": np.arange(7)}, "day", ["y"])
    with pytest.raises(ValueError, match="not of numbers"):
        as_series({"day": DAYS, "x": list("abcdefg")}, "day", ["x"])
    with pytest.raises(ValueError, match="row 3: has the date of row 2"):
        as_series({"day": [DAYS[0], DAYS[1], DAYS[1]], "x": [1, 2, 3]}, "day", ["x"])
    with pytest.raises(ValueError, match="infinite"):
        as_series({"day": DAYS, "x": [np.inf] * 7}, "day", ["x"])


def test_a_part_is_given_by_rows_fractions_or_dates(tmp_path: Path) -> None:
    series = read_series(write(tmp_path, table(days(100))))
    assert part_rows((10, 40), series) == (10, 40)
    assert part_rows((0.1, 0.4), series) == (10, 40)
    assert part_rows(("2024-01-11", "2024-02-10"), series) == (10, 40)
    for part in ((10, 101), ("2030-01-01", "2031-01-01")):
        with pytest.raises(ValueError, match=r"which has 100, from 2024-01-01 to 2024-04-09"):
            part_rows(part, series)
    with pytest.raises(ValueError, match="'soon' is not a date"):
        part_rows(("soon", "later"), series)


@given(st.integers(1, 300), st.integers(1, 60), st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1)))
def test_the_dates_after_the_last_continue_those_of_a_longer_series(seconds: int, count: int, start: datetime) -> None:
    first = np.datetime64(start, "s")
    times = first + (np.arange(count + 5) * seconds).astype("timedelta64[s]")
    step = TimeStep("seconds", seconds)
    assert (step.after(times[4], count) == times[5:]).all()


@given(st.integers(0, 600), st.integers(1, 30))
def test_months_after_a_month_end_are_month_ends(month: int, count: int) -> None:
    ends = (np.datetime64("1990-01", "M") + np.arange(month, month + count + 2)).astype("datetime64[D]") - 1
    step = TimeStep("months")
    assert (step.after(ends[0].astype("datetime64[s]"), count + 1, True).astype("datetime64[D]") == ends[1:]).all()


def test_dates_in_a_format_are_written_as_they_were_read() -> None:
    texts = ["2024-05-01T10:00:00-0330", "2024-05-01T11:00:00-0330"]
    times, form, _ = parse_dates(texts)
    assert str(times[0]) == "2024-05-01T13:30:00"
    assert form.write(times) == texts


def test_the_seasonal_series_continues_a_shorter_one_and_effects_follow_causes() -> None:
    from regard.data.seasonal import DELAY, RESPONSE, SIGNAL, seasonal_events, seasonal_values

    long, short = seasonal_series(900), seasonal_series(400)
    assert isinstance(long, TimeSeries)
    np.testing.assert_array_equal(long.values[:400], short.values)
    events = seasonal_events(900)
    assert len(events) > 8
    values = seasonal_values(900)[1]
    for event in events[:-2]:
        assert event.effect == event.cause + DELAY
        for column, row in ((SIGNAL, event.cause), (RESPONSE, event.effect + 1)):
            other = np.delete(np.arange(-3, 4), 3) * 24 + row
            around = values[other[(other >= 0) & (other < 900)], column]
            assert values[row, column] > np.median(around) + 2.0
