"""The tree a beam search has grown: what it kept, what it finished, what it dropped, and which path was best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from regard.plot import style
from regard.plot.alignment import plain
from regard.plot.lettering import families, right_to_left

SHAPES = {"alive": ("o", style.COLOURS[0]), "finished": ("s", style.COLOURS[2]), "pruned": ("x", style.FAINT)}
BAND = 10  # steps beside each other; more would not be read on a page, and stand below
COLUMN, LETTER, ROW = 1.05, 0.085, 0.42  # inches of a step at least, of a letter in it, and of a rank
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}  # keeps lines from crossing letters out


@dataclass(frozen=True)
class Branch:
    """One token that the search tried."""

    token: str
    parent: int | None
    """Place of the branch it grew from, which stands before it; none for the first."""
    score: float
    """Score of the hypothesis that ends here."""
    state: Literal["alive", "finished", "pruned"]
    best: bool = False
    """Whether it lies on the way to the best hypothesis."""


Spot = tuple[int, int, int]
"""A band, a column of it, and a row of it."""


def beam(tree: Sequence[Branch], *, title: str = "") -> Figure:
    """Steps in the direction of reading, at each the hypotheses from the best down; score under each token.

    A long search goes on below, band by band; branches that cross into the next band run to its edge and on from there.
    """
    steps = _steps(tree)
    spots = [(step // BAND, step % BAND, row) for step, row in zip(steps, _rows(tree, steps), strict=True)]
    rows, columns = max(row for *_, row in spots) + 1, min(max(steps) + 1, BAND)
    bands = max(band for band, *_ in spots) + 1
    leftwards = right_to_left(branch.token for branch in tree if not branch.token.startswith("<"))
    fonts = families([*(branch.token for branch in tree), title])
    column = max(COLUMN, 0.3 + LETTER * max(len(branch.token) for branch in tree))
    figure = style.sheet(column * columns + 0.9, ROW * (rows + 1) * bands + 0.5 + 0.3 * bool(title))
    grid = figure.subplots(bands, 1, squeeze=False)
    for axes in grid[:, 0]:
        axes.set_axis_off()
        ends = (-0.45, columns - 0.1) if not leftwards else (columns - 0.1, -0.45)
        axes.set_xlim(*ends)
        axes.set_ylim(rows - 0.4, -0.7)
    for branch, spot in zip(tree, spots, strict=True):
        if branch.parent is not None:
            _link(list(grid[:, 0]), spots[branch.parent], spot, branch)
        _node(grid[spot[0], 0], spot, branch, fonts, leftwards)
    figure.legend(
        handles=_legend(tree), loc="outside lower center", ncols=4, fontsize=8, frameon=False, labelcolor=style.INK
    )
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def _link(bands: Sequence[Axes], start: Spot, end: Spot, branch: Branch) -> None:
    """The line that leads to a branch; across bands, one to the edge and one from the other edge."""
    faint = branch.state == "pruned"
    stroke: dict[str, Any] = {
        "color": style.GOLD if branch.best else SHAPES[branch.state][1],
        "linewidth": 2.4 if branch.best else 0.7 if faint else 1.4,
        "linestyle": ":" if faint else "-",
        "zorder": 1.5 if branch.best else 1,
    }
    parts: list[tuple[int, tuple[float, float], tuple[float, float]]]
    if start[0] == end[0]:
        parts = [(start[0], (start[1], end[1]), (start[2], end[2]))]
    else:
        parts = [(start[0], (start[1], start[1] + 0.85), (start[2], start[2])), (end[0], (-0.4, 0), (end[2], end[2]))]
    for band, x, y in parts:
        bands[band].plot(x, y, **stroke)


def _node(axes: Axes, spot: Spot, branch: Branch, fonts: list[str], leftwards: bool) -> None:
    """A mark, its token above and its score below."""
    shape, colour = SHAPES[branch.state]
    axes.plot(spot[1], spot[2], shape, color=colour, markersize=5, zorder=2)
    aside, side = (-5, "right") if leftwards else (5, "left")
    axes.annotate(
        plain(branch.token), spot[1:], (aside, 4), textcoords="offset points", ha=side,
        fontsize=8.5, fontfamily=fonts, color=style.INK, fontweight="bold" if branch.best else "normal", bbox=WHITE,
    )  # fmt: skip
    axes.annotate(
        f"{round(branch.score, 2) + 0.0:.2f}", spot[1:], (aside, -4), textcoords="offset points", ha=side,
        fontsize=6.5, va="top", color=style.INK, bbox=WHITE,
    )  # fmt: skip


def _legend(tree: Sequence[Branch]) -> list[Line2D]:
    """What marks and lines mean, as far as they are there."""
    used = [state for state in SHAPES if any(branch.state == state for branch in tree)]
    handles = [Line2D([], [], color=SHAPES[each][1], marker=SHAPES[each][0], linestyle="", label=each) for each in used]
    if any(branch.best for branch in tree):
        handles.append(Line2D([], [], color=style.GOLD, linewidth=2.4, label="best"))
    return handles


def _steps(tree: Sequence[Branch]) -> list[int]:
    """How many tokens stand before each."""
    if not tree:
        raise ValueError("the tree has no branch; there is nothing to draw")
    steps: list[int] = []
    for place, branch in enumerate(tree):
        if branch.parent is not None and not 0 <= branch.parent < place:
            raise ValueError(f"branch {place} names {branch.parent} as its parent; a parent stands before its children")
        steps.append(0 if branch.parent is None else steps[branch.parent] + 1)
    return steps


def _rows(tree: Sequence[Branch], steps: list[int]) -> list[int]:
    """The rank of each among those of its step: living and finished ones by score, pruned ones after them."""
    rows = [0] * len(tree)
    for step in range(max(steps) + 1):
        there = [place for place, each in enumerate(steps) if each == step]
        there.sort(key=lambda place: (tree[place].state == "pruned", -tree[place].score))
        for rank, place in enumerate(there):
            rows[place] = rank
    return rows
