"""A table of position vectors as a map, and how alike the positions are (Vaswani et al. 2017, §3.5)."""

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.plot import style


def positions(table_PD: ArrayLike, *, title: str = "") -> Figure:
    """Left, each position's vector as a row; right, the cosine of the angle between any two positions."""
    table = np.asarray(table_PD, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"table_PD has the shape {table.shape}; it needs a row for each position")
    table = style.matrix(table, table.shape, "table_PD")
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    directions = table / np.where(lengths > 0, lengths, 1.0)
    figure = style.sheet(9.0, 3.6 + 0.25 * bool(title))
    left, right = figure.subplots(1, 2, width_ratios=[1.6, 1.0])
    bound = float(np.abs(table).max()) or 1.0
    panels = (
        (left, table, bound, "dimension", "value", "vectors"),
        (right, directions @ directions.T, 1.0, "position", "cosine", "likeness of two positions"),
    )
    for axes, values, most, below, unit, name in panels:
        mesh = style.cells(axes, values, Normalize(-most, most), style.SIGNED)
        axes.set_xlabel(below, fontsize=8.5, color=style.INK)
        axes.set_ylabel("position", fontsize=8.5, color=style.INK)
        axes.set_title(name, fontsize=9, color=style.INK)
        axes.tick_params(labelsize=7.5, colors=style.INK)
        style.colour_bar(figure, mesh, axes, unit)
    right.set_aspect("equal")
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK)
    return figure
