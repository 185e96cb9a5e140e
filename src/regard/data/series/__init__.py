"""Series: numbers over time, at regular distances, read from tables and checked.

    series = read_series(Path("ETTh1.csv.gz"))
    series.values.shape, str(series.step)          # (17420, 7), '1 hour'
    series.format.write(series.next_dates(24))     # the dates after the last row, as the file writes them

Rows in another order are sorted, and missing rows and cells are interpolated, both with a warning. Too many of them,
repeated dates and dates without a regular step are errors.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.seasonal import seasonal_values
from regard.data.series.dates import (
    MOST_MISSING,
    DateFormat,
    IrregularDatesError,
    Times,
    TimeStep,
    find_step,
    parse_dates,
)
from regard.data.series.table import Table, make_table, read_table
from regard.recipe import SeasonalCorpus, SeriesCorpus

__all__ = ["MOST_MISSING", "TimeSeries", "TimeStep", "as_series", "corpus_series", "part_rows", "read_series"]

_log = logging.getLogger("regard")

_SEASONAL_START = np.datetime64("2024-01-01T00:00:00")


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """Numbers over time: one row for each step, without gaps."""

    name: str
    """What messages call it: the path of a file."""
    date: str
    """Name of the column with the dates."""
    columns: tuple[str, ...]
    times: Times
    values: NDArray[np.float64]
    """One row for each point in time, one column for each name."""
    step: TimeStep
    format: DateFormat
    month_end: bool = False
    """Whether all dates are the last day of a month."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.times.size

    def next_dates(self, count: int) -> list[str]:
        """Return the dates after the last row, as the dates of the table are written."""
        return self.format.write(self.step.after(self.times[-1], count, self.month_end))

    def dates(self, first: int = 0, last: int | None = None) -> list[str]:
        """Return the dates of rows, as they are written."""
        return self.format.write(self.times[first:last])

    def records(self) -> Iterator[str]:
        """Yield the numbers of each row as text, separated by tabs."""
        for row in self.values.tolist():
            yield "\t".join(map(repr, row))


def read_series(path: Path, date: str = "", columns: Sequence[str] = ()) -> TimeSeries:
    """Read a series from a CSV file; the last few files are kept in memory.

    Args:
        path: The file; `.gz` files are decompressed.
        date: Name of the column with the dates; empty finds it.
        columns: Names of the columns to read; empty takes all but the dates.

    Raises:
        ValueError: If the file is no table of numbers at regular distances. The message names line and column.
    """
    if not path.is_file():
        raise ValueError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; name a CSV file")
    state = path.stat()
    return _read(path, date, tuple(columns), (state.st_size, state.st_mtime_ns, state.st_ino))


@lru_cache(maxsize=4)
def _read(path: Path, date: str, columns: tuple[str, ...], state: tuple[int, ...]) -> TimeSeries:
    """Read a file in a certain state; it is read for the vocabulary, the store and each part of it."""
    return _regular(read_table(path, date, columns))


def as_series(data: Mapping[str, Sequence[Any] | NDArray[Any]], date: str, columns: Sequence[str]) -> TimeSeries:
    """Return a series of columns in memory, checked as those of a file.

    Example:
        >>> as_series({"day": ["2024-01-01", "2024-01-02"], "sold": [3, 5]}, "day", ["sold"]).next_dates(1)
        ['2024-01-03']
    """
    return _regular(make_table(data, date, columns))


def corpus_series(corpus: SeriesCorpus | SeasonalCorpus, root: Path, seed: int = 0) -> TimeSeries:
    """Return the series of a corpus: all rows, whatever part of them it is about."""
    if isinstance(corpus, SeriesCorpus):
        return read_series(root.expanduser() / Path(corpus.path).expanduser(), corpus.date, corpus.columns)
    return seasonal_series(corpus.rows, seed)


@lru_cache(maxsize=2)
def seasonal_series(rows: int, seed: int = 0) -> TimeSeries:
    """Return the generated series of `regard.data.seasonal` with its dates."""
    columns, values = seasonal_values(rows, seed)
    times = _SEASONAL_START + np.arange(rows).astype("timedelta64[h]").astype("timedelta64[s]")
    hourly, written = TimeStep("seconds", 3600), DateFormat("%Y-%m-%d %H:%M")
    return TimeSeries("the seasonal series", "date", columns, times, values, hourly, written)


