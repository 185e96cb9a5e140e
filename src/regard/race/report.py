"""Write the report of a race: `race.html`, `race.png`, `race.json`, `race.md`, and each figure as SVG."""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from regard.files import write_atomically
from regard.plot import CurvePanel, Series, curves, render, save
from regard.plot.style import INK
from regard.race import chat_report, translation_report
from regard.race.chat import ChatResult
from regard.race.contenders import Budget
from regard.race.result import RaceResult
from regard.race.summary import (
    Column,
    ResultRow,
    best_row,
    result_rows,
    results_markdown,
    table_cells,
    table_headings,
)
from regard.train.report import page

HTML, PNG, JSON, TABLES = "race.html", "race.png", "race.json", "race.md"
FIGURES = "figures"
FIGURES_PER_ROW = 3  # smaller figures in a row of the image
SHEET_WIDTH, SHEET_GAP = 2200, 24  # pixels


def columns_of(rows: Sequence[ResultRow]) -> tuple[Column, ...]:
    """Return the columns of the table of results, which depend on the task."""
    return chat_report.COLUMNS if isinstance(rows[0].first, ChatResult) else translation_report.COLUMNS


def write_race(folder: Path, budget: Budget, results: Sequence[RaceResult]) -> tuple[Path, Path, Path, Path]:
    """Write the report of a race into its folder, and return the paths of HTML, PNG, JSON and Markdown."""
    rows, learning = result_rows(results), _learning_figure(result_rows(results))
    columns = columns_of(rows)
    tables = results_markdown(rows, columns)
    if isinstance(rows[0].first, ChatResult):
        figures = chat_report.chat_figures(rows)
        sections = chat_report.chat_sections(rows, figures)
    else:
        figures = translation_report.translation_figures(rows)
        sections = translation_report.translation_sections(rows, figures)
        tables += f"\n\n{translation_report.lengths_markdown(rows)}"
    for name, figure in {**figures, "learning": learning}.items():
        save(figure, folder / FIGURES / f"{name}.svg")
    first, best = columns[0], best_row(rows, columns[0])
    caption = f"Budget of each: {budget}. The best value of {first.heading} is bold."
    drawn = page.picture(learning, "Validation loss over target tokens and over time", 2, wide=True)
    sections = [
        ("Results", page.table(caption, table_headings(columns), table_cells(rows, columns), best)),
        *sections,
        ("Learning curves", f"<figure>{page.scrolled(drawn, 'Validation loss')}</figure>"),
        ("Details", page.facts(_facts(rows, budget))),
        ("Recipes", "".join(page.details(row.name, f"<pre>{escape(row.first.recipe)}</pre>") for row in rows)),
    ]
    lead = '<p class="soft">All contenders have the same text and the same budget.</p>'
    paths = folder / HTML, folder / PNG, folder / JSON, folder / TABLES
    write_atomically(paths[0], page.page("The race", lead, sections).encode())
    wide, *small = figures.values()
    small_rows = [small[start : start + FIGURES_PER_ROW] for start in range(0, len(small), FIGURES_PER_ROW)]
    write_atomically(paths[1], sheet([[wide, learning], *small_rows]))
    numbers = {"budget": asdict(budget), "results": [asdict(result) for result in results]}
    write_atomically(paths[2], json.dumps(numbers, ensure_ascii=False, indent=1).encode())
    write_atomically(paths[3], f"{tables}\n".encode())
    return paths


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
                if row.first.points
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


def _facts(rows: Sequence[ResultRow], budget: Budget) -> list[tuple[str, str]]:
    first = rows[0].first
    explained = chat_report.FACTS if isinstance(first, ChatResult) else translation_report.FACTS
    signatures = {name: text for row in rows for name, text in row.first.signatures.items()}
    return [
        ("budget", str(budget)),
        ("device", first.device),
        ("seeds", str(max(len(row.results) for row in rows))),
        *((f"signature of {name}", text) for name, text in signatures.items()),
        ("memory", "peak of the GPU; on a CPU, of the whole process, including torch and its libraries"),
        *explained,
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
