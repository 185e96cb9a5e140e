"""All layers and heads of one attention as a sheet of small maps, one colour scale for all."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.alignment import plain
from regard.plot.lettering import families, right_to_left

LEGIBLE = 3.5  # points below which words are left out


def heads(
    weights_LHTS: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str = "",
    tile: float = 1.5,
) -> Figure:
    """A row of maps for each layer, a map for each head; `tile` is the width of one in inches.

    `source` are the words looked at, `target` those looking; they stand at the outer maps, where they can be read.
    """
    shape = np.shape(weights_LHTS)
    if len(shape) != 4:
        raise ValueError(f"weights_LHTS has the shape {shape}; heads are drawn from (layers, heads, target, source)")
    layers, count = shape[:2]
    weights = style.matrix(weights_LHTS, (layers, count, len(target), len(source)), "weights_LHTS")
    fonts = families([*source, *target, title])
    high = tile * min(2.0, max(0.5, len(target) / len(source)))
    size = min(7.0, tile * 72 / len(source) * 0.75, high * 72 / len(target) * 0.75)
    margin = 0.07 * max(map(len, [*source, *target])) if size >= LEGIBLE else 0.2
    figure = style.sheet(tile * count + margin + 1.2, high * layers + margin + 0.6)
    grid = figure.subplots(layers, count, squeeze=False, sharex=True, sharey=True)
    norm = style.weight_range(weights)
    for layer in range(layers):
        for head in range(count):
            axes: Axes = grid[layer, head]
            mesh = style.cells(axes, weights[layer, head], norm)
            axes.set_xticks([])
            axes.set_yticks([])
            if layer == 0:
                axes.set_title(f"head {head + 1}", fontsize=8, color=style.INK)
            if head == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=8, color=style.INK)
    first: Axes = grid[0, 0]
    first.set_ylim(len(target) - 0.5, -0.5)  # the axes are shared, so the flips of all maps met here
    ends = -0.5, len(source) - 0.5
    first.set_xlim(*(reversed(ends) if right_to_left(source) else ends))
    if size >= LEGIBLE:
        _label_outer(grid, source, target, size, fonts)
    style.colour_bar(figure, mesh, grid, "attention weight")
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def _label_outer(
    grid: "np.ndarray[tuple[int, int], np.dtype[np.object_]]",
    source: Sequence[str],
    target: Sequence[str],
    size: float,
    fonts: list[str],
) -> None:
    """Words below the lowest maps and beside the leftmost."""
    for axes in grid[-1]:
        words = [plain(word) for word in source]
        axes.set_xticks(range(len(words)), labels=words, rotation=90, fontsize=size, fontfamily=fonts)
    for axes in grid[:, 0]:
        words = [plain(word) for word in target]
        axes.set_yticks(range(len(words)), labels=words, fontsize=size, fontfamily=fonts)
