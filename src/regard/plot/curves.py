"""Curves: quantities over training steps, costs over sizes, and quality over sentence length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from regard.plot import style
from regard.plot.fonts import font_families


@dataclass(frozen=True)
class Series:
    """The points of one curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False
    """Whether to mark every point, which suits series of few points."""

    def __post_init__(self) -> None:
        """Check that x and y have the same length."""
        if len(self.x) != len(self.y):
            raise ValueError(f"the series {self.name!r} has {len(self.x)} x values but {len(self.y)} y values")


@dataclass(frozen=True)
class CurvePanel:
    """The curves of one quantity."""

    title: str
    series: Sequence[Series]
    x_label: str = "step"
    logarithmic: bool = False
    """Whether the vertical axis of `curves` is logarithmic, as suits perplexity."""
    marks: Sequence[tuple[float, str]] = ()
    """Values on the horizontal axis of `growth` to mark by a line, each with its label."""


def curves(panels: Sequence[CurvePanel], *, title: str = "", columns: int = 3) -> Figure:
    """Draw one panel per quantity, `columns` in a row; values that are not finite leave a gap.

    Example:
        >>> figure = curves([CurvePanel("loss", [Series("training", [10, 20, 30], [3.0, 2.0, 1.5])])])
    """
    if not panels or not any(panel.series for panel in panels):
        raise ValueError("there is no series to draw; give at least one panel with one series")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.new_figure(3.3 * columns + 0.3, 2.4 * rows + 0.3 * bool(title))
    for axes, panel in zip(_panel_axes(figure, rows, columns, len(panels)), panels, strict=True):
        _draw_curves(axes, panel)
    style.add_title(figure, title, font_families([title]))
    return figure


def growth(panels: Sequence[CurvePanel], *, title: str = "", columns: int = 3) -> Figure:
    """Draw costs over sizes, one panel per quantity, on logarithmic axes: the slope of a line is its exponent.

    All values must be positive.
    """
    if not panels or not any(len(series.x) for panel in panels for series in panel.series):
        raise ValueError("there is nothing to draw; give at least one panel with one point")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.new_figure(3.5 * columns + 0.3, 2.7 * rows + 0.6)
    handles: dict[str, Artist] = {}
    for axes, panel in zip(_panel_axes(figure, rows, columns, len(panels)), panels, strict=True):
        _draw_growth(axes, panel)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center",
        ncols=3, fontsize=8, frameon=False, labelcolor=style.INK,
    )  # fmt: skip
    style.add_title(figure, title)
    return figure


def lengths(
    labels: Sequence[str],
    mean_lengths: Sequence[float],
    systems: Mapping[str, Sequence[float]],
    score: str,
    *,
    title: str = "",
) -> Figure:
    """Draw quality over source length (Bahdanau et al. 2015, figure 2; Luong et al. 2015, figure 3).

    Args:
        labels: The range of lengths in each group of sentences, such as "5–9".
        mean_lengths: The mean length of each group, where its points are drawn.
        systems: For each system its score in each group.
        score: Name of the score, for the vertical axis.
        title: Title of the figure.
    """
    if not systems or not labels:
        raise ValueError("there is no system or no group of lengths to draw; give at least one of each")
    figure = style.new_figure(5.4, 3.4)
    axes = figure.add_subplot()
    style.style_axes(axes)
    fonts = font_families([title, *systems])
    for number, (name, scores) in enumerate(systems.items()):
        if not len(scores) == len(labels) == len(mean_lengths):
            raise ValueError(f"{name} has {len(scores)} scores for {len(labels)} groups of lengths")
        _draw_line(axes, number, Series(name, mean_lengths, scores, dots=True), width=1.8, marker_size=4)
    axes.set_xticks(list(mean_lengths), labels=list(labels))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("source words", fontsize=8.5, color=style.INK)
    axes.set_ylabel(score, fontsize=8.5, color=style.INK)
    legend = figure.legend(loc="outside right upper", fontsize=8, frameon=False, labelcolor=style.INK)
    for text in legend.get_texts():
        text.set_fontfamily(fonts)
    style.add_title(figure, title, fonts)
    return figure


def _panel_axes(figure: Figure, rows: int, columns: int, count: int) -> list[Axes]:
    """Create a grid of axes, hide those beyond `count`, and return the others."""
    every: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in every[count:]:
        axes.set_axis_off()
    return every[:count]


def _draw_line(axes: Axes, number: int, series: Series, width: float, marker_size: float) -> None:
    """Draw curve `number` of its axes in the colour and line style of that number."""
    axes.plot(
        series.x,
        series.y,
        color=style.COLOURS[number % len(style.COLOURS)],
        linestyle=style.LINE_STYLES[number % len(style.LINE_STYLES)],
        linewidth=width,
        marker="o" if series.dots or len(series.y) == 1 else None,
        markersize=marker_size,
        label=series.name,
    )


def _draw_curves(axes: Axes, panel: CurvePanel) -> None:
    style.style_axes(axes)
    fonts = font_families([panel.title, *(series.name for series in panel.series)])
    for number, series in enumerate(panel.series):
        y = np.asarray(series.y, dtype=np.float64)
        finite = Series(series.name, series.x, np.where(np.isfinite(y), y, np.nan).tolist(), series.dots)
        _draw_line(axes, number, finite, width=1.6, marker_size=3.5)
    if panel.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.set_title(panel.title, fontsize=9.5, color=style.INK, loc="left", fontfamily=fonts)
    axes.set_xlabel(panel.x_label, fontsize=8.5, color=style.INK)
    if len(panel.series) > 1:
        legend = axes.legend(fontsize=7.5, frameon=False, labelcolor=style.INK)
        for text in legend.get_texts():
            text.set_fontfamily(fonts)


def _draw_growth(axes: Axes, panel: CurvePanel) -> None:
    style.style_axes(axes)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for number, series in enumerate(panel.series):
        if any(not value > 0 for value in (*series.x, *series.y)):
            raise ValueError(f"the series {series.name!r} has a value that is not positive and has no logarithm")
        _draw_line(axes, number, Series(series.name, series.x, series.y, dots=True), width=1.6, marker_size=3)
    ticks = sorted({x for series in panel.series for x in series.x})
    axes.set_xticks(ticks, labels=[f"{x:,.0f}" for x in ticks], rotation=45, fontsize=7)
    axes.xaxis.set_minor_locator(NullLocator())
    for x, label in panel.marks:
        axes.axvline(x, color=style.FAINT, linewidth=1, linestyle="--")
        axes.annotate(
            label, (x, 0.98), xycoords=("data", "axes fraction"), fontsize=7, color=style.INK, rotation=90, va="top"
        )
    axes.set_title(panel.title, fontsize=9.5, color=style.INK, loc="left")
    axes.set_xlabel(panel.x_label, fontsize=8.5, color=style.INK)
