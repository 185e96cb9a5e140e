"""What all figures share: colours, ink, and how a sheet of them is made."""

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
"""Letters, axes and frames; a page may replace it by its own text colour."""
FAINT = "#8b949e"
"""Grid lines and what is pruned; readable on white and on black."""
GOLD = "#d55e00"
"""Frames of what is known to be right: vermilion stands out from every shade of cividis."""

# Okabe & Ito 2008, in an order whose neighbours differ in lightness too; yellow is too faint for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STROKES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
"""A line style for each colour, so that a curve is never told by its colour alone."""

WEIGHTS = matplotlib.colormaps["cividis"]
SIGNED = LinearSegmentedColormap.from_list("blue-orange", ["#00498a", "#5aa5dc", "#ffffff", "#f0a04b", "#a04000"])

Scale = Literal["linear", "sqrt", "log"]
"""How colours follow numbers: a root or a logarithm shows the small weights that a straight line leaves dark."""
DARKEST = 1e-3  # share of the largest weight below which a logarithm sees no difference

CELL = 0.34  # inches of a word's row or column while there is room
LARGEST = 11.0  # inches of a whole map
CRISP = 5000  # cells up to which each is its own vector; more would make a page slow


def sheet(width: float, height: float) -> Figure:
    """An empty figure of so many inches, transparent, with room made for labels by itself."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
    FigureCanvasAgg(figure)
    return figure


def matrix(weights: ArrayLike, shape: tuple[int, ...], what: str) -> NDArray[np.float64]:
    """Numbers to draw, held to the shape their labels have."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{what} should have the shape {shape}, one number for each pair of labels; has {array.shape}")
    if not array.size:
        raise ValueError(f"{what} has the shape {shape}: there is nothing to draw")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{what} has {np.sum(~np.isfinite(array))} values that are not finite; no colour can show them"
        )
    return array


def weight_range(weights: NDArray[np.float64], scale: Scale = "linear") -> Normalize:
    """From nothing to the largest weight there is, so that the colour bar tells the true range."""
    low, high = min(0.0, float(weights.min())), float(weights.max())
    high = high if high > low else low + 1.0
    match scale:
        case "linear":
            return Normalize(low, high)
        case "sqrt":
            return PowerNorm(0.5, low, high)
        case "log":
            least = float(weights[weights > 0].min(initial=high))
            return LogNorm(min(max(least, DARKEST * high), 0.9 * high), high, clip=True)
    raise ValueError(f"colours follow weights on a scale that is linear, sqrt or log, not '{scale}'")


def cells(axes: Axes, values: NDArray[np.float64], norm: Normalize, colours: Colormap = WEIGHTS) -> QuadMesh:
    """A map with row 0 on top, a square a value, its middle at whole numbers."""
    few = values.size <= CRISP
    mesh = axes.pcolormesh(
        np.arange(values.shape[1] + 1) - 0.5,
        np.arange(values.shape[0] + 1) - 0.5,
        values,
        norm=norm,
        cmap=colours,
        edgecolors="face" if few else "none",
        linewidth=0.3,
        rasterized=not few,
    )
    axes.invert_yaxis()
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    return mesh


def colour_bar(figure: Figure, mesh: QuadMesh, axes: Any, meaning: str) -> None:
    """The scale of a map's colours, with what they mean."""
    values = np.asarray(mesh.get_array())
    # What lies below a logarithm's range has its darkest colour too, and the bar's pointed end says so.
    below = isinstance(mesh.norm, LogNorm) and values.min() < (mesh.norm.vmin or 0.0)
    bar = figure.colorbar(mesh, ax=axes, shrink=0.8, aspect=20, pad=0.02, extend="min" if below else "neither")
    bar.set_label(meaning, color=INK, fontsize=8)
    bar.ax.tick_params(labelsize=7.5, colors=INK)
    bar.outline.set_visible(False)


def cell_size(rows: int, columns: int) -> float:
    """Inches of one cell, so that the map stays on a page."""
    return min(CELL, LARGEST / max(rows, columns))


def letter_size(cell: float) -> float:
    """Points of the letters beside cells of this size."""
    return max(3.0, min(10.0, cell * 72 * 0.5))


def plain_axes(axes: Axes, size: float = 8.5) -> None:
    """Axes for curves: a light grid, two spines, small numbers."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(labelsize=size, colors=INK)
    axes.grid(color=FAINT, alpha=0.35, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