def part_rows(part: Sequence[int | float | str], series: TimeSeries) -> tuple[int, int]:
    """Return the first row of a part of a series, and the first row after it.

    Args:
        part: Two numbers of rows, fractions of the rows, or dates, as in a recipe.
        series: The series.

    Raises:
        ValueError: If the series has no such rows.
    """
    rows = []
    for bound in part:
        if isinstance(bound, float):
            rows.append(round(bound * len(series)))
        elif isinstance(bound, int):
            rows.append(bound)
        else:
            try:
                moment = parse_dates([bound])[0][0]
            except IrregularDatesError as error:
                raise ValueError(f"part = {list(part)}: {error}") from None
            rows.append(int(np.searchsorted(series.times, moment)))
    first, last = rows
    if not 0 <= first < last <= len(series):
        raise ValueError(
            f"part = {list(part)} is rows {first:,} to {last:,} of {series.name}, which has {len(series):,}, from "
            f"{series.dates(0, 1)[0]} to {series.dates(-1)[0]}; name a part of them"
        )
    return first, last


def _regular(table: Table) -> TimeSeries:
    """Return a table as a series: sorted, with interpolated gaps."""
    name, lines = table.name, np.asarray(table.lines)
    where = "line" if name != "the table" else "row"
    if len(table.dates) < 2:
        raise ValueError(f"{name}: has 1 row, which shows no step of time. Give at least two.")
    try:
        times, written, offsets = parse_dates(table.dates)
    except IrregularDatesError as error:
        raise ValueError(f"{name}, {where} {lines[error.row]}: {error}.") from None
    if len(offsets) > 1:
        _log.warning("%s: dates have the UTC offsets %s; forecasts get the last one", name, ", ".join(offsets))
    order = np.argsort(times, kind="stable")
    if (np.diff(order) < 0).any():
        _log.warning("%s: rows are not in the order of their dates, and are sorted", name)
    times, lines = times[order], lines[order]
    repeated = np.flatnonzero(np.diff(times) == np.timedelta64(0, "s"))
    if repeated.size:
        first, second = sorted(lines[[repeated[0], repeated[0] + 1]].tolist())
        raise ValueError(
            f"{name}, {where} {second}: has the date of {where} {first}, {table.dates[order[repeated[0]]]!r}. Keep one "
            "row for each date, with a column for each series; local times around the end of summer time need a UTC "
            "offset, such as +01:00."
        )
    try:
        step, positions, month_end = find_step(times)
    except IrregularDatesError as error:
        raise ValueError(f"{name}, {where} {lines[error.row]}: {error}.") from None
    values = np.full((int(positions[-1]) + 1, len(table.columns)), np.nan) if _is_dense(positions) else None
    if values is None:
        raise _too_many(name, "rows", positions[-1] + 1 - positions.size, positions[-1] + 1, f" at steps of {step}")
    for number, column in enumerate(table.columns.values()):
        values[positions, number] = column[order]
    if len(values) > times.size:
        times = np.append(times[:1], step.after(times[0], len(values) - 1, month_end))
        gap = int(np.flatnonzero(np.diff(positions) > 1)[0])
        _log.warning(
            "%s: %d of %d rows are missing at steps of %s, the first after %s %d; they are interpolated",
            *(name, len(values) - positions.size, len(values), step, where, lines[gap]),
        )
    filled = _interpolated(name, tuple(table.columns), values, positions)
    return TimeSeries(name, table.date, tuple(table.columns), times, filled, step, written, month_end)


def _is_dense(positions: NDArray[np.int64]) -> bool:
    """Return whether few enough rows are missing to interpolate them."""
    return bool(positions[-1] + 1 - positions.size <= MOST_MISSING * (positions[-1] + 1))


def _interpolated(
    name: str, columns: Sequence[str], values: NDArray[np.float64], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return values without NaN: each column is interpolated linearly between the rows that have a number."""
    rows, empty = np.arange(len(values)), np.isnan(values)
    for number, column in enumerate(columns):
        count = int(empty[positions, number].sum())
        if count > MOST_MISSING * len(positions):
            raise _too_many(name, f"cells of the column {column!r}", count, len(positions))
        if count:
            _log.warning(
                "%s: %d of %d cells of the column %r are empty; they are interpolated",
                name,
                count,
                len(positions),
                column,
            )
        known = ~empty[:, number]
        values[:, number] = np.interp(rows, rows[known], values[known, number])
    return values


def _too_many(name: str, what: str, count: int, total: int, detail: str = "") -> ValueError:
    """Return the error for a table of which too much is missing."""
    return ValueError(
        f"{name}: {count:,} of {total:,} {what} are missing{detail}, and at most {MOST_MISSING:.0%} are interpolated. "
        "Fill them in, leave the column out, or use a part without gaps."
    )
