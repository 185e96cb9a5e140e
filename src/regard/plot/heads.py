"""Layers and heads of one attention as a sheet of small maps, one colour scale for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.alignment import plain
from regard.plot.lettering import families, right_to_left

LEGIBLE = 4.5  # points below which words are not read, and numbers stand in for them
TILE = 1.5  # inches of a map that needs no more for its words
WIDEST = 16.0  # inches up to which maps grow for the sake of their words


@dataclass(frozen=True)
class Numbers:
    """Which layers and heads the maps are of, counted from 0; on the sheet they count from 1."""

    layers: Sequence[int]
    heads: Sequence[int]


def heads(
    weights_LHTS: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    numbers: Numbers | None = None,
    *,
    title: str = "",
    scale: style.Scale = "linear",
) -> Figure:
    """A row of maps for each layer, a map for each head.

    `source` are the words looked at, `target` those looking; they stand at the outer maps, where they can be read.
    `numbers` says which layers and heads these are, where they are not all there are.
    """
    shape = np.shape(weights_LHTS)
    if len(shape) != 4:
        raise ValueError(f"weights_LHTS has the shape {shape}; heads are drawn from (layers, heads, target, source)")
    layers, count = shape[:2]
    weights = style.matrix(weights_LHTS, (layers, count, len(target), len(source)), "weights_LHTS")
    numbers = numbers or Numbers(range(layers), range(count))
    fonts = families([*source, *target, title])
    tile = _tile(len(source), len(target), count)
    high = tile * min(2.0, max(0.5, len(target) / len(source)))
    size = min(7.0, tile * 72 / len(source) * 0.75, high * 72 / len(target) * 0.75)
    margin = 0.07 * max(map(len, [*source, *target])) if size >= LEGIBLE else 0.2
    figure = style.sheet(tile * count + margin + 1.2, high * layers + margin + 0.6)
    grid = figure.subplots(layers, count, squeeze=False, sharex=True, sharey=True)
    norm = style.weight_range(weights, scale)
    for layer, head in product(range(layers), range(count)):
        axes: Axes = grid[layer, head]
        mesh = style.cells(axes, weights[layer, head], norm)
        if layer == 0:
            axes.set_title(f"head {numbers.heads[head] + 1}", fontsize=8, color=style.INK)
        if head == 0:
            axes.set_ylabel(f"layer {numbers.layers[layer] + 1}", fontsize=8, color=style.INK)
    first: Axes = grid[0, 0]
    first.set_ylim(len(target) - 0.5, -0.5)  # the axes are shared, so the flips of all maps met here
    ends = -0.5, len(source) - 0.5
    first.set_xlim(*(reversed(ends) if right_to_left(source) else ends))
    _label_outer(grid, source, target, size, fonts)
    style.colour_bar(figure, mesh, grid, "attention weight")
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def _tile(source: int, target: int, count: int) -> float:
    """Inches of one map: as many as its words need, while the sheet is not too wide."""
    needed = LEGIBLE / 72 / 0.75 * max(source, target / 2)  # a map is at most twice as high as wide
    return max(TILE, min(needed + 0.01, WIDEST / count))


def _label_outer(
    grid: "np.ndarray[tuple[int, int], np.dtype[np.object_]]",
    source: Sequence[str],
    target: Sequence[str],
    size: float,
    fonts: list[str],
) -> None:
    """Words below the lowest maps and beside the leftmost; their places in the sentence where words cannot be read."""
    legible = size >= LEGIBLE
    for axes in grid[-1]:
        places, words = _labels(source, legible)
        axes.set_xticks(places, labels=words, rotation=90, fontsize=size if legible else 6, fontfamily=fonts)
    for axes in grid[:, 0]:
        places, words = _labels(target, legible)
        axes.set_yticks(places, labels=words, fontsize=size if legible else 6, fontfamily=fonts)


def _labels(words: Sequence[str], legible: bool) -> tuple[list[int], list[str]]:
    """Where labels stand and what they say."""
    if legible:
        return list(range(len(words))), [plain(word) for word in words]
    step = next(each for each in (1, 2, 5, 10, 20, 50, 100, 200, len(words)) if len(words) / each <= 8)
    places = list(range(step - 1, len(words), step))
    return places, [str(place + 1) for place in places]
