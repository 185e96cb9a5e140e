"""Tables of a race: one row per contender, averaged over its seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from regard.race.evaluation import SCORES, LengthGroup, RaceResult
from regard.train.report.formatting import format_count, format_duration

HEADINGS = (
    "contender", "BLEU", "chrF", "exact match %", "AER", "parameters", "training FLOPs",
    "time", "target tokens", "tokens/s training", "tokens/s decoding", "memory MB",
)  # fmt: skip

PUBLISHED: tuple[tuple[str, float, float | None], ...] = (
    ("ByteNet", 23.75, None),
    ("GNMT + RL", 24.6, 2.3e19),
    ("ConvS2S", 25.16, 9.6e18),
    ("MoE", 26.03, 2.0e19),
    ("Transformer (base)", 27.3, 3.3e18),
    ("Transformer (big)", 28.4, 2.3e19),
)
"""Single models of Vaswani et al. 2017, table 2: BLEU on newstest2014 English-German, and training FLOPs."""


@dataclass(frozen=True)
class ResultRow:
    """One contender with the results of all its seeds."""

    name: str
    results: tuple[RaceResult, ...]

    @property
    def first(self) -> RaceResult:
        """The result of the first seed, which the figures show."""
        return self.results[0]

    def mean(self, value: Callable[[RaceResult], float]) -> float:
        """Return the mean of a value over the seeds."""
        return fmean(value(result) for result in self.results)

    def mean_score(self, score: str) -> float:
        """Return the mean of a score over the seeds."""
        return self.mean(lambda result: result.scores[score])

    def group_mean(self, group: int, value: Callable[[LengthGroup], float]) -> float:
        """Return the mean of a value of one length group over the seeds."""
        return self.mean(lambda result: value(result.groups[group]))

    def score_text(self, score: str) -> str:
        """Return the mean of a score, with its standard deviation if there are several seeds."""
        return _mean_and_deviation([result.scores[score] for result in self.results], 1)

    def error_rates(self) -> list[float]:
        """Return the alignment error rates of the seeds that have one."""
        return [result.aer for result in self.results if result.aer is not None]

    def cells(self) -> list[str]:
        """Return the row of the table, in the order of `HEADINGS`."""
        rates = self.error_rates()
        memory = [result.memory for result in self.results if result.memory is not None]
        return [
            self.name,
            *(self.score_text(score) for score in SCORES),
            _mean_and_deviation(rates, 3) if rates else "–",
            format_count(self.mean(lambda result: result.parameters)),
            f"{self.mean(lambda result: result.flops):.2e}",
            format_duration(self.mean(lambda result: result.seconds)),
            format_count(self.mean(lambda result: result.tokens)),
            format_count(self.mean(lambda result: result.training_speed)),
            format_count(self.mean(lambda result: result.decoding_speed)),
            f"{fmean(memory) / 1e6:,.0f}" if memory else "–",
        ]


def result_rows(results: Iterable[RaceResult]) -> list[ResultRow]:
    """Group results by contender, in their order; a number after the last full stop of a name is that of a seed."""
    grouped: dict[str, list[RaceResult]] = {}
    for result in results:
        base, dot, number = result.name.rpartition(".")
        grouped.setdefault(base if dot and number.isdecimal() else result.name, []).append(result)
    return [ResultRow(name, tuple(group)) for name, group in grouped.items()]


def with_published(rows: Sequence[ResultRow]) -> list[list[str]]:
    """Return published models, then the contenders: model, text, BLEU, training FLOPs."""
    published = [
        [name, "WMT14 en-de", f"{score:.1f}", "–" if flops is None else f"{flops:.1e}"]
        for name, score, flops in PUBLISHED
    ]
    flops = HEADINGS.index("training FLOPs")
    return [*published, *([row.name, "this race", row.score_text("BLEU"), row.cells()[flops]] for row in rows)]


def best_row(rows: Sequence[ResultRow]) -> int:
    """Return the index of the row with the highest BLEU."""
    return max(range(len(rows)), key=lambda index: rows[index].mean_score("BLEU"))


def results_markdown(rows: Sequence[ResultRow]) -> str:
    """Return the table of results in Markdown, with the best score of each column in bold."""
    table = [row.cells() for row in rows]
    for heading, index in _best_by_heading(rows).items():
        column = HEADINGS.index(heading)
        table[index][column] = f"**{table[index][column]}**"
    return markdown_table(HEADINGS, table)


def lengths_markdown(rows: Sequence[ResultRow]) -> str:
    """Return exact match in percent by source length in Markdown: a row per contender, a column per group."""
    groups = rows[0].first.groups
    headings = ("source words", *map(word_range, groups))
    return markdown_table(
        headings,
        [
            [row.name, *(f"{row.group_mean(index, lambda group: group.exact):.1f}" for index in range(len(groups)))]
            for row in rows
        ],
    )


def word_range(group: LengthGroup) -> str:
    """Return the range of source lengths of a group, such as "7–9"."""
    return f"{group.min_words}–{group.max_words}" if group.max_words > group.min_words else str(group.min_words)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the columns after the first are aligned to the right."""
    lines = ["| " + " | ".join(headings) + " |", "|---" + "|--:" * (len(headings) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def _best_by_heading(rows: Sequence[ResultRow]) -> dict[str, int]:
    """Return the index of the best row for each score and for the alignment error rate."""
    best = {}
    for score, heading in zip(SCORES, HEADINGS[1:], strict=False):
        means = [row.mean_score(score) for row in rows]
        best[heading] = means.index(max(means))
    rates = {index: fmean(row.error_rates()) for index, row in enumerate(rows) if row.error_rates()}
    return {**best, "AER": min(rates, key=lambda index: rates[index])} if rates else best


def _mean_and_deviation(values: Sequence[float], digits: int) -> str:
    mean = f"{fmean(values):.{digits}f}"
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean
