"""Figures of a race in rows, as one picture: every row as wide as the sheet, so that small figures are not lost."""

import io
from collections.abc import Sequence

from matplotlib.figure import Figure
from PIL import Image

from regard.plot import render

WIDTH, GAP = 2200, 24  # pixels


def sheet(rows: Sequence[Sequence[Figure]], width: int = WIDTH) -> bytes:
    """Rows of figures on white as PNG; the figures of a row are equally high, and a row fills the sheet."""
    drawn = [[_drawn(each) for each in row] for row in rows if row]
    most = max(len(row) for row in drawn[1:]) if drawn[1:] else 1
    lines = [_line(row, width, most if number else len(row)) for number, row in enumerate(drawn)]
    whole = Image.new("RGB", (width, GAP + sum(line[0].height + GAP for line in lines)), "white")
    y = GAP
    for line in lines:
        x = GAP
        for each in line:
            whole.paste(each, (x, y))
            x += each.width + GAP
        y += line[0].height + GAP
    stream = io.BytesIO()
    whole.save(stream, "PNG", optimize=True)  # a palette would be smaller, and turn a thin line's colour into grey
    return stream.getvalue()


def _drawn(figure: Figure) -> Image.Image:
    return Image.open(io.BytesIO(render(figure, "png", dpi=170))).convert("RGB")


def _line(row: Sequence[Image.Image], width: int, places: int) -> list[Image.Image]:
    """Pictures of one height which fill the width; fewer than there are places leave the last ones empty."""
    shapes = [each.width / each.height for each in row]
    room = (width - GAP * (places + 1)) * len(row) / places
    height = int(room / sum(shapes))
    return [
        each.resize((max(1, int(height * shape)), height), Image.Resampling.LANCZOS)
        for each, shape in zip(row, shapes, strict=True)
    ]
