"""Tables of a race: one row per contender, averaged over its seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from regard.race.result import RaceResult
from regard.train.report.formatting import format_count, format_duration

Value = Callable[[RaceResult], float | None]
"""A figure of a result; None if the contender has none."""


@dataclass(frozen=True)
class Column:
    """A column of the table of results."""

    heading: str
    value: Value
    text: Callable[[float], str]
    """How the mean over the seeds is written."""
    best: Literal["highest", "lowest"] | None = None
    """Which value of a score is the best; None if it is no score. Scores have a standard deviation."""


def score_column(
    name: str, heading: str | None = None, digits: int = 1, best: Literal["highest", "lowest"] = "highest"
) -> Column:
    """Return the column of a score."""
    return Column(heading or name, lambda result: result.score(name), lambda value: f"{value:.{digits}f}", best)


COST_COLUMNS = (
    Column("parameters", lambda result: result.parameters, format_count),
    Column("training FLOPs", lambda result: result.flops, lambda value: f"{value:.2e}"),
    Column("time", lambda result: result.seconds, format_duration),
    Column("target tokens", lambda result: result.tokens, format_count),
    Column("tokens/s training", lambda result: result.training_speed, format_count),
    Column("memory MB", lambda result: result.memory, lambda value: f"{value / 1e6:,.0f}"),
)
"""What the training of a contender costs."""


@dataclass(frozen=True)
class ResultRow:
    """One contender with the results of all its seeds."""

    name: str
    results: tuple[RaceResult, ...]

    @property
    def first(self) -> RaceResult:
        """The result of the first seed, which the figures show."""
        return self.results[0]

    def mean(self, value: Value) -> float | None:
        """Return the mean of a value over the seeds that have one."""
        values = self._values(value)
        return fmean(values) if values else None

    def cell(self, column: Column) -> str:
        """Return a cell of the table: the mean, and the standard deviation of a score if there are several seeds."""
        values = self._values(column.value)
        if not values:
            return "–"
        spread = f" ± {column.text(stdev(values))}" if column.best and len(values) > 1 else ""
        return column.text(fmean(values)) + spread

    def _values(self, value: Value) -> list[float]:
        return [found for result in self.results if (found := value(result)) is not None]


def result_rows(results: Iterable[RaceResult]) -> list[ResultRow]:
    """Group results by contender, in their order; a number after the last full stop of a name is that of a seed."""
    grouped: dict[str, list[RaceResult]] = {}
    for result in results:
        base, dot, number = result.name.rpartition(".")
        grouped.setdefault(base if dot and number.isdecimal() else result.name, []).append(result)
    return [ResultRow(name, tuple(group)) for name, group in grouped.items()]


def table_cells(rows: Sequence[ResultRow], columns: Sequence[Column]) -> list[list[str]]:
    """Return the cells of the table of results: the name of each contender, then the columns."""
    return [[row.name, *map(row.cell, columns)] for row in rows]


def table_headings(columns: Sequence[Column]) -> list[str]:
    """Return the headings of the table of results."""
    return ["contender", *(column.heading for column in columns)]


def best_row(rows: Sequence[ResultRow], column: Column) -> int | None:
    """Return the index of the row with the best value of a score; None if no row has one."""
    means = {index: mean for index, row in enumerate(rows) if (mean := row.mean(column.value)) is not None}
    choose = min if column.best == "lowest" else max
    return choose(means, key=lambda index: means[index]) if means and column.best else None


def results_markdown(rows: Sequence[ResultRow], columns: Sequence[Column]) -> str:
    """Return the table of results in Markdown, with the best value of each score in bold."""
    table = table_cells(rows, columns)
    for place, column in enumerate(columns, start=1):
        best = best_row(rows, column)
        if best is not None:
            table[best][place] = f"**{table[best][place]}**"
    return markdown_table(table_headings(columns), table)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the columns after the first are aligned to the right."""
    lines = ["| " + " | ".join(headings) + " |", "|---" + "|--:" * (len(headings) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])
