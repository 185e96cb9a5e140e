"""Results of a race as tables: one row a contender, over its seeds where it ran with several."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from regard.race.judging import SCORES, Result
from regard.train.wording import amount, duration

HEADS = (
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
"""The single models of the lectures' performance table: BLEU on newstest2014 English-German, and operations of training
(Vaswani et al. 2017, table 2)."""


@dataclass(frozen=True)
class Row:
    """One contender with all its seeds."""

    name: str
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The run that stands for all of them in pictures."""
        return self.results[0]

    def mean(self, score: str) -> float:
        """A score's mean over the seeds."""
        return fmean(each.scores[score] for each in self.results)

    def told(self, score: str) -> str:
        """The mean, with the spread where there is one."""
        return _spread([each.scores[score] for each in self.results], 1)

    def exact(self, group: int) -> float:
        """Sentences of a group of like length that are right to the letter, in percent, mean over the seeds."""
        return fmean(each.groups[group].exact for each in self.results)

    def rates(self) -> list[float]:
        """Alignment error rates, of seeds that have one."""
        return [each.aer for each in self.results if each.aer is not None]

    def cells(self) -> list[str]:
        """What stands under `HEADS`."""
        rates = self.rates()
        memory = [each.memory for each in self.results if each.memory is not None]

        def over(name: str) -> float:
            return fmean(getattr(each, name) for each in self.results)

        return [
            self.name,
            *(self.told(score) for score in SCORES),
            _spread(rates, 3) if rates else "–",
            amount(over("parameters")),
            f"{over('flops'):.2e}",
            duration(over("seconds")),
            amount(over("tokens")),
            amount(over("training_speed")),
            amount(over("decoding_speed")),
            f"{fmean(memory) / 1e6:,.0f}" if memory else "–",
        ]


def beside_published(rows: Sequence[Row]) -> list[list[str]]:
    """The lectures' performance table with our rows below: model, text, BLEU, operations of training."""
    theirs = [
        [name, "WMT14 en-de", f"{score:.1f}", "–" if flops is None else f"{flops:.1e}"]
        for name, score, flops in PUBLISHED
    ]
    ours = [[row.name, "this race", row.told("BLEU"), row.cells()[HEADS.index("training FLOPs")]] for row in rows]
    return [*theirs, *ours]


def rows_of(results: Iterable[Result]) -> list[Row]:
    """A row for each contender in the order they ran; a name's part after its last full stop is the seed's number."""
    found: dict[str, list[Result]] = {}
    for each in results:
        base, dot, number = each.name.rpartition(".")
        found.setdefault(base if dot and number.isdecimal() else each.name, []).append(each)
    return [Row(name, tuple(group)) for name, group in found.items()]


def best(rows: Sequence[Row]) -> int:
    """The place of the row with the highest BLEU."""
    return max(range(len(rows)), key=lambda at: rows[at].mean("BLEU"))


def markdown(rows: Sequence[Row]) -> str:
    """The table as a document has it; the best of every score, and of the error rate, is bold."""
    table = [row.cells() for row in rows]
    for head, at in _winners(rows).items():
        column = HEADS.index(head)
        table[at][column] = f"**{table[at][column]}**"
    return _lines(HEADS, table)


def by_length(rows: Sequence[Row]) -> str:
    """Exact match in percent by source words, as a document has it: a row a contender, a column a group."""
    groups = rows[0].first.groups
    heads = ("source words", *(span(each.least, each.most) for each in groups))
    return _lines(heads, [[row.name, *(f"{row.exact(at):.1f}" for at in range(len(groups)))] for row in rows])


def span(least: int, most: int) -> str:
    """Lengths from one to another."""
    return f"{least}–{most}" if most > least else str(least)


def _winners(rows: Sequence[Row]) -> dict[str, int]:
    """By heading, the row that is best in it."""
    found = {}
    for score, head in zip(SCORES, HEADS[1:], strict=False):
        means = [row.mean(score) for row in rows]
        found[head] = means.index(max(means))
    rates = {at: fmean(row.rates()) for at, row in enumerate(rows) if row.rates()}
    return {**found, "AER": min(rates, key=lambda at: rates[at])} if rates else found


def _lines(heads: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in table)])


def _spread(values: Sequence[float], digits: int) -> str:
    mean = f"{fmean(values):.{digits}f}"
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean
