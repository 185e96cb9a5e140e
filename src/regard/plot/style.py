"""The style of all figures: colours, sizes, and the creation of figures, maps and axes."""

from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize, PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

INK = "#1f2328"
"""Colour of text, axes and frames; a web page may replace it by its own text colour."""
FAINT = "#8b949e"
"""Colour of grid lines and pruned hypotheses; readable on white and on black."""
ACCENT = "#d55e00"
"""Colour of gold links and best paths: vermilion, which stands out from every shade of cividis."""

# Okabe & Ito 2008, in an order in which neighbours also differ in lightness. Yellow is too faint for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
"""A line style for each colour, so that colour is never the only difference between two curves."""

SEQUENTIAL = matplotlib.colormaps["cividis"]
DIVERGING = LinearSegmentedColormap.from_list("blue-orange", ["#00498a", "#5aa5dc", "#ffffff", "#f0a04b", "#a04000"])

ColourScale = Literal["linear", "sqrt", "log"]
"""How colours depend on values: a root or a logarithm shows small weights that are dark on a linear scale."""
LOG_RANGE = 1e-3  # the logarithmic scale ends at this fraction of the largest weight

MAX_CELL = 0.34  # inches of a map's cell, if the map is not too large
MAX_MAP = 11.0  # inches of a whole map
MAX_VECTOR_CELLS = 5000  # maps with more cells become bitmaps inside vector formats, or a page would be slow


def new_figure(width: float, height: float) -> Figure:
    """Create an empty, transparent figure of this size in inches, with automatic layout."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
    FigureCanvasAgg(figure)
    return figure


def add_title(figure: Figure, title: str, fonts: list[str] | None = None) -> None:
    """Set the title of a figure; an empty title takes no space."""
    if title:
        figure.suptitle(title, fontsize=10, color=INK, fontfamily=fonts)


def check_matrix(values: ArrayLike, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """Return values as an array, after checking that it is finite and has the shape of its labels."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, one value for each pair of labels; got {array.shape}")
    if not array.size:
        raise ValueError(f"{name} has shape {shape}: there is nothing to draw")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {np.sum(~np.isfinite(array))} values that are not finite and have no colour")
    return array


def weight_norm(weights: NDArray[np.float64], scale: ColourScale = "linear") -> Normalize:
    """Return the colour norm of weights, from 0 to the largest, so that the colour bar shows the true range."""
    low, high = min(0.0, float(weights.min())), float(weights.max())
    high = high if high > low else low + 1.0
    match scale:
        case "linear":
            return Normalize(low, high)
        case "sqrt":
            return PowerNorm(0.5, low, high)
        case "log":
            smallest = float(weights[weights > 0].min(initial=high))
            return LogNorm(min(max(smallest, LOG_RANGE * high), 0.9 * high), high, clip=True)
    raise ValueError(f"unknown colour scale '{scale}'; choose linear, sqrt or log")


def draw_cells(axes: Axes, values: NDArray[np.float64], norm: Normalize, colours: Colormap = SEQUENTIAL) -> QuadMesh:
    """Draw a matrix as a map, with row 0 at the top and the centres of cells at whole numbers."""
    vector = values.size <= MAX_VECTOR_CELLS
    mesh = axes.pcolormesh(
        np.arange(values.shape[1] + 1) - 0.5,
        np.arange(values.shape[0] + 1) - 0.5,
        values,
        norm=norm,
        cmap=colours,
        edgecolors="face" if vector else "none",
        linewidth=0.3,
        rasterized=not vector,
    )
    axes.invert_yaxis()
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    return mesh


def add_colour_bar(figure: Figure, mesh: QuadMesh, axes: Any, label: str) -> None:
    """Add the colour bar of a map."""
    values = np.asarray(mesh.get_array())
    # Values below a logarithmic range have its darkest colour too; the bar's pointed end says so.
    below = isinstance(mesh.norm, LogNorm) and values.min() < (mesh.norm.vmin or 0.0)
    bar = figure.colorbar(mesh, ax=axes, shrink=0.8, aspect=20, pad=0.02, extend="min" if below else "neither")
    bar.set_label(label, color=INK, fontsize=8)
    bar.ax.tick_params(labelsize=7.5, colors=INK)
    bar.outline.set_visible(False)


def cell_size(rows: int, columns: int) -> float:
    """Return the size of a cell in inches with which the map fits a page."""
    return min(MAX_CELL, MAX_MAP / max(rows, columns))


def font_size(cell: float) -> float:
    """Return the font size in points of the labels of cells of this size."""
    return max(3.0, min(10.0, cell * 72 * 0.5))


def style_axes(axes: Axes, size: float = 8.5) -> None:
    """Give axes of curves a light grid, two spines and small numbers."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(labelsize=size, colors=INK)
    axes.grid(color=FAINT, alpha=0.35, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
