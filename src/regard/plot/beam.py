"""The search tree of a beam search: kept, finished and pruned hypotheses, and the best path."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from regard.plot import style
from regard.plot.fonts import escape_math, font_families, right_to_left

MARKERS = {"alive": ("o", style.COLOURS[0]), "finished": ("s", style.COLOURS[2]), "pruned": ("x", style.FAINT)}
BAND = 10  # steps side by side; a longer search continues below, or it would not fit a page
MIN_COLUMN, LETTER, ROW = 1.05, 0.085, 0.42  # inches of a step, of a letter and of a rank
BACKGROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}  # keeps lines from crossing text


@dataclass(frozen=True)
class BeamNode:
    """One token that the search tried."""

    token: str
    parent: int | None
    """Index of the node it extends, which comes before it in the tree; None for a root."""
    score: float
    """Score of the hypothesis that ends here."""
    state: Literal["alive", "finished", "pruned"]
    best: bool = False
    """Whether it is on the path to the best hypothesis."""


Spot = tuple[int, int, int]
"""A band, a column of it and a row of it."""


def beam(tree: Sequence[BeamNode], *, title: str = "") -> Figure:
    """Draw steps in reading direction, each with its hypotheses from the best down and their scores.

    A long search continues below in bands; lines between bands run to the edge and continue from the next edge.
    """
    steps = _steps(tree)
    spots = [(step // BAND, step % BAND, row) for step, row in zip(steps, _rows(tree, steps), strict=True)]
    rows, columns = max(row for *_, row in spots) + 1, min(max(steps) + 1, BAND)
    bands = max(band for band, *_ in spots) + 1
    leftwards = right_to_left(node.token for node in tree if not node.token.startswith("<"))
    fonts = font_families([*(node.token for node in tree), title])
    column = max(MIN_COLUMN, 0.3 + LETTER * max(len(node.token) for node in tree))
    figure = style.new_figure(column * columns + 0.9, ROW * (rows + 1) * bands + 0.5 + 0.3 * bool(title))
    grid = figure.subplots(bands, 1, squeeze=False)
    for axes in grid[:, 0]:
        axes.set_axis_off()
        limits = (-0.45, columns - 0.1) if not leftwards else (columns - 0.1, -0.45)
        axes.set_xlim(*limits)
        axes.set_ylim(rows - 0.4, -0.7)
    for node, spot in zip(tree, spots, strict=True):
        if node.parent is not None:
            _draw_link(list(grid[:, 0]), spots[node.parent], spot, node)
        _draw_node(grid[spot[0], 0], spot, node, fonts, leftwards)
    figure.legend(
        handles=_legend(tree), loc="outside lower center", ncols=4, fontsize=8, frameon=False, labelcolor=style.INK
    )
    style.add_title(figure, title, fonts)
    return figure


def _draw_link(bands: Sequence[Axes], start: Spot, end: Spot, node: BeamNode) -> None:
    """Draw the line from a node's parent; across bands, one part to the edge and one from the other edge."""
    pruned = node.state == "pruned"
    stroke: dict[str, Any] = {
        "color": style.ACCENT if node.best else MARKERS[node.state][1],
        "linewidth": 2.4 if node.best else 0.7 if pruned else 1.4,
        "linestyle": ":" if pruned else "-",
        "zorder": 1.5 if node.best else 1,
    }
    parts: list[tuple[int, tuple[float, float], tuple[float, float]]]
    if start[0] == end[0]:
        parts = [(start[0], (start[1], end[1]), (start[2], end[2]))]
    else:
        parts = [(start[0], (start[1], start[1] + 0.85), (start[2], start[2])), (end[0], (-0.4, 0), (end[2], end[2]))]
    for band, x, y in parts:
        bands[band].plot(x, y, **stroke)


def _draw_node(axes: Axes, spot: Spot, node: BeamNode, fonts: list[str], leftwards: bool) -> None:
    """Draw a marker with its token above and its score below."""
    marker, colour = MARKERS[node.state]
    axes.plot(spot[1], spot[2], marker, color=colour, markersize=5, zorder=2)
    offset, side = (-5, "right") if leftwards else (5, "left")
    axes.annotate(
        escape_math(node.token), spot[1:], (offset, 4), textcoords="offset points", ha=side,
        fontsize=8.5, fontfamily=fonts, color=style.INK, fontweight="bold" if node.best else "normal", bbox=BACKGROUND,
    )  # fmt: skip
    # Adding 0.0 turns -0.0 into 0.0.
    axes.annotate(
        f"{round(node.score, 2) + 0.0:.2f}", spot[1:], (offset, -4), textcoords="offset points", ha=side,
        fontsize=6.5, va="top", color=style.INK, bbox=BACKGROUND,
    )  # fmt: skip


def _legend(tree: Sequence[BeamNode]) -> list[Line2D]:
    """Explain the markers and lines that occur."""
    used = [state for state in MARKERS if any(node.state == state for node in tree)]
    handles = [
        Line2D([], [], color=MARKERS[state][1], marker=MARKERS[state][0], linestyle="", label=state) for state in used
    ]
    if any(node.best for node in tree):
        handles.append(Line2D([], [], color=style.ACCENT, linewidth=2.4, label="best"))
    return handles


def _steps(tree: Sequence[BeamNode]) -> list[int]:
    """Return the depth of each node."""
    if not tree:
        raise ValueError("the tree has no node; there is nothing to draw")
    steps: list[int] = []
    for index, node in enumerate(tree):
        if node.parent is not None and not 0 <= node.parent < index:
            raise ValueError(f"node {index} has the parent {node.parent}; a parent must come before its children")
        steps.append(0 if node.parent is None else steps[node.parent] + 1)
    return steps


def _rows(tree: Sequence[BeamNode], steps: list[int]) -> list[int]:
    """Return the rank of each node in its step: alive and finished ones by score, then pruned ones."""
    rows = [0] * len(tree)
    for step in range(max(steps) + 1):
        nodes = [index for index, depth in enumerate(steps) if depth == step]
        nodes.sort(key=lambda index: (tree[index].state == "pruned", -tree[index].score))
        for rank, index in enumerate(nodes):
            rows[index] = rank
    return rows
