"""The report of a race of translators: quality by source length, attention with gold links, published models."""

from collections.abc import Callable, Sequence
from html import escape

import numpy as np
from matplotlib.figure import Figure

from regard.plot import alignment, lengths
from regard.race.summary import COST_COLUMNS, Column, ResultRow, markdown_table, score_column
from regard.race.translation import SCORES, LengthGroup, SentenceAttention, TranslationResult
from regard.score import Alignment
from regard.train.report import page
from regard.train.report.formatting import format_count

COLUMNS = (
    *(score_column(name, f"{name} %" if name == "exact match" else name) for name in SCORES),
    score_column("AER", digits=3, best="lowest"),
    *COST_COLUMNS,
    Column("tokens/s decoding", lambda result: _translation(result).decoding_speed, format_count),
)
"""The table of results."""
MIN_EXACT_MATCH = 10.0  # percent; below this of the best contender, the figure by length shows BLEU instead
FACTS = (
    ("alignment error rate", "links are read from the attention that is best on validation text; lower is better"),
)
"""What the columns mean."""
PUBLISHED_HEADINGS = ("model", "text", "BLEU", "training FLOPs")
PUBLISHED: tuple[tuple[str, float, float | None], ...] = (
    ("ByteNet", 23.75, None),
    ("GNMT + RL", 24.6, 2.3e19),
    ("ConvS2S", 25.16, 9.6e18),
    ("MoE", 26.03, 2.0e19),
    ("Transformer (base)", 27.3, 3.3e18),
    ("Transformer (big)", 28.4, 2.3e19),
)
"""Single models of Vaswani et al. 2017, table 2: BLEU on newstest2014 English-German, and training FLOPs."""


def translation_figures(rows: Sequence[ResultRow]) -> dict[str, Figure]:
    """Return the figures by name: quality by source length, and the attention of each contender that has some."""
    maps = {
        f"map-{row.name}": _attention_figure(attention, row.name)
        for row in rows
        if (attention := _translation(row.first).attention)
    }
    return {"lengths": _lengths_figure(rows), **maps}


def translation_sections(rows: Sequence[ResultRow], figures: dict[str, Figure]) -> list[tuple[str, str]]:
    """Return the sections of the report between the table of results and the learning curves."""
    drawn = page.picture(figures["lengths"], "Quality by source length", 1, wide=True)
    by_length = f"<figure>{page.scrolled(drawn, 'Quality by source length')}</figure>"
    published = page.table(
        "BLEU on different texts cannot be compared; the order of the families can",
        PUBLISHED_HEADINGS,
        with_published(rows),
    )
    return [
        ("Quality by source length", by_length + _lengths_table(rows)),
        ("Attention", _maps_html(figures, rows)),
        ("Published models and this race", published),
    ]


def lengths_markdown(rows: Sequence[ResultRow]) -> str:
    """Return exact match in percent by source length in Markdown: a row per contender, a column per group."""
    groups = _groups(rows)
    headings = ("source words", *map(word_range, groups))
    exact = [
        [row.name, *(f"{_group_mean(row, place, lambda group: group.exact):.1f}" for place in range(len(groups)))]
        for row in rows
    ]
    return markdown_table(headings, exact)


def word_range(group: LengthGroup) -> str:
    """Return the range of source lengths of a group, such as "7–9"."""
    return f"{group.min_words}–{group.max_words}" if group.max_words > group.min_words else str(group.min_words)


def with_published(rows: Sequence[ResultRow]) -> list[list[str]]:
    """Return published models, then the contenders: model, text, BLEU, training FLOPs."""
    published = [
        [name, "WMT14 en-de", f"{score:.1f}", "–" if flops is None else f"{flops:.1e}"]
        for name, score, flops in PUBLISHED
    ]
    bleu, flops = COLUMNS[0], next(column for column in COLUMNS if column.heading == "training FLOPs")
    return [*published, *([row.name, "this race", row.cell(bleu), row.cell(flops)] for row in rows)]


def _translation(result: object) -> TranslationResult:
    assert isinstance(result, TranslationResult), "all contenders of a race have one task"
    return result


def _groups(rows: Sequence[ResultRow]) -> list[LengthGroup]:
    """Return the length groups, which are the same for all contenders, since they translate the same text."""
    return _translation(rows[0].first).groups


def _group_mean(row: ResultRow, place: int, value: Callable[[LengthGroup], float]) -> float:
    """Return the mean of a value of one length group over the seeds."""
    mean = row.mean(lambda result: value(_translation(result).groups[place]))
    assert mean is not None, "a length group has all scores"
    return mean


def _lengths_figure(rows: Sequence[ResultRow]) -> Figure:
    """Draw exact match by length group, or BLEU where hardly any sentence matches exactly, as in natural text."""
    groups = _groups(rows)
    use_exact = max(result.scores["exact match"] for row in rows for result in row.results) >= MIN_EXACT_MATCH
    systems = {
        row.name: [
            _group_mean(row, place, lambda group: group.exact if use_exact else group.bleu)
            for place in range(len(groups))
        ]
        for row in rows
    }
    label = "exact match (%)" if use_exact else "BLEU"
    return lengths([word_range(group) for group in groups], [group.mean_words for group in groups], systems, label)


def _lengths_table(rows: Sequence[ResultRow]) -> str:
    """Return exact match and BLEU by length group as a table."""
    headings = ("source words", "sentences", *(row.name for row in rows))
    cells = [
        [
            word_range(group),
            f"{group.sentences:,}",
            *(
                f"{_group_mean(row, place, lambda group: group.exact):.1f} / "
                f"{_group_mean(row, place, lambda group: group.bleu):.1f}"
                for row in rows
            ),
        ]
        for place, group in enumerate(_groups(rows))
    ]
    return page.table("Exact match in percent, and BLEU, by source length", headings, cells)


def _attention_figure(attention: SentenceAttention, title: str) -> Figure:
    """Draw the attention of a contender, with gold links framed."""
    gold = None
    if attention.possible:
        sure, possible = (
            frozenset((link[0], link[1]) for link in links) for links in (attention.sure, attention.possible)
        )
        gold = Alignment(sure, possible)
    return alignment(np.asarray(attention.weights), attention.source, attention.target, gold, title=title)


def _maps_html(figures: dict[str, Figure], rows: Sequence[ResultRow]) -> str:
    """Return the attention maps side by side, and the names of contenders without attention."""
    names = [row.name for row in rows if f"map-{row.name}" in figures]
    drawn = "".join(
        f"<figure>{page.picture(figures[f'map-{name}'], f'Attention of {name}', 10 + number)}</figure>"
        for number, name in enumerate(names)
    )
    without = [row.name for row in rows if row.name not in names]
    note = "Without attention to the source: " + ", ".join(without) + "." if without else ""
    return f'<div class="maps">{drawn}</div><p class="soft">{escape(note)}</p>'
