"""A forecast beside its past, with intervals, and attention over time as a strip below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.fonts import escape_math, font_families

WIDTH, HEIGHT, STRIP = 8.0, 1.75, 0.16  # inches
_TICKS = 7
_INTERVAL = 0.22  # opacity
MOST_COLUMNS = 8
"""Columns that fit into one figure."""


@dataclass(frozen=True, eq=False)
class ForecastPanel:
    """One column of a series."""

    name: str
    past: ArrayLike
    forecast: ArrayLike
    interval: tuple[ArrayLike, ArrayLike] | None = None
    """Lower and upper end."""
    truth: ArrayLike | None = None
    """What really followed, if it is known."""
    weights: ArrayLike | None = None
    """Attention weight of each step of the past."""
    marks: Mapping[str, Sequence[int]] | None = None
    """Steps, counted from the first of the past, to mark by a line, by their meaning."""


def forecast(panels: Sequence[ForecastPanel], dates: Sequence[str], *, title: str = "", note: str = "") -> Figure:
    """Draw each column: its past, its forecast with an interval, and attention weights over time below it.

    Example:
        >>> figure = forecast([ForecastPanel("load", [1, 2, 3], [4, 5])], ["1", "2", "3", "+1", "+2"])

    Args:
        panels: The columns.
        dates: The dates of past and future steps.
        title: Title of the figure.
        note: What the attention weights are.
    """
    if not panels:
        raise ValueError("there is no column to draw; give at least one")
    panels = panels[:MOST_COLUMNS]
    has_weights = any(panel.weights is not None for panel in panels)
    heights = [size for _ in panels for size in ((HEIGHT, STRIP) if has_weights else (HEIGHT,))]
    figure = style.new_figure(WIDTH, sum(heights) + 0.75)
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    fonts = font_families([title, note, *dates[:1], *(panel.name for panel in panels)])
    axes = [figure.add_subplot(grid[row]) for row in range(len(heights))]
    for number, panel in enumerate(panels):
        past = np.asarray(panel.past, np.float64)
        steps = past.size + np.asarray(panel.forecast).size
        if len(dates) != steps:
            raise ValueError(f"{panel.name!r} has {steps} steps, but there are {len(dates)} dates; give one for each")
        place = axes[number * (2 if has_weights else 1)]
        _draw_series(place, panel, past, fonts)
        if has_weights:
            _draw_strip(axes[2 * number + 1], panel.weights, past.size, steps)
            place.tick_params(labelbottom=False)
        for other in axes[:-1]:
            other.tick_params(labelbottom=False)
    _date_ticks(axes[-1], dates, fonts)
    if note and has_weights:
        axes[-1].set_xlabel(escape_math(note), fontsize=8, color=style.INK, fontfamily=fonts)
    handles: dict[str, Artist] = {}
    for place in axes:
        artists, labels = place.get_legend_handles_labels()
        handles |= dict(zip(labels, artists, strict=True))
    figure.legend(
        list(handles.values()), list(handles), loc="outside upper center",
        ncols=len(handles), fontsize=8, frameon=False, labelcolor=style.INK,
    )  # fmt: skip
    style.add_title(figure, title, fonts)
    return figure


def _draw_series(axes: Axes, panel: ForecastPanel, past: np.ndarray, fonts: list[str]) -> None:
    """Draw the lines of a column."""
    style.style_axes(axes, 8)
    values = np.asarray(panel.forecast, np.float64)
    begin = np.arange(past.size)
    future = past.size + np.arange(values.size)
    axes.plot(begin, past, color=style.INK, linewidth=0.9, label="past")
    if panel.interval is not None:
        low, high = (np.asarray(end, np.float64) for end in panel.interval)
        axes.fill_between(future, low, high, color=style.COLOURS[0], alpha=_INTERVAL, linewidth=0, label="interval")
    if panel.truth is not None:
        axes.plot(future, np.asarray(panel.truth), color=style.FAINT, linewidth=0.9, linestyle="--", label="truth")
    axes.plot(future, values, color=style.COLOURS[0], linewidth=1.3, label="forecast")
    for (meaning, steps), line_style in zip((panel.marks or {}).items(), (":", "-."), strict=False):
        for number, step in enumerate(steps):
            label = meaning if number == 0 else "_"
            axes.axvline(step, color=style.ACCENT, linewidth=1.0, linestyle=line_style, label=label)
    axes.axvline(past.size - 0.5, color=style.FAINT, linewidth=0.7)
    axes.set_xlim(-0.5, past.size + values.size - 0.5)
    axes.set_ylabel(escape_math(panel.name), fontsize=8.5, color=style.INK, fontfamily=fonts)


def _draw_strip(axes: Axes, weights: ArrayLike | None, past: int, steps: int) -> None:
    """Draw the attention weights of the steps of the past as shades."""
    row = np.full(steps, np.nan)
    if weights is not None:
        row[:past] = np.asarray(weights, np.float64)
    largest = float(np.nanmax(row, initial=0.0)) or 1.0
    axes.pcolormesh(
        np.arange(steps + 1) - 0.5, [0, 1], row[None], cmap="Oranges", vmin=0.0, vmax=largest, rasterized=True
    )
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(labelsize=8, colors=style.INK, length=2)


def _date_ticks(axes: Axes, dates: Sequence[str], fonts: list[str]) -> None:
    """Write some dates below the lowest axes."""
    places = np.unique(np.linspace(0, len(dates) - 1, _TICKS).round().astype(int)).tolist()
    axes.set_xticks(places, [dates[place].replace("T", " ").replace(" ", "\n", 1) for place in places])
    axes.tick_params(labelbottom=True, labelsize=7.5)
    for label in axes.get_xticklabels():
        label.set_fontfamily(fonts)
