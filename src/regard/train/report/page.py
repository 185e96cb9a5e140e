"""Build a self-contained HTML page: no other files, no scripts, no network.

All text is escaped, sentences have a text direction, and figures have a text alternative.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from matplotlib.figure import Figure

from regard.plot import render, right_to_left
from regard.plot.style import INK
from regard.tasks import Sample
from regard.train.report.formatting import compare_words

Cell = str | float
Section = tuple[str, str]
"""A heading and its HTML."""
_TEXT_COLUMNS = ("set", "score", "detail", "signature", "word", "attends to")
_COLUMN_CLASSES = {"signature": "signature", "set": "name", "score": "name"}


def page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """Return the whole document; the title is text, `lead` and the sections are HTML. Empty sections are left out."""
    style = files("regard.train.report").joinpath("report.css").read_text(encoding="utf-8")
    body = "\n".join(
        f'<section aria-labelledby="s{number}">\n<h2 id="s{number}">{escape(heading)}</h2>\n{html}\n</section>'
        for number, (heading, html) in enumerate(sections)
        if html
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{lead}
{body}
</main>
</body>
</html>
"""


def sentence(text: str) -> str:
    """Return a sentence of any language, with its text direction."""
    return f'<span dir="{direction(text)}"><bdi>{escape(text)}</bdi></span>'


def direction(text: str) -> str:
    """Return `rtl` or `ltr`, for a `dir` attribute."""
    return "rtl" if right_to_left(text) else "ltr"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], best: int | None = None) -> str:
    """Return a table; row `best` is bold. Columns hold numbers unless their head says otherwise."""
    lines = []
    for number, row in enumerate(rows):
        mark = ' class="best"' if number == best else ""
        lines.append(f"<tr{mark}>{''.join(_cell(value, head) for value, head in zip(row, heads, strict=True))}</tr>")
    head_cells = "".join(f'<th scope="col"{_alignment(head)}>{escape(head)}</th>' for head in heads)
    top = f"<caption>{escape(caption)}</caption><thead><tr>{head_cells}</tr></thead>"
    return scrolled(f"<table>{top}<tbody>{''.join(lines)}</tbody></table>", caption)


def _alignment(head: str) -> str:
    """Return the attribute that aligns numbers to the right."""
    return "" if head in _TEXT_COLUMNS else ' class="number"'


def _cell(value: Cell, head: str) -> str:
    attribute = f' class="{_COLUMN_CLASSES[head]}"' if head in _COLUMN_CLASSES else _alignment(head)
    return f"<td{attribute}>{escape(value) if isinstance(value, str) else f'{value:.3f}'}</td>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a definition list of names and values."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def scrolled(html: str, name: str) -> str:
    """Return HTML that may be wider than the page, in a box that scrolls by mouse and keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{html}</div>'


def details(summary: str, html: str) -> str:
    """Return HTML that is hidden until the reader opens it."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"


def picture(figure: Figure, meaning: str, number: int, wide: bool = False) -> str:
    """Return a figure as inline SVG, in the text colour of the page.

    Args:
        figure: The figure.
        meaning: Text alternative.
        number: Number of the figure on the page; keeps its SVG ids unique.
        wide: Whether the figure may be wider than the page.
    """
    svg = render(figure, "svg", transparent=True).decode()
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>f{number}-", svg)
    svg = svg.replace(INK, "currentColor")
    size = ' class="wide"' if wide else ""
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(meaning)}"{size}', 1)


def sample(example: Sample, history: Sequence[tuple[int, str]]) -> str:
    """Return an example with its reference and output, wrong words marked, and earlier outputs to open."""
    correct = example.output.split() == example.reference.split()
    words = " ".join(
        escape(word) if matches else f"<mark>{escape(word)}</mark>"
        for word, matches in compare_words(example.reference, example.output)
    )
    verdict = '<span class="right">✓ correct</span>' if correct else '<span class="wrong">✗ differs</span>'
    rows = (
        f"<dt>input</dt><dd>{sentence(example.input)}</dd>"
        f"<dt>reference</dt><dd>{sentence(example.reference)}</dd>"
        f'<dt>output</dt><dd><span dir="{direction(example.reference or example.output)}"><bdi>{words}</bdi></span> '
        f"{verdict}</dd>"
    )
    before = "".join(f"<dt>step {step:,}</dt><dd>{sentence(text)}</dd>" for step, text in history)
    earlier = details("output during training", f"<dl>{before}</dl>") if len(history) > 1 else ""
    return f'<div class="sample"><dl>{rows}</dl>{earlier}</div>'
