"""Write the report of a race: `race.html`, `race.png`, `race.json`, `race.md`, and each figure as SVG."""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from regard.files import write_atomically
from regard.plot import CurvePanel, Series, alignment, curves, lengths, render, save
from regard.plot.style import INK
from regard.race.contenders import Budget
from regard.race.evaluation import RaceResult, SentenceAttention
from regard.race.summary import (
    HEADINGS,
    ResultRow,
    best_row,
    lengths_markdown,
    result_rows,
    results_markdown,
    with_published,
    word_range,
)
from regard.score import Alignment
from regard.train.report import page

HTML, PNG, JSON, TABLES = "race.html", "race.png", "race.json", "race.md"
FIGURES = "figures"
PUBLISHED_HEADINGS = ("model", "text", "BLEU", "training FLOPs")
MAPS_PER_ROW = 3  # attention maps in a row of the image
MIN_EXACT_MATCH = 10.0  # percent; below this of the best contender, the figure by length shows BLEU instead
SHEET_WIDTH, SHEET_GAP = 2200, 24  # pixels


def write_race(folder: Path, budget: Budget, results: Sequence[RaceResult]) -> tuple[Path, Path, Path, Path]:
    """Write the report of a race into its folder, and return the paths of HTML, PNG, JSON and Markdown."""
    rows = result_rows(results)
    learning, by_length = _learning_figure(rows), _lengths_figure(rows)
    maps = {row.name: _attention_figure(row.first.attention, row.name) for row in rows if row.first.attention}
    figures = {"lengths": by_length, "learning": learning, **{f"map-{name}": figure for name, figure in maps.items()}}
    for name, figure in figures.items():
        save(figure, folder / FIGURES / f"{name}.svg")
    cells = [row.cells() for row in rows]
    sections = [
        ("Results", page.table(f"Budget of each: {budget}. The best BLEU is bold.", HEADINGS, cells, best_row(rows))),
        ("Quality by source length", _wide(by_length, "Quality by source length", 1) + _lengths_table(rows)),
        ("Learning curves", _wide(learning, "Validation loss over target tokens and over time", 2)),
        ("Attention", _maps_html(maps, rows)),
        ("Published models and this race", page.table(
            "BLEU on different texts cannot be compared; the order of the families can", PUBLISHED_HEADINGS,
            with_published(rows))),
        ("Details", page.facts(_facts(rows, budget))),
        ("Recipes", "".join(page.details(row.name, f"<pre>{escape(row.first.recipe)}</pre>") for row in rows)),
    ]  # fmt: skip
    lead = '<p class="soft">All contenders have the same text and the same budget.</p>'
    paths = folder / HTML, folder / PNG, folder / JSON, folder / TABLES
    write_atomically(paths[0], page.page("The race", lead, sections).encode())
    drawn = list(maps.values())
    map_rows = [drawn[start : start + MAPS_PER_ROW] for start in range(0, len(drawn), MAPS_PER_ROW)]
    write_atomically(paths[1], sheet([[by_length, learning], *map_rows]))
    numbers = {"budget": asdict(budget), "results": [asdict(result) for result in results]}
    write_atomically(paths[2], json.dumps(numbers, ensure_ascii=False, indent=1).encode())
    write_atomically(paths[3], f"{results_markdown(rows)}\n\n{lengths_markdown(rows)}\n".encode())
    return paths


def _lengths_figure(rows: Sequence[ResultRow]) -> Figure:
    """Draw exact match by length group, or BLEU where hardly any sentence matches exactly, as in natural text."""
    groups = rows[0].first.groups  # the same for all contenders, since they translate the same text
    use_exact = max(row.mean_score("exact match") for row in rows) >= MIN_EXACT_MATCH
    systems = {
        row.name: [
            row.group_mean(index, lambda group: group.exact if use_exact else group.bleu)
            for index in range(len(groups))
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
                f"{row.group_mean(index, lambda group: group.exact):.1f} / "
                f"{row.group_mean(index, lambda group: group.bleu):.1f}"
                for row in rows
            ),
        ]
        for index, group in enumerate(rows[0].first.groups)
    ]
    return page.table("Exact match in percent, and BLEU, by source length", headings, cells)


