"""Attention of one target sentence over its source as a map, with known word links framed
(the soft alignments of Bahdanau et al. 2015, figure 3).
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.lettering import families, right_to_left


class Links(Protocol):
    """Known links (source word, target word), counted from 0: those that must be there, and all that may."""

    @property
    def sure(self) -> Collection[tuple[int, int]]:
        """Links no good alignment lacks."""

    @property
    def possible(self) -> Collection[tuple[int, int]]:
        """Links a good alignment may have; the sure ones among them."""


def alignment(
    weights_TS: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    gold: Links | None = None,
    *,
    title: str = "",
    scale: style.Scale = "linear",
    meaning: str = "attention weight",
) -> Figure:
    """A row for each target word, a column for each source word, the brighter the more it was looked at.

    Where `gold` is given, sure links are framed and possible ones framed with dashes. Columns of a right-to-left source
    run from right to left. `meaning` is what the colour bar says of itself.
    """
    weights = style.matrix(weights_TS, (len(target), len(source)), "weights_TS (target words, source words)")
    cell = style.cell_size(*weights.shape)
    fonts = families([*source, *target, title])
    longest = max(map(len, source)), max(map(len, target))
    width = cell * len(source) + 0.09 * longest[1] + 1.3
    height = cell * len(target) + 0.08 * longest[0] + 0.4 + 0.25 * bool(title) + 0.3 * bool(gold)
    figure = style.sheet(max(width, 2.6), max(height, 1.6))
    axes = figure.add_subplot()
    mesh = style.cells(axes, weights, style.weight_range(weights, scale))
    axes.set_aspect("equal")
    label_words(axes, source, target, style.letter_size(cell), fonts)
    if right_to_left(source):
        axes.invert_xaxis()
    if gold:
        _frame(axes, gold, weights.shape)
        figure.legend(
            handles=_legend(gold), loc="outside lower center", ncols=2, fontsize=8, frameon=False, labelcolor=style.INK
        )
    style.colour_bar(figure, mesh, axes, meaning)
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def label_words(axes: Axes, source: Sequence[str], target: Sequence[str], size: float, fonts: list[str]) -> None:
    """Source words above the columns, target words beside the rows."""
    slanted = any(len(word) > 2 for word in source)
    axes.xaxis.tick_top()
    axes.set_xticks(
        range(len(source)),
        labels=[plain(word) for word in source],
        fontsize=size,
        fontfamily=fonts,
        rotation=60 if slanted else 0,
        rotation_mode="anchor",
        ha="left" if slanted else "center",
        color=style.INK,
    )
    axes.set_yticks(
        range(len(target)),
        labels=[plain(word) for word in target],
        fontsize=size,
        fontfamily=fonts,
        color=style.INK,
    )


def plain(word: str) -> str:
    """A word that is drawn letter by letter: a dollar sign begins no formula."""
    return word.replace("$", r"\$")


def _frame(axes: Axes, gold: Links, shape: tuple[int, ...]) -> None:
    """Frames around the cells of known links; a link outside the map is a mistake of the caller's."""
    for source, target in sorted(gold.possible):
        if not (0 <= target < shape[0] and 0 <= source < shape[1]):
            raise ValueError(
                f"the gold link {source}-{target} is outside the map of {shape[1]} source and {shape[0]} target words; "
                "give weights and words at the level the links count"
            )
        stroke = "-" if (source, target) in gold.sure else (0, (2, 1.4))
        corner = (source - 0.42, target - 0.42)
        axes.add_patch(Rectangle(corner, 0.84, 0.84, fill=False, edgecolor=style.GOLD, linewidth=1.5, linestyle=stroke))


def _legend(gold: Links) -> list[Line2D]:
    """What the frames mean, as far as there are any."""
    handles = []
    if gold.sure:
        handles.append(Line2D([], [], color=style.GOLD, linestyle="-", linewidth=1.5, label="sure link"))
    if len(gold.possible) > len(gold.sure):
        handles.append(Line2D([], [], color=style.GOLD, linestyle="--", linewidth=1.5, label="possible link"))
    return handles
