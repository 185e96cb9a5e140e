"""Dates of a series: their format, their regular step, and the dates after the last one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.datetime64]
"""Points in time, in seconds."""

_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")
PATTERNS = (*(day + clock for day in _DAYS for clock in _CLOCKS), "%Y-%m", "%Y")
"""The formats that dates may have, in which a UTC offset may follow a time of day."""
_OFFSET = re.compile(r"(?<=\d)\s*(Z|[+-]\d\d:?\d\d)$")
_FRACTION = re.compile(r"(?<=:\d\d)\.0+(?=$|Z|[+-])")
_DAY, _WEEKEND = 86_400, 5
MOST_MISSING = 0.1
"""Share of the rows, or of the cells of a column, that may be missing."""
_REGULAR = 0.5  # share of the distances between rows that must be equal


class IrregularDatesError(ValueError):
    """Dates without a regular step."""

    def __init__(self, problem: str, row: int) -> None:
        """Keep the number of the row at which it shows."""
        super().__init__(problem)
        self.row = row


@dataclass(frozen=True)
class TimeStep:
    """The time from one row to the next."""

    unit: Literal["seconds", "months", "weekdays"]
    count: int = 1

    def __str__(self) -> str:
        """Return the step for people, such as `1 hour`."""
        if self.unit == "weekdays":
            return "1 working day"
        sizes: tuple[tuple[int, str], ...] = (
            (604_800, "week"),
            (_DAY, "day"),
            (3600, "hour"),
            (60, "minute"),
            (1, "second"),
        )
        if self.unit == "months":
            sizes = ((12, "year"), (3, "quarter"), (1, "month"))
        size, name = next((size, name) for size, name in sizes if self.count % size == 0)
        return f"{self.count // size} {name}{'s' * (self.count // size > 1)}"

    @property
    def seasons(self) -> tuple[int, ...]:
        """The numbers of rows after which series with this step usually repeat."""
        match self.unit:
            case "weekdays":
                return (5, 260)
            case "months":
                return tuple(12 // self.count for _ in range(1) if self.count < 12 and 12 % self.count == 0)
        spans = (3600, _DAY, 7 * _DAY, 365 * _DAY)
        return tuple(span // self.count for span in spans if span % self.count == 0 and span > self.count)

    def after(self, last: np.datetime64, count: int, month_end: bool = False) -> Times:
        """Return the next `count` points in time; `month_end` keeps the last day of months."""
        numbers = np.arange(1, count + 1)
        if self.unit == "seconds":
            later: Times = last + (numbers * self.count).astype("timedelta64[s]")
            return later
        day = last.astype("datetime64[D]")
        clock = last - day.astype("datetime64[s]")
        if self.unit == "weekdays":
            weekdays: Times = np.busday_offset(day, numbers, roll="backward").astype("datetime64[s]") + clock
            return weekdays
        month = last.astype("datetime64[M]")
        months = month + numbers * self.count
        longest = (months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")
        wanted = (day - month.astype("datetime64[D]")) + np.timedelta64(1, "D")
        days = longest if month_end else np.minimum(longest, wanted)
        dates: Times = (months.astype("datetime64[D]") + days - np.timedelta64(1, "D")).astype("datetime64[s]") + clock
        return dates


@dataclass(frozen=True)
class DateFormat:
    """How dates are written."""

    pattern: str
    offset: str = ""
    """UTC offset of the last row, such as `+01:00` or `Z`; empty for dates without one."""

    def write(self, times: Times) -> list[str]:
        """Return points in time, in UTC if there is an offset, as they are written in the file."""
        shift = offset_seconds(self.offset)
        shifted = (times + np.timedelta64(shift, "s")).astype("datetime64[s]").tolist()
        return [moment.strftime(self.pattern) + self.offset for moment in shifted]


def offset_seconds(offset: str) -> int:
    """Return a UTC offset such as `+01:00` in seconds."""
    if offset in ("", "Z"):
        return 0
    digits = offset[1:].replace(":", "")
    return (-1 if offset[0] == "-" else 1) * (3600 * int(digits[:2]) + 60 * int(digits[2:]))


def is_date(text: str) -> bool:
    """Return whether a text is a date in one of `PATTERNS`, a bare year excepted."""
    bare = _split(text)[0]
    return any(_parse(bare, pattern) is not None for pattern in PATTERNS if pattern not in ("%Y", "%Y%m%d"))


def parse_dates(texts: Sequence[str]) -> tuple[Times, DateFormat, list[str]]:
    """Return the points in time of dates in one format, the format, and the different UTC offsets.

    Raises:
        IrregularDatesError: A date is in none of the formats, or in another one than the first; or days and months
            cannot be told apart.
    """
    split = [_split(text) for text in texts]
    bare, offsets = [part for part, _ in split], [offset for _, offset in split]
    mixed = next((row for row, offset in enumerate(offsets) if bool(offset) != bool(offsets[0])), None)
    if mixed is not None:
        raise IrregularDatesError(f"{texts[0]!r} and {texts[mixed]!r}: give all dates a UTC offset, or none", mixed)
    patterns = [pattern for pattern in PATTERNS if _parse(bare[0], pattern) is not None]
    if not patterns:
        raise IrregularDatesError(f"{texts[0]!r} is not a date; write dates such as 2024-12-31 23:00", 0)
    parsed, wrong = dict[str, Times](), 0
    for pattern in patterns:
        moments = [_parse(text, pattern) for text in bare]
        if None in moments:
            wrong = max(wrong, moments.index(None))
        else:
            parsed[pattern] = np.array(moments, "datetime64[s]")
    if not parsed:
        raise IrregularDatesError(f"{texts[wrong]!r} is no date in the format of {texts[0]!r}", wrong)
    pattern = _most_regular(parsed)
    shifts = np.array([offset_seconds(offset) for offset in offsets], "timedelta64[s]")
    return parsed[pattern] - shifts, DateFormat(pattern, offsets[-1]), list(dict.fromkeys(offsets))


def find_step(times: Times) -> tuple[TimeStep, NDArray[np.int64], bool]:
    """Return the step of rising dates, the number of steps from the first date to each, and whether all end a month.

    Raises:
        IrregularDatesError: Most distances differ, or a date is between two steps.
    """
    seconds = np.diff(times).astype(np.int64)
    days = times.astype("datetime64[D]")
    months = times.astype("datetime64[M]")
    ends = bool(((days + 1).astype("datetime64[M]") > months).all())
    day_of_month = (days - months.astype("datetime64[D]")).astype(int)
    if seconds.min() >= 28 * _DAY and (ends or day_of_month.max() - day_of_month.min() <= 3):
        numbers = months.astype(np.int64)
        count = _common(np.diff(numbers), times)
        return TimeStep("months", count), _positions(numbers - numbers[0], count, times), ends
    same_clock = bool((seconds % _DAY == 0).all())
    long_enough = same_clock and times.size > _WEEKEND and (days[-1] - days[0]).astype(int) >= 7
    if long_enough and bool(np.is_busday(days).all()) and int(_common(seconds, times)) == _DAY:
        return TimeStep("weekdays"), np.busday_count(days[0], days).astype(np.int64), False
    count = _common(seconds, times)
    return TimeStep("seconds", count), _positions((times - times[0]).astype(np.int64), count, times), False


def _common(distances: NDArray[np.int64], times: Times) -> int:
    """Return the distance that most rows have."""
    values, counts = np.unique(distances, return_counts=True)
    best = int(counts.argmax())
    if counts[best] < _REGULAR * distances.size:
        row = int(np.flatnonzero(distances != values[best])[0]) + 1
        raise IrregularDatesError(
            f"the dates have no regular step: only {counts[best] / distances.size:.0%} of the distances between rows "
            "are equal; resample the table first",
            row,
        )
    return int(values[best])


def _positions(distances: NDArray[np.int64], count: int, times: Times) -> NDArray[np.int64]:
    """Return distances from the first row in steps of `count`."""
    between = np.flatnonzero(distances % count)
    if between.size:
        row = int(between[0])
        raise IrregularDatesError(f"{times[row]} is between two steps of the other rows; fix or delete it", row)
    return distances // count


def _most_regular(parsed: dict[str, Times]) -> str:
    """Return the format in which dates rise most regularly; days and months may be told apart only by that."""
    different = {times.tobytes(): pattern for pattern, times in reversed(parsed.items())}
    if len(different) == 1:
        return next(iter(parsed))

    def irregularity(pattern: str) -> tuple[int, int]:
        distances = np.diff(parsed[pattern]).astype(np.int64)
        return int((distances <= 0).sum()), np.unique(distances).size

    ranked = sorted(different.values(), key=irregularity)
    if irregularity(ranked[0]) == irregularity(ranked[1]):
        raise IrregularDatesError("the dates do not tell days from months; write them such as 2024-12-31", 0)
    return ranked[0]


def _split(text: str) -> tuple[str, str]:
    """Return a date without its UTC offset, and the offset."""
    text = _FRACTION.sub("", text.strip())
    found = _OFFSET.search(text) if ":" in text else None
    return (text, "") if found is None else (text[: found.start()], found.group(1))


def _parse(text: str, pattern: str) -> datetime | None:
    """Return the date in a text; None if it has another format."""
    try:
        if pattern.startswith("%Y-%m-%d"):  # many times as fast as strptime
            moment = datetime.fromisoformat(text)
            return moment if moment.strftime(pattern) == text else None
        return datetime.strptime(text, pattern)
    except ValueError:
        return None
