"""Bars: some values of each of several systems, side by side."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from regard.plot import style
from regard.plot.fonts import font_families

WIDTH = 0.8  # of the bars of one system together; the distance between two systems is 1
HATCHES = ("", "//", "..", "xx", "\\\\", "++")
"""A pattern for each colour, so that colour is never the only difference between two bars."""


def bars(
    systems: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    label: str,
    *,
    title: str = "",
    logarithmic: bool = False,
) -> Figure:
    """Draw grouped bars: for each system one bar of each series, with its value above.

    Args:
        systems: The names of the systems.
        series: For each series its value for each system; None leaves a gap.
        label: What the values are, for the vertical axis.
        title: Title of the figure.
        logarithmic: Whether the vertical axis is logarithmic.

    Example:
        >>> figure = bars(["flat", "hran"], {"all turns": [1.4, 1.3], "last turn": [2.1, 2.2]}, "perplexity")
    """
    if not systems or not series:
        raise ValueError("there is no system or no series to draw; give at least one of each")
    for name, values in series.items():
        if len(values) != len(systems):
            raise ValueError(f"the series {name!r} has {len(values)} values for {len(systems)} systems")
    figure = style.new_figure(max(4.2, 0.5 + 0.32 * len(systems) * (len(series) + 1)), 3.4)
    axes = figure.add_subplot()
    style.style_axes(axes)
    width = WIDTH / len(series)
    for number, (name, values) in enumerate(series.items()):
        drawn = [
            (at - WIDTH / 2 + (number + 0.5) * width, value) for at, value in enumerate(values) if value is not None
        ]
        colour, hatch = style.COLOURS[number % len(style.COLOURS)], HATCHES[number % len(HATCHES)]
        container = axes.bar(
            [x for x, _ in drawn],
            [height for _, height in drawn],
            width * 0.92,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=name,
        )
        axes.bar_label(container, fmt=_short, fontsize=6, color=style.INK, padding=1)
    if logarithmic:
        axes.set_yscale("log")
    fonts = font_families([title, *systems, *series])
    axes.set_xticks(range(len(systems)), labels=list(systems), rotation=25, ha="right", fontfamily=fonts)
    axes.set_ylabel(label, fontsize=8.5, color=style.INK)
    figure.legend(loc="outside upper right", ncols=len(series), fontsize=8, frameon=False, labelcolor=style.INK)
    style.add_title(figure, title, fonts)
    return figure


def _short(value: float) -> str:
    """Return a value with about three digits."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
