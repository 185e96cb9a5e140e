"""Maps: attention of one sentence pair, of all layers and heads, and tables of position vectors."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.fonts import escape_math, font_families, right_to_left

LEGIBLE = 4.5  # points below which words are illegible and numbers replace them
MIN_TILE = 1.5  # inches of a map in a grid, if its words need no more
MAX_GRID = 16.0  # inches up to which maps grow to keep their words legible


class GoldLinks(Protocol):
    """Known links (source word, target word) of a sentence pair, counted from 0."""

    @property
    def sure(self) -> Collection[tuple[int, int]]:
        """Links that every good alignment has."""

    @property
    def possible(self) -> Collection[tuple[int, int]]:
        """Links that a good alignment may have, including the sure ones."""


@dataclass(frozen=True)
class HeadNumbers:
    """The numbers of the layers and heads in a grid, counted from 0; labels count from 1."""

    layers: Sequence[int]
    heads: Sequence[int]


def alignment(
    weights_TS: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    gold: GoldLinks | None = None,
    *,
    title: str = "",
    scale: style.ColourScale = "linear",
    label: str = "attention weight",
) -> Figure:
    """Draw the attention of a target sentence over its source (Bahdanau et al. 2015, figure 3).

    Columns of a right-to-left source run from right to left.

    Example:
        >>> figure = alignment([[0.9, 0.1], [0.2, 0.8]], ["a", "house"], ["ein", "Haus"])

    Args:
        weights_TS: Attention weights, one row per target word.
        source: The source words.
        target: The target words.
        gold: Known links: sure ones get a solid frame, possible ones a dashed frame.
        title: Title of the figure.
        scale: How colours depend on weights.
        label: Label of the colour bar.
    """
    weights = style.check_matrix(weights_TS, (len(target), len(source)), "weights_TS (target words, source words)")
    cell = style.cell_size(*weights.shape)
    fonts = font_families([*source, *target, title])
    longest = max(map(len, source)), max(map(len, target))
    width = cell * len(source) + 0.09 * longest[1] + 1.3
    height = cell * len(target) + 0.08 * longest[0] + 0.4 + 0.25 * bool(title) + 0.3 * bool(gold)
    figure = style.new_figure(max(width, 2.6), max(height, 1.6))
    axes = figure.add_subplot()
    mesh = style.draw_cells(axes, weights, style.weight_norm(weights, scale))
    axes.set_aspect("equal")
    _label_words(axes, source, target, style.font_size(cell), fonts)
    if right_to_left(source):
        axes.invert_xaxis()
    if gold:
        _draw_frames(axes, gold, weights.shape)
        figure.legend(
            handles=_frame_legend(gold), loc="outside lower center", ncols=2, fontsize=8, frameon=False,
            labelcolor=style.INK,
        )  # fmt: skip
    style.add_colour_bar(figure, mesh, axes, label)
    style.add_title(figure, title, fonts)
    return figure


def heads(
    weights_LHTS: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    numbers: HeadNumbers | None = None,
    *,
    title: str = "",
    scale: style.ColourScale = "linear",
) -> Figure:
    """Draw a grid of maps with one colour scale: a row for each layer, a column for each head.

    Only the outer maps are labelled with words. Where they would be illegible, their positions replace them.

    Args:
        weights_LHTS: Attention weights of layers and heads.
        source: The words attended to.
        target: The words that attend.
        numbers: The numbers of these layers and heads in the model; by default all, from the first.
        title: Title of the figure.
        scale: How colours depend on weights.
    """
    shape = np.shape(weights_LHTS)
    if len(shape) != 4:
        raise ValueError(f"weights_LHTS must have shape (layers, heads, target, source), got {shape}")
    layers, count = shape[:2]
    weights = style.check_matrix(weights_LHTS, (layers, count, len(target), len(source)), "weights_LHTS")
    numbers = numbers or HeadNumbers(range(layers), range(count))
    fonts = font_families([*source, *target, title])
    # As wide as legible words need, while the grid is not too wide; a map is at most twice as high as wide.
    needed = LEGIBLE / 72 / 0.75 * max(len(source), len(target) / 2)
    tile = max(MIN_TILE, min(needed + 0.01, MAX_GRID / count))
    height = tile * min(2.0, max(0.5, len(target) / len(source)))
    size = min(7.0, tile * 72 / len(source) * 0.75, height * 72 / len(target) * 0.75)
    margin = 0.07 * max(map(len, [*source, *target])) if size >= LEGIBLE else 0.2
    figure = style.new_figure(tile * count + margin + 1.2, height * layers + margin + 0.6)
    grid = figure.subplots(layers, count, squeeze=False, sharex=True, sharey=True)
    norm = style.weight_norm(weights, scale)
    for layer, head in product(range(layers), range(count)):
        axes: Axes = grid[layer, head]
        mesh = style.draw_cells(axes, weights[layer, head], norm)
        if layer == 0:
            axes.set_title(f"head {numbers.heads[head] + 1}", fontsize=8, color=style.INK)
        if head == 0:
            axes.set_ylabel(f"layer {numbers.layers[layer] + 1}", fontsize=8, color=style.INK)
    first: Axes = grid[0, 0]
    # The axes are shared, so every map inverted the same axis: set its direction once more.
    first.set_ylim(len(target) - 0.5, -0.5)
    limits = -0.5, len(source) - 0.5
    first.set_xlim(*(reversed(limits) if right_to_left(source) else limits))
    label_size = size if size >= LEGIBLE else 6
    for axes in grid[-1]:
        places, words = _tick_labels(source, size)
        axes.set_xticks(places, labels=words, rotation=90, fontsize=label_size, fontfamily=fonts)
    for axes in grid[:, 0]:
        places, words = _tick_labels(target, size)
        axes.set_yticks(places, labels=words, fontsize=label_size, fontfamily=fonts)
    style.add_colour_bar(figure, mesh, grid, "attention weight")
    style.add_title(figure, title, fonts)
    return figure


def positions(table_PD: ArrayLike, *, title: str = "") -> Figure:
    """Draw position vectors (Vaswani et al. 2017, §3.5) as rows, and the cosine similarity of any two positions."""
    table = np.asarray(table_PD, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"table_PD must have one row per position and two dimensions, got shape {table.shape}")
    table = style.check_matrix(table, table.shape, "table_PD")
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    directions = table / np.where(norms > 0, norms, 1.0)
    figure = style.new_figure(9.0, 3.6 + 0.25 * bool(title))
    left, right = figure.subplots(1, 2, width_ratios=[1.6, 1.0])
    bound = float(np.abs(table).max()) or 1.0
    panels = (
        (left, table, bound, "dimension", "value", "vectors"),
        (right, directions @ directions.T, 1.0, "position", "cosine", "similarity of two positions"),
    )
    for axes, values, limit, x_label, unit, name in panels:
        mesh = style.draw_cells(axes, values, Normalize(-limit, limit), style.DIVERGING)
        axes.set_xlabel(x_label, fontsize=8.5, color=style.INK)
        axes.set_ylabel("position", fontsize=8.5, color=style.INK)
        axes.set_title(name, fontsize=9, color=style.INK)
        axes.tick_params(labelsize=7.5, colors=style.INK)
        style.add_colour_bar(figure, mesh, axes, unit)
    right.set_aspect("equal")
    style.add_title(figure, title)
    return figure


def _label_words(axes: Axes, source: Sequence[str], target: Sequence[str], size: float, fonts: list[str]) -> None:
    """Label the columns with source words, above the map, and the rows with target words."""
    slanted = any(len(word) > 2 for word in source)
    axes.xaxis.tick_top()
    axes.set_xticks(
        range(len(source)),
        labels=[escape_math(word) for word in source],
        fontsize=size,
        fontfamily=fonts,
        rotation=60 if slanted else 0,
        rotation_mode="anchor",
        ha="left" if slanted else "center",
        color=style.INK,
    )
    axes.set_yticks(
        range(len(target)),
        labels=[escape_math(word) for word in target],
        fontsize=size,
        fontfamily=fonts,
        color=style.INK,
    )


def _tick_labels(words: Sequence[str], size: float) -> tuple[list[int], list[str]]:
    """Return tick positions and labels: all words if they are legible at this size, else some of their numbers."""
    if size >= LEGIBLE:
        return list(range(len(words))), [escape_math(word) for word in words]
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, len(words)) if len(words) / step <= 8)
    positions = list(range(step - 1, len(words), step))
    return positions, [str(position + 1) for position in positions]


def _draw_frames(axes: Axes, gold: GoldLinks, shape: tuple[int, ...]) -> None:
    """Frame the cells of gold links."""
    for source, target in sorted(gold.possible):
        if not (0 <= target < shape[0] and 0 <= source < shape[1]):
            raise ValueError(
                f"the gold link {source}-{target} is outside the map of {shape[1]} source and {shape[0]} target words; "
                "give weights of the same words that the links count"
            )
        stroke = "-" if (source, target) in gold.sure else (0, (2, 1.4))
        corner = (source - 0.42, target - 0.42)
        axes.add_patch(
            Rectangle(corner, 0.84, 0.84, fill=False, edgecolor=style.ACCENT, linewidth=1.5, linestyle=stroke)
        )


def _frame_legend(gold: GoldLinks) -> list[Line2D]:
    """Explain the kinds of frames that occur."""
    handles = []
    if gold.sure:
        handles.append(Line2D([], [], color=style.ACCENT, linestyle="-", linewidth=1.5, label="sure link"))
    if len(gold.possible) > len(gold.sure):
        handles.append(Line2D([], [], color=style.ACCENT, linestyle="--", linewidth=1.5, label="possible link"))
    return handles
