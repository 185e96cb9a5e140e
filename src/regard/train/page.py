"""Pieces of a report in, one HTML page out that needs no other file and no network.

Every text is escaped; every sentence says which way it runs; every picture has words that tell what it shows.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from matplotlib.figure import Figure

from regard.plot import render, right_to_left
from regard.plot.style import INK
from regard.train.events import Sample
from regard.train.wording import marked_words

Cell = str | float
Section = tuple[str, str]
"""A heading and the HTML under it."""


def page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The whole document; `lead` and the sections are HTML already, the title is text."""
    style = files("regard.train").joinpath("report.css").read_text(encoding="utf-8")
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
    """A sentence of any language, running the way its script does."""
    return f'<span dir="{direction(text)}"><bdi>{escape(text)}</bdi></span>'


def direction(text: str) -> str:
    """`rtl` or `ltr`, for a `dir` attribute."""
    return "rtl" if right_to_left(text) else "ltr"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], best: int | None = None) -> str:
    """A table; numbers are aligned at their ends, and row `best` stands out by weight."""
    lines = []
    for number, row in enumerate(rows):
        mark = ' class="best"' if number == best else ""
        lines.append(f"<tr{mark}>{''.join(_cell(value, name) for value, name in zip(row, heads, strict=True))}</tr>")
    top = "".join(f'<th scope="col"{_kind(head)}>{escape(head)}</th>' for head in heads)
    head = f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
    return scrolled(f"<table>{head}<tbody>{''.join(lines)}</tbody></table>", caption)


def _kind(head: str) -> str:
    """Columns of words by name; all others hold numbers."""
    return "" if head in ("set", "score", "detail", "signature", "word", "looked at") else ' class="number"'


def _cell(value: Cell, head: str) -> str:
    named = {"signature": ' class="signature"', "set": ' class="name"', "score": ' class="name"'}
    kind = named.get(head) or _kind(head)
    return f"<td{kind}>{escape(value) if isinstance(value, str) else f'{value:.3f}'}</td>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def scrolled(html: str, name: str) -> str:
    """Something that may be wider than the page, to be moved by mouse or keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{html}</div>'


def details(summary: str, html: str) -> str:
    """Something to open for those who want it."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>"


def picture(figure: Figure, meaning: str, number: int, wide: bool = False) -> str:
    """A figure as part of the page, in the page's own text colour; `number` keeps its names apart from others'."""
    svg = render(figure, "svg", clear=True).decode()
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>f{number}-", svg)
    svg = svg.replace(INK, "currentColor")
    size = ' class="wide"' if wide else ""
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(meaning)}"{size}', 1)


def sample(shown: Sample, history: Sequence[tuple[int, str]]) -> str:
    """A sentence, its reference and our translation with wrong words marked; how it came to be, to open."""
    right = shown.translation.split() == shown.reference.split()
    words = " ".join(
        escape(word) if known else f"<mark>{escape(word)}</mark>"
        for word, known in marked_words(shown.reference, shown.translation)
    )
    verdict = '<span class="right">✓ right</span>' if right else '<span class="wrong">✗ differs</span>'
    way = direction(shown.reference or shown.translation)
    rows = (
        f"<dt>source</dt><dd>{sentence(shown.source)}</dd>"
        f"<dt>reference</dt><dd>{sentence(shown.reference)}</dd>"
        f'<dt>ours</dt><dd><span dir="{way}"><bdi>{words}</bdi></span> {verdict}</dd>'
    )
    before = "".join(f"<dt>step {step:,}</dt><dd>{sentence(text)}</dd>" for step, text in history)
    opened = details("how it came to this", f"<dl>{before}</dl>") if len(history) > 1 else ""
    return f'<div class="sample"><dl>{rows}</dl>{opened}</div>'
