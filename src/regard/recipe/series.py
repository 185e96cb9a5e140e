"""Corpora of series: tables of numbers over time."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from regard.recipe.section import BaseCorpus, Positive, TupleOf

Bound = int | float | str


class _TimeCorpus(BaseCorpus):
    """The settings that corpora of series share."""

    part: TupleOf[Bound] = Field(default=(0.0, 1.0), min_length=2, max_length=2)
    """First row of the part to forecast, and the first one after it: fractions of the rows, [0.0, 0.7]; numbers of
    rows, [0, 8640]; or dates, ["2016-07-01", "2017-06-26"]. A window may look back to the rows before its part."""

    @model_validator(mode="after")
    def _part_is_not_empty(self) -> "_TimeCorpus":
        first, last = self.part
        if type(first) is not type(last):
            raise ValueError(
                f"part = {list(self.part)} mixes rows, fractions and dates; write both alike, such as [0.0, 0.7]"
            )
        if isinstance(first, float) and isinstance(last, float) and not (0 <= first < last <= 1):
            raise ValueError(f"part = {list(self.part)}: fractions rise between 0.0 and 1.0; rows are whole numbers")
        if isinstance(first, int) and isinstance(last, int) and not 0 <= first < last:
            raise ValueError(f"part = {list(self.part)}: the second row must come after the first")
        return self

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the field is a series."""
        if tuple(names) != ("series",):
            kind = type(self).model_fields["kind"].default
            raise ValueError(
                f".kind = '{kind}' has numbers over time, but this task has the fields {', '.join(names)}: set "
                "task = 'forecasting', or name another corpus"
            )


class SeriesCorpus(_TimeCorpus):
    """A CSV file with a column of dates and columns of numbers. `.gz` files are decompressed.

    Columns are separated by commas, semicolons or tabs, and the first line names them. Rows that are missing are
    interpolated.
    """

    kind: Literal["series"] = "series"
    """A table of numbers over time."""
    path: str
    """The file."""
    date: str = ""
    """Name of the column with the dates; empty finds it."""
    columns: TupleOf[str] = ()
    """Names of the columns to forecast; empty takes all but the dates."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)


class SeasonalCorpus(_TimeCorpus):
    """Generated hourly series with trend and seasons, and with events whose cause is known; needs no file."""

    kind: Literal["seasonal"] = "seasonal"
    """Generated series with trend, seasons and events."""
    rows: Positive = 6_000
    """Number of hours to generate."""


SERIES_CORPORA = (SeriesCorpus, SeasonalCorpus)
"""The kinds of corpora that have series."""


def as_series(corpus: object) -> object:
    """Return the table of a corpus; a file becomes a series, unless a kind is named."""
    is_file = isinstance(corpus, dict) and "kind" not in corpus and "path" in corpus
    return {**corpus, "kind": "series"} if is_file else corpus  # type: ignore[dict-item]
