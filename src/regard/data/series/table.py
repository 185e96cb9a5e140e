"""Read a table of dates and numbers from a CSV file, and check it."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.series.dates import is_date
from regard.files import read_text

_SEPARATORS = (",", ";", "\t")
_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_LISTED = 8  # names of columns in an error
_SAMPLE = 1000  # rows by which decimal commas are recognised


@dataclass(frozen=True, eq=False)
class Table:
    """Dates as they are written, and the numbers of each column; NaN where a cell is empty."""

    name: str
    """What messages call the table."""
    date: str
    """Name of the column with the dates."""
    dates: list[str]
    columns: dict[str, NDArray[np.float64]]
    lines: Sequence[int]
    """The line or row of each date, for messages."""


def read_table(path: Path, date: str = "", columns: Sequence[str] = ()) -> Table:
    """Read a CSV file.

    Args:
        path: The file; `.gz` files are decompressed.
        date: Name of the column with the dates; empty finds it.
        columns: Names of the columns with numbers; empty takes all but the dates.

    Raises:
        ValueError: If the file is malformed. The message names line and column.
    """
    header, rows, lines = _read_cells(path)
    if not rows:
        raise ValueError(f"{path}: has no rows below the names of its columns. Give at least two.")
    date = _find_dates(path, header, rows[0], date)
    names = [name for name in header if name != date] if not columns else list(columns)
    _check_names(path, header, names)
    cells = {name: [row[header.index(name)].strip() for row in rows] for name in names}
    comma = any(_DECIMAL_COMMA.fullmatch(cell) for column in cells.values() for cell in column[:_SAMPLE])
    numbers = {name: _numbers(path, name, column, lines, comma) for name, column in cells.items()}
    return Table(str(path), date, [row[header.index(date)].strip() for row in rows], numbers, lines)


def make_table(data: Mapping[str, Sequence[Any] | NDArray[Any]], date: str, columns: Sequence[str]) -> Table:
    """Return a table of columns in memory, which begin at row 1.

    Raises:
        ValueError: If a column is missing, has another length, or is not of numbers.
    """
    missing = [name for name in (date, *columns) if name not in data]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}; it has {_listed(list(data))}")
    dates = [str(moment) for moment in data[date]]
    numbers = {}
    for name in columns:
        try:
            numbers[name] = np.asarray(data[name], np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the column {name!r} of the table is not of numbers: {error}") from None
        if numbers[name].shape != (len(dates),):
            raise ValueError(
                f"the column {name!r} has the shape {numbers[name].shape}, and there are {len(dates)} dates"
            )
        if np.isinf(numbers[name]).any():
            raise ValueError(f"the column {name!r} has an infinite number; only finite numbers can be forecast")
    return Table("the table", date, dates, numbers, range(1, len(dates) + 1))


def _read_cells(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the names of the columns, the cells of each row, and the lines of the rows."""
    text = read_text(path)
    first = text.lstrip("\n").partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    if not first.count(separator):
        raise ValueError(
            f"{path}: its first line, {first[:60]!r}, is one column. Separate columns by commas, semicolons or tabs, "
            "and name them in the first line."
        )
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator, skipinitialspace=True)
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if not header:
                header = [name.strip() for name in row]
                continue
            if len(row) != len(header):
                hint = (
                    " Quote numbers with decimal commas, or separate columns by semicolons." if separator == "," else ""
                )
                raise ValueError(
                    f"{path}, line {reader.line_num}: has {len(row)} cells, and the first line names {len(header)} "
                    f"columns.{hint}"
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    return header, rows, lines


def _find_dates(path: Path, header: list[str], first: list[str], date: str) -> str:
    """Return the name of the column with the dates."""
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path}: two columns are called {repeated[0]!r}. Give each a name of its own.")
    if date:
        _check_names(path, header, [date])
        return date
    if any(is_date(name) for name in header):
        raise ValueError(f"{path}: its first line is data: {header[:3]}. Name the columns in the first line.")
    found = [name for name, cell in zip(header, first, strict=True) if is_date(cell)]
    if not found:
        raise ValueError(
            f"{path}: no column has dates such as 2024-12-31 or 31.12.2024 23:00; the first row is {first[:_LISTED]}. "
            "Add one, or name it."
        )
    return found[0]


def _check_names(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in header:
            raise ValueError(f"{path}: has no column {name!r}; its columns are {_listed(header)}.")
    if not names:
        raise ValueError(f"{path}: has no column but the dates. Add a column of numbers.")


def _listed(names: Sequence[str]) -> str:
    """Return the names of columns for a message."""
    return ", ".join(map(str, names[:_LISTED])) + (", …" if len(names) > _LISTED else "")


def _numbers(path: Path, name: str, cells: list[str], lines: Sequence[int], comma: bool) -> NDArray[np.float64]:
    """Return the numbers of a column; NaN for an empty cell."""
    texts = ["nan" if cell.lower() in _EMPTY else cell.replace(",", ".") if comma else cell for cell in cells]
    try:
        numbers = np.array(texts, np.float64)
    except ValueError:
        numbers = np.array([_number(text) for text in texts])
    wrong = np.flatnonzero(np.isinf(numbers))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"{path}, line {lines[row]}: {cells[row]!r} in the column {name!r} is not a finite number. Write numbers "
            "such as 1234.5, without thousands separators, or leave the cell empty; other columns can be left out."
        )
    return numbers


def _number(text: str) -> float:
    """Return a number; infinity for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return np.inf
