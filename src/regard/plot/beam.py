"""The tree a beam search has grown: what it kept, what it finished, what it dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from regard.plot import style
from regard.plot.alignment import plain
from regard.plot.lettering import families

SHAPES = {"alive": ("o", style.COLOURS[0]), "finished": ("s", style.COLOURS[2]), "pruned": ("x", style.FAINT)}


@dataclass(frozen=True)
class Branch:
    """One token that the search tried."""

    token: str
    parent: int | None
    """Place of the branch it grew from, which stands before it; none for the first."""
    score: float
    """Score of the hypothesis that ends here."""
    state: Literal["alive", "finished", "pruned"]


def beam(tree: Sequence[Branch], *, title: str = "") -> Figure:
    """Steps from left to right, at each the hypotheses from the best down; score under each token."""
    steps = _steps(tree)
    rows = _rows(tree, steps)
    fonts = families([*(branch.token for branch in tree), title])
    figure = style.sheet(1.05 * (max(steps) + 1) + 0.6, 0.42 * (max(rows) + 1) + 0.8 + 0.3 * bool(title))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-0.4, max(steps) + 0.8)
    axes.set_ylim(max(rows) + 0.6, -0.6)
    for place, branch in enumerate(tree):
        shape, colour = SHAPES[branch.state]
        faint = branch.state == "pruned"
        if branch.parent is not None:
            start = steps[branch.parent], rows[branch.parent]
            axes.plot(
                [start[0], steps[place]], [start[1], rows[place]],
                color=colour, linewidth=0.7 if faint else 1.4, linestyle=":" if faint else "-", zorder=1,
            )  # fmt: skip
        axes.plot(steps[place], rows[place], shape, color=colour, markersize=5, zorder=2)
        axes.annotate(
            plain(branch.token), (steps[place], rows[place]), (5, 4), textcoords="offset points",
            fontsize=8.5, fontfamily=fonts, color=style.INK,
        )  # fmt: skip
        axes.annotate(
            f"{branch.score:.2f}", (steps[place], rows[place]), (5, -4), textcoords="offset points",
            fontsize=6.5, va="top", color=style.INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    used = [state for state in SHAPES if any(branch.state == state for branch in tree)]
    handles = [Line2D([], [], color=SHAPES[each][1], marker=SHAPES[each][0], linestyle="", label=each) for each in used]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False, labelcolor=style.INK)
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


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
