"""Attention as lines between two sentences, the stronger the thicker: source above target, or before it where long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

from regard.plot import style
from regard.plot.alignment import Links, plain
from regard.plot.lettering import families, right_to_left

SIZE = 11.0  # points of the letters
GAP = 9.0  # points between words
RISE = 70.0  # points between the sentences
ROW = 15.0  # points of a word's row where sentences run downwards
REACH = 150.0  # points between such columns
LONGEST = 11.0 * 72  # points beyond which a sentence would not be read on a page, and runs downwards
WIDEST = 4.0  # points of a line of weight 1


@dataclass(frozen=True)
class _Word:
    """A word, where it stands, and where lines touch it."""

    text: str
    x: float
    y: float
    touch: tuple[float, float]
    side: Literal["left", "center", "right"] = "center"


@dataclass(frozen=True)
class _Sheet:
    """Both sentences laid out, and the room they take."""

    source: list[_Word]
    target: list[_Word]
    left: float
    right: float
    low: float
    high: float


def lines(
    weights_TS: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    gold: Links | None = None,
    *,
    threshold: float = 0.1,
    title: str = "",
) -> Figure:
    """Two sentences with a line for every weight of at least `threshold`, as thick as the weight is high.

    A sentence in a right-to-left script runs from right to left. Sentences too long for a page's width run downwards,
    a word a row. Where `gold` is given, lines that are no link of it are dashed and orange.
    """
    weights = style.matrix(weights_TS, (len(target), len(source)), "weights_TS (target words, source words)")
    fonts = families([*source, *target, title])
    widths = _widths(source, fonts), _widths(target, fonts)
    length = max(sum(each) + GAP * (len(each) - 1) for each in widths)
    sheet = _across(source, target, widths, length) if length <= LONGEST else _downwards(source, target, widths)
    figure = style.sheet(
        (sheet.right - sheet.left + 12) / 72, (sheet.high - sheet.low + SIZE + 26 + 16 * bool(title)) / 72
    )
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(sheet.left, sheet.right)
    axes.set_ylim(sheet.low, sheet.high)
    for word in (*sheet.source, *sheet.target):
        axes.text(
            word.x, word.y, plain(word.text), ha=word.side, va="baseline",
            fontsize=SIZE, fontfamily=fonts, color=style.INK,
        )  # fmt: skip
    _connect(axes, weights, sheet, gold, threshold)
    figure.legend(
        handles=_legend(weights, gold, threshold),
        loc="outside lower center", ncols=4, fontsize=7.5, frameon=False, labelcolor=style.INK,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def _across(
    source: Sequence[str], target: Sequence[str], widths: tuple[list[float], list[float]], length: float
) -> _Sheet:
    """The source above, the target below, each in the middle and in the order its script is read."""
    above = [
        _Word(word, x, RISE + 0.4 * SIZE, (x, RISE - 2))
        for word, x in zip(source, _places(source, widths[0], length), strict=True)
    ]
    below = [_Word(word, x, -SIZE, (x, 2)) for word, x in zip(target, _places(target, widths[1], length), strict=True)]
    return _Sheet(above, below, -6, length + 6, -SIZE * 1.7, RISE + SIZE * 1.7)


def _downwards(source: Sequence[str], target: Sequence[str], widths: tuple[list[float], list[float]]) -> _Sheet:
    """The source on the left, the target on the right, a word a row, the shorter one spread as far as the longer."""
    bottom = -ROW * (max(len(source), len(target)) - 1)

    def rows(words: Sequence[str]) -> list[float]:
        return [bottom * at / max(1, len(words) - 1) for at in range(len(words))]

    lift = 0.35 * SIZE  # a line touches a word at half the height of its letters
    left = [_Word(word, -4, y - lift, (0, y), "right") for word, y in zip(source, rows(source), strict=True)]
    right = [_Word(word, REACH + 4, y - lift, (REACH, y), "left") for word, y in zip(target, rows(target), strict=True)]
    return _Sheet(left, right, -max(widths[0]) - 10, REACH + max(widths[1]) + 10, bottom - SIZE, SIZE)


def _connect(axes: Axes, weights: NDArray[np.float64], sheet: _Sheet, gold: Links | None, threshold: float) -> None:
    """The lines, weak ones first so that strong ones lie on top."""
    for flat in np.argsort(weights, axis=None):
        at, to = divmod(int(flat), weights.shape[1])
        weight = float(weights[at, to])
        if weight < threshold:
            continue
        known = gold is None or (to, at) in gold.possible
        start, end = sheet.source[to].touch, sheet.target[at].touch
        axes.plot(
            [start[0], end[0]],
            [start[1], end[1]],
            color=style.COLOURS[0] if known else style.GOLD,
            linestyle="-" if known else (0, (3, 1.5)),
            linewidth=max(0.4, WIDEST * weight),
            alpha=0.35 + 0.6 * min(1.0, max(0.0, weight)),
            solid_capstyle="round",
        )


def _legend(weights: NDArray[np.float64], gold: Links | None, threshold: float) -> list[Line2D]:
    """How thick the strongest and the weakest line are, and what dashes mean."""
    strongest = float(weights.max())
    shown = [strongest, threshold] if strongest > threshold else [threshold]
    handles = [
        Line2D([], [], color=style.COLOURS[0], linewidth=max(0.4, WIDEST * weight), label=f"weight {weight:.2f}")
        for weight in shown
    ]
    if gold is not None:
        handles.append(Line2D([], [], color=style.GOLD, linestyle="--", linewidth=1.5, label="no gold link"))
    return handles


def _widths(words: Sequence[str], fonts: list[str]) -> list[float]:
    """How many points each word takes, measured as it will be drawn."""
    figure = Figure(dpi=72)
    texts: list[Text] = [figure.text(0, 0, plain(word), fontsize=SIZE, fontfamily=fonts) for word in words]
    return [max(SIZE * 0.5, text.get_window_extent().width) for text in texts]


def _places(words: Sequence[str], widths: list[float], length: float) -> list[float]:
    """The middle of each word, the sentence centred, in the order its script is read."""
    x = (length - sum(widths) - GAP * (len(widths) - 1)) / 2
    middles = []
    for width in widths:
        middles.append(x + width / 2)
        x += width + GAP
    return [length - middle for middle in middles] if right_to_left(words) else middles