def _learning_figure(rows: Sequence[ResultRow]) -> Figure:
    """Draw the validation loss over tokens and over time, with one legend below both panels."""
    panels = [
        CurvePanel(
            "validation loss (nats per token)",
            [
                Series(
                    row.name,
                    [getattr(point, unit) for point in row.first.points],
                    [point.loss for point in row.first.points],
                )
                for row in rows
            ],
            x_label=x_label,
            logarithmic=True,
        )
        for unit, x_label in (("tokens", "target tokens"), ("seconds", "seconds"))
    ]
    figure = curves(panels, columns=2)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is not None:
            legend.remove()  # a legend inside a panel would cover lines
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.6)
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False, labelcolor=INK)
    return figure


def _attention_figure(attention: SentenceAttention, title: str) -> Figure:
    """Draw the attention of a contender, with gold links framed."""
    gold = None
    if attention.possible:
        sure, possible = (
            frozenset((link[0], link[1]) for link in links) for links in (attention.sure, attention.possible)
        )
        gold = Alignment(sure, possible)
    return alignment(np.asarray(attention.weights), attention.source, attention.target, gold, title=title)


def _maps_html(maps: dict[str, Figure], rows: Sequence[ResultRow]) -> str:
    """Return the attention maps side by side, and the names of contenders without attention."""
    without = [row.name for row in rows if row.first.attention is None]
    drawn = "".join(
        f"<figure>{page.picture(figure, f'Attention of {name}', 10 + number)}</figure>"
        for number, (name, figure) in enumerate(maps.items())
    )
    note = "Without attention to the source: " + ", ".join(without) + "." if without else ""
    return f'<div class="maps">{drawn}</div><p class="soft">{escape(note)}</p>'


def _wide(figure: Figure, description: str, number: int) -> str:
    return f"<figure>{page.scrolled(page.picture(figure, description, number, wide=True), description)}</figure>"


def _facts(rows: Sequence[ResultRow], budget: Budget) -> list[tuple[str, str]]:
    first = rows[0].first
    return [
        ("budget", str(budget)),
        ("device", first.device),
        ("seeds", str(max(len(row.results) for row in rows))),
        *((f"signature of {name}", text) for name, text in first.signatures.items()),
        ("memory", "peak of the GPU; on a CPU, of the whole process, including torch and its libraries"),
        ("alignment error rate", "links are read from the attention that is best on validation text; lower is better"),
    ]


def sheet(rows: Sequence[Sequence[Figure]], width: int = SHEET_WIDTH) -> bytes:
    """Return rows of figures as one PNG on white.

    Figures of a row have the same height. The first row fills the width; figures of the other rows are as large as in
    the row with the most figures.
    """
    drawn = [
        [Image.open(io.BytesIO(render(figure, "png", dpi=170))).convert("RGB") for figure in row] for row in rows if row
    ]
    columns = max(len(row) for row in drawn[1:]) if drawn[1:] else 1
    scaled = [_scaled(row, width, columns if number else len(row)) for number, row in enumerate(drawn)]
    image = Image.new("RGB", (width, SHEET_GAP + sum(row[0].height + SHEET_GAP for row in scaled)), "white")
    y = SHEET_GAP
    for row in scaled:
        x = SHEET_GAP
        for picture in row:
            image.paste(picture, (x, y))
            x += picture.width + SHEET_GAP
        y += row[0].height + SHEET_GAP
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)  # a palette would be smaller, but turns the colour of thin lines into grey
    return stream.getvalue()


def _scaled(row: Sequence[Image.Image], width: int, columns: int) -> list[Image.Image]:
    """Scale images to one height, so that `columns` of them fill the width."""
    ratios = [picture.width / picture.height for picture in row]
    available = (width - SHEET_GAP * (columns + 1)) * len(row) / columns
    height = int(available / sum(ratios))
    return [
        picture.resize((max(1, int(height * ratio)), height), Image.Resampling.LANCZOS)
        for picture, ratio in zip(row, ratios, strict=True)
    ]
