"""Results of a race in, its report out: `race.html`, `race.png`, `race.json`, and each figure as SVG."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard.files import write_whole
from regard.plot import Panel, Quality, Series, alignment, curves, lengths, save
from regard.plot.style import INK
from regard.race.budget import Budget
from regard.race.judging import Map, Result
from regard.race.picture import sheet
from regard.race.summary import HEADS, Row, beside_published, best, by_length, markdown, rows_of, span
from regard.score import Alignment
from regard.train import page

HTML, PNG, JSON, TABLE = "race.html", "race.png", "race.json", "race.md"
FIGURES = "figures"
PUBLISHED_HEADS = ("model", "text", "BLEU", "training FLOPs")
ABREAST = 3  # maps in a row of the picture
ENOUGH = 10.0  # percent of sentences right to the letter, from which on they are what is drawn


def write_race(folder: Path, budget: Budget, results: Sequence[Result]) -> tuple[Path, ...]:
    """Write the report of a race into its folder."""
    rows = rows_of(results)
    learning, falling, maps = _learning(rows), _by_length(rows), _maps(rows)
    figures = {"lengths": falling, "learning": learning, **{f"map-{name}": each for name, each in maps.items()}}
    for name, figure in figures.items():
        save(figure, folder / FIGURES / f"{name}.svg")
    sections = [
        ("Results", page.table(f"Each spent {budget}; the best BLEU is bold.", HEADS, _cells(rows), best(rows))),
        ("Quality against length", _figure(falling, "Quality by length of the source", 1) + _lengths_table(rows)),
        ("Learning", _figure(learning, "Validation loss over target tokens and over time", 2)),
        ("Where they look", _shown(maps, rows)),
        ("The lectures' table, with our rows", page.table(
            "BLEU of different texts cannot be compared; the order of the families can", PUBLISHED_HEADS,
            beside_published(rows))),
        ("Facts", page.facts(_facts(rows, budget))),
        ("Recipes", "".join(page.details(row.name, f"<pre>{escape(row.first.recipe)}</pre>") for row in rows)),
    ]  # fmt: skip
    lead = (
        '<p class="soft">The same text and the same budget for every family; what differs is how they look at it.</p>'
    )
    html = folder / HTML
    write_whole(html, page.page("The race", lead, sections).encode())
    pairs = list(maps.values())
    rest = [pairs[at : at + ABREAST] for at in range(0, len(pairs), ABREAST)]
    write_whole(folder / PNG, sheet([[falling, learning], *rest]))
    told = {"budget": asdict(budget), "results": [asdict(each) for each in results]}
    write_whole(folder / JSON, json.dumps(told, ensure_ascii=False, indent=1).encode())
    write_whole(folder / TABLE, f"{markdown(rows)}\n\n{by_length(rows)}\n".encode())
    return html, folder / PNG, folder / JSON, folder / TABLE


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    return [row.cells() for row in rows]


def _by_length(rows: Sequence[Row]) -> Figure:
    """Quality of every contender in each group; groups are the same for all, since the text is.

    Whole sentences right to the letter say most; where hardly any are, as in free text, BLEU does.
    """
    groups = rows[0].first.groups
    often = max(row.mean("exact match") for row in rows) >= ENOUGH
    score, name = ("exact", "exact match (%)") if often else ("bleu", "BLEU")

    def quality(row: Row, at: int) -> float:
        return _mean([getattr(each.groups[at], score) for each in row.results])

    systems = [Quality(row.name, [quality(row, at) for at in range(len(groups))]) for row in rows]
    return lengths([span(each.least, each.most) for each in groups], [each.mean for each in groups], systems, name)


def _lengths_table(rows: Sequence[Row]) -> str:
    """The same as numbers, with BLEU beside."""
    groups = rows[0].first.groups
    heads = ("source words", "sentences", *(row.name for row in rows))
    cells = [
        [
            span(group.least, group.most),
            f"{group.sentences:,}",
            *(_both([each.groups[at] for each in row.results]) for row in rows),
        ]
        for at, group in enumerate(groups)
    ]
    return page.table("Exact match in percent, and BLEU, by length of the source", heads, cells)


def _both(groups: Sequence[object]) -> str:
    exact, overlap = (_mean([getattr(each, name) for each in groups]) for name in ("exact", "bleu"))
    return f"{exact:.1f} / {overlap:.1f}"


def _learning(rows: Sequence[Row]) -> Figure:
    """Validation loss over tokens and over time."""
    panels = [
        Panel(
            "validation loss (nats a token)",
            [
                Series(row.name, [getattr(each, unit) for each in row.first.points], [p.loss for p in row.first.points])
                for row in rows
            ],
            below=below,
            logarithmic=True,
        )
        for unit, below in (("tokens", "target tokens"), ("seconds", "seconds"))
    ]
    return _with_one_legend(curves(panels, columns=2))


def _with_one_legend(figure: Figure) -> Figure:
    """The figure with one legend below for all its panels, where it hides no line."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is not None:
            legend.remove()
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.6)
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False, labelcolor=INK)
    return figure


def _maps(rows: Sequence[Row]) -> dict[str, Figure]:
    return {row.name: draw_map(row.first.map, row.name) for row in rows if row.first.map is not None}


def draw_map(seen: Map, title: str) -> Figure:
    """Where one contender looks, gold links framed."""
    gold = Alignment(frozenset(map(_pair, seen.sure)), frozenset(map(_pair, seen.possible))) if seen.possible else None
    return alignment(np.asarray(seen.weights), seen.source, seen.target, gold, title=title)


def _pair(link: Sequence[int]) -> tuple[int, int]:
    return link[0], link[1]


def _shown(maps: dict[str, Figure], rows: Sequence[Row]) -> str:
    """The maps side by side, and who has none."""
    blind = [row.name for row in rows if row.first.map is None]
    shown = "".join(
        f"<figure>{page.picture(figure, f'Attention of {name}', 10 + number)}</figure>"
        for number, (name, figure) in enumerate(maps.items())
    )
    words = "Their decoders do not look at the source by weights: " + ", ".join(blind) + "." if blind else ""
    return f'<div class="maps">{shown}</div><p class="soft">{escape(words)}</p>'


def _figure(figure: Figure, meaning: str, number: int) -> str:
    return f"<figure>{page.scrolled(page.picture(figure, meaning, number, wide=True), meaning)}</figure>"


def _facts(rows: Sequence[Row], budget: Budget) -> list[tuple[str, str]]:
    first = rows[0].first
    return [
        ("budget", str(budget)),
        ("device", first.device),
        ("seeds", str(max(len(row.results) for row in rows))),
        *((f"signature of {name}", text) for name, text in first.signatures.items()),
        ("memory", "of the device, or on a CPU of the whole process, torch and its libraries with it"),
        ("alignment error rate", "links read where they are best on validation text; lower is better"),
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
