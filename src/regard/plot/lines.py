"""Attention as lines between two sentences: source above, target below, the stronger the thicker."""

from collections.abc import Sequence

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
WIDEST = 4.0  # points of a line of weight 1


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

    A sentence in a right-to-left script runs from right to left. Where `gold` is given, lines that are no link of it
    are dashed and orange.
    """
    weights = style.matrix(weights_TS, (len(target), len(source)), "weights_TS (target words, source words)")
    fonts = families([*source, *target, title])
    widths = [_widths(words, fonts) for words in (source, target)]
    length = max(sum(each) + GAP * (len(each) - 1) for each in widths)
    places = [_places(words, width, length) for words, width in zip((source, target), widths, strict=True)]
    figure = style.sheet((length + 24) / 72, (RISE + 4 * SIZE + 26 + 16 * bool(title)) / 72)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-6, length + 6)
    axes.set_ylim(-SIZE * 1.7, RISE + SIZE * 1.7)
    for words, xs, y in ((source, places[0], RISE + 0.4 * SIZE), (target, places[1], -SIZE)):
        for word, x in zip(words, xs, strict=True):
            axes.text(x, y, plain(word), ha="center", va="baseline", fontsize=SIZE, fontfamily=fonts, color=style.INK)
    _connect(axes, weights, places, gold, threshold)
    figure.legend(
        handles=_legend(weights, gold, threshold),
        loc="outside lower center", ncols=4, fontsize=7.5, frameon=False, labelcolor=style.INK,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def _connect(
    axes: Axes, weights: NDArray[np.float64], places: list[list[float]], gold: Links | None, threshold: float
) -> None:
    """The lines, weak ones first so that strong ones lie on top."""
    for flat in np.argsort(weights, axis=None):
        at, to = divmod(int(flat), weights.shape[1])
        weight = float(weights[at, to])
        if weight < threshold:
            continue
        known = gold is None or (to, at) in gold.possible
        axes.plot(
            [places[0][to], places[1][at]],
            [RISE - 2, 2],
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
