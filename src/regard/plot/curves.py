"""Series of numbers over steps (or anything else that grows) as curves, one panel a quantity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from regard.plot import style
from regard.plot.lettering import families


@dataclass(frozen=True)
class Series:
    """One curve: its name and its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False
    """Mark every point, as befits few of them."""

    def __post_init__(self) -> None:
        """Hold that every point has both its numbers."""
        if len(self.x) != len(self.y):
            raise ValueError(f"the series {self.name!r} has {len(self.x)} places but {len(self.y)} values")


@dataclass(frozen=True)
class Panel:
    """The curves of one quantity."""

    title: str
    series: Sequence[Series]
    below: str = "step"
    """What the horizontal axis counts."""
    logarithmic: bool = False
    """Equal distances for equal ratios, as suits perplexity."""


def curves(panels: Sequence[Panel], *, title: str = "", columns: int = 3) -> Figure:
    """A panel for each quantity, `columns` of them a row; values that are not finite leave a gap."""
    if not panels or not any(panel.series for panel in panels):
        raise ValueError("there is no series to draw; give at least one panel with one")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.sheet(3.3 * columns + 0.3, 2.4 * rows + 0.3 * bool(title))
    grid = figure.subplots(rows, columns, squeeze=False)
    for number, axes in enumerate(grid.flat):
        if number < len(panels):
            _draw(axes, panels[number])
        else:
            axes.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=families([title]))
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    style.plain_axes(axes)
    fonts = families([panel.title, *(series.name for series in panel.series)])
    for number, series in enumerate(panel.series):
        y = np.asarray(series.y, dtype=np.float64)
        axes.plot(
            series.x,
            np.where(np.isfinite(y), y, np.nan),
            color=style.COLOURS[number % len(style.COLOURS)],
            linestyle=style.STROKES[number % len(style.STROKES)],
            linewidth=1.6,
            marker="o" if series.dots or len(y) == 1 else None,
            markersize=3.5,
            label=series.name,
        )
    if panel.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.set_title(panel.title, fontsize=9.5, color=style.INK, loc="left", fontfamily=fonts)
    axes.set_xlabel(panel.below, fontsize=8.5, color=style.INK)
    if len(panel.series) > 1:
        legend = axes.legend(fontsize=7.5, frameon=False, labelcolor=style.INK)
        for text in legend.get_texts():
            text.set_fontfamily(fonts)
