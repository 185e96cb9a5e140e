"""Attention as lines between two sentences: the larger a weight, the thicker its line."""

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
from regard.plot.fonts import escape_math, font_families, right_to_left
from regard.plot.maps import GoldLinks

# All sizes are in points.
FONT_SIZE = 11.0
WORD_GAP = 9.0
SENTENCE_GAP = 70.0  # between source and target if sentences are horizontal
ROW = 15.0  # of a word if sentences are vertical
COLUMN_GAP = 150.0  # between source and target if sentences are vertical
MAX_LENGTH = 11.0 * 72  # longer sentences do not fit a page's width and are vertical
LINE_WIDTH = 4.0  # of a line of weight 1


@dataclass(frozen=True)
class _Word:
    """A word, its position, and the point where its lines end."""

    text: str
    x: float
    y: float
    anchor: tuple[float, float]
    side: Literal["left", "center", "right"] = "center"


@dataclass(frozen=True)
class _PageLayout:
    """The words of both sentences, and the limits of the drawing."""

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
    gold: GoldLinks | None = None,
    *,
    threshold: float = 0.1,
    title: str = "",
) -> Figure:
    """Draw two sentences with a line for every weight of at least `threshold`.

    A sentence in a right-to-left script runs from right to left. Sentences too long for a page's width run downwards,
    one word per row. If `gold` is given, lines without a gold link are dashed and orange.
    """
    weights = style.check_matrix(weights_TS, (len(target), len(source)), "weights_TS (target words, source words)")
    fonts = font_families([*source, *target, title])
    widths = _word_widths(source, fonts), _word_widths(target, fonts)
    length = max(sum(words) + WORD_GAP * (len(words) - 1) for words in widths)
    page = _horizontal(source, target, widths, length) if length <= MAX_LENGTH else _vertical(source, target, widths)
    figure = style.new_figure(
        (page.right - page.left + 12) / 72, (page.high - page.low + FONT_SIZE + 26 + 16 * bool(title)) / 72
    )
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(page.left, page.right)
    axes.set_ylim(page.low, page.high)
    for word in (*page.source, *page.target):
        axes.text(
            word.x, word.y, escape_math(word.text), ha=word.side, va="baseline",
            fontsize=FONT_SIZE, fontfamily=fonts, color=style.INK,
        )  # fmt: skip
    _draw_lines(axes, weights, page, gold, threshold)
    figure.legend(
        handles=_legend(weights, gold, threshold),
        loc="outside lower center", ncols=4, fontsize=7.5, frameon=False, labelcolor=style.INK,
    )  # fmt: skip
    style.add_title(figure, title, fonts)
    return figure


def _horizontal(
    source: Sequence[str], target: Sequence[str], widths: tuple[list[float], list[float]], length: float
) -> _PageLayout:
    """Place the source above the target, both centred and in reading direction."""
    above = [
        _Word(word, x, SENTENCE_GAP + 0.4 * FONT_SIZE, (x, SENTENCE_GAP - 2))
        for word, x in zip(source, _word_centres(source, widths[0], length), strict=True)
    ]
    below = [
        _Word(word, x, -FONT_SIZE, (x, 2))
        for word, x in zip(target, _word_centres(target, widths[1], length), strict=True)
    ]
    return _PageLayout(above, below, -6, length + 6, -FONT_SIZE * 1.7, SENTENCE_GAP + FONT_SIZE * 1.7)


def _vertical(source: Sequence[str], target: Sequence[str], widths: tuple[list[float], list[float]]) -> _PageLayout:
    """Place the source on the left and the target on the right, one word per row, both equally high."""
    bottom = -ROW * (max(len(source), len(target)) - 1)

    def rows(words: Sequence[str]) -> list[float]:
        return [bottom * index / max(1, len(words) - 1) for index in range(len(words))]

    lift = 0.35 * FONT_SIZE  # a line ends at half the height of a letter
    left = [_Word(word, -4, y - lift, (0, y), "right") for word, y in zip(source, rows(source), strict=True)]
    right = [
        _Word(word, COLUMN_GAP + 4, y - lift, (COLUMN_GAP, y), "left")
        for word, y in zip(target, rows(target), strict=True)
    ]
    limits = -max(widths[0]) - 10, COLUMN_GAP + max(widths[1]) + 10
    return _PageLayout(left, right, *limits, bottom - FONT_SIZE, FONT_SIZE)


def _draw_lines(
    axes: Axes, weights: NDArray[np.float64], page: _PageLayout, gold: GoldLinks | None, threshold: float
) -> None:
    """Draw the lines, strong ones last so that they are on top."""
    for flat in np.argsort(weights, axis=None):
        target, source = divmod(int(flat), weights.shape[1])
        weight = float(weights[target, source])
        if weight < threshold:
            continue
        correct = gold is None or (source, target) in gold.possible
        start, end = page.source[source].anchor, page.target[target].anchor
        axes.plot(
            [start[0], end[0]],
            [start[1], end[1]],
            color=style.COLOURS[0] if correct else style.ACCENT,
            linestyle="-" if correct else (0, (3, 1.5)),
            linewidth=max(0.4, LINE_WIDTH * weight),
            alpha=0.35 + 0.6 * min(1.0, max(0.0, weight)),
            solid_capstyle="round",
        )


def _legend(weights: NDArray[np.float64], gold: GoldLinks | None, threshold: float) -> list[Line2D]:
    """Explain the widths of the strongest and the weakest line, and the dashes."""
    strongest = float(weights.max())
    shown = [strongest, threshold] if strongest > threshold else [threshold]
    handles = [
        Line2D([], [], color=style.COLOURS[0], linewidth=max(0.4, LINE_WIDTH * weight), label=f"weight {weight:.2f}")
        for weight in shown
    ]
    if gold is not None:
        handles.append(Line2D([], [], color=style.ACCENT, linestyle="--", linewidth=1.5, label="no gold link"))
    return handles


def _word_widths(words: Sequence[str], fonts: list[str]) -> list[float]:
    """Measure the width of each word as it is drawn."""
    figure = Figure(dpi=72)
    texts: list[Text] = [figure.text(0, 0, escape_math(word), fontsize=FONT_SIZE, fontfamily=fonts) for word in words]
    return [max(FONT_SIZE * 0.5, text.get_window_extent().width) for text in texts]


def _word_centres(words: Sequence[str], widths: list[float], length: float) -> list[float]:
    """Return the centre of each word of a centred sentence in reading direction."""
    x = (length - sum(widths) - WORD_GAP * (len(widths) - 1)) / 2
    centres = []
    for width in widths:
        centres.append(x + width / 2)
        x += width + WORD_GAP
    return [length - centre for centre in centres] if right_to_left(words) else centres
