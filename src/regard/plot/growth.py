"""How costs grow: lines over powers of two on logarithmic scales, so that an exponent is a slope; and marked places."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from regard.plot import style
from regard.plot.curves import Series


@dataclass(frozen=True)
class Growth:
    """The lines of one quantity."""

    title: str
    series: Sequence[Series]
    below: str
    """What the horizontal axis counts."""
    marks: Sequence[tuple[float, str]] = ()
    """Places on that axis worth a line, each with its words."""


def growth(panels: Sequence[Growth], *, title: str = "", columns: int = 3) -> Figure:
    """A panel for each quantity, both axes logarithmic; values must be above zero."""
    if not panels or not any(len(series.x) for panel in panels for series in panel.series):
        raise ValueError("there is nothing to draw; give at least one panel with one point")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.sheet(3.5 * columns + 0.3, 2.7 * rows + 0.6)
    grid = figure.subplots(rows, columns, squeeze=False)
    for number, axes in enumerate(grid.flat):
        if number < len(panels):
            _draw(axes, panels[number])
        else:
            axes.set_axis_off()
    handles: dict[str, Artist] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center",
        ncols=3, fontsize=8, frameon=False, labelcolor=style.INK,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK)
    return figure


def _draw(axes: Axes, panel: Growth) -> None:
    style.plain_axes(axes)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for number, series in enumerate(panel.series):
        if any(not value > 0 for value in (*series.x, *series.y)):
            raise ValueError(f"the series {series.name!r} has a value that is not above zero, which has no logarithm")
        axes.plot(
            series.x,
            series.y,
            color=style.COLOURS[number % len(style.COLOURS)],
            linestyle=style.STROKES[number % len(style.STROKES)],
            linewidth=1.6,
            marker="o",
            markersize=3,
            label=series.name,
        )
    places = sorted({x for series in panel.series for x in series.x})
    axes.set_xticks(places, labels=[f"{place:,.0f}" for place in places], rotation=45, fontsize=7)
    axes.xaxis.set_minor_locator(NullLocator())
    for place, words in panel.marks:
        axes.axvline(place, color=style.FAINT, linewidth=1, linestyle="--")
        axes.annotate(
            words, (place, 0.98), xycoords=("data", "axes fraction"), fontsize=7, color=style.INK, rotation=90, va="top"
        )
    axes.set_title(panel.title, fontsize=9.5, color=style.INK, loc="left")
    axes.set_xlabel(panel.below, fontsize=8.5, color=style.INK)
