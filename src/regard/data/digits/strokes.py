"""The strokes of the digits in several hands, from `strokes.txt`."""

from functools import cache
from importlib.resources import files
from itertools import pairwise

Point = tuple[float, float]
Stroke = tuple[bool, tuple[Point, ...]]
"""Whether a stroke is a smooth curve, and the points that it is drawn through."""

WIDTH, HEIGHT = 68, 100
"""The box of a digit."""
_PIECES = 6  # straight lines that a curve between two points is drawn with


@cache
def hands() -> tuple[tuple[tuple[Stroke, ...], ...], ...]:
    """Return for each hand the strokes of each digit."""
    text = (files("regard.data.digits") / "strokes.txt").read_text(encoding="utf-8")
    sections: list[list[tuple[Stroke, ...]]] = []
    for line in text.splitlines():
        if line.startswith("["):
            sections.append([])
        elif line and not line.startswith("#"):
            digit, _, strokes = line.partition(" ")
            assert int(digit) == len(sections[-1]), "digits are in order"
            sections[-1].append(tuple(_read_stroke(stroke) for stroke in strokes.split(";")))
    return tuple(map(tuple, sections))


def _read_stroke(text: str) -> Stroke:
    sign, *points = text.split()
    return sign == "~", tuple((float(x), float(y)) for x, y in (point.split(",") for point in points))


def lines(stroke: Stroke) -> list[tuple[Point, Point]]:
    """Return the straight lines that a stroke is drawn with: for a curve, those of a Catmull-Rom spline."""
    is_curve, points = stroke
    if not is_curve:
        return list(pairwise(points))
    is_closed = points[0] == points[-1]
    before = points[-2] if is_closed else points[0]
    after = points[1] if is_closed else points[-1]
    corners = (before, *points, after)
    curve = [points[0]]
    for first in range(len(points) - 1):
        a, b, c, d = corners[first : first + 4]
        for piece in range(1, _PIECES + 1):
            t = piece / _PIECES
            curve.append((_spline(a[0], b[0], c[0], d[0], t), _spline(a[1], b[1], c[1], d[1], t)))
    return list(pairwise(curve))


def _spline(a: float, b: float, c: float, d: float, t: float) -> float:
    """Return the value at `t` between `b` and `c` of the Catmull-Rom spline through four values."""
    linear, square, cube = c - a, 2 * a - 5 * b + 4 * c - d, 3 * b - a - 3 * c + d
    return (2 * b + (linear + (square + cube * t) * t) * t) / 2
