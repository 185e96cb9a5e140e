"""The confusion matrix of a classifier or a tagger."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.plot import style
from regard.plot.fonts import escape_math, font_families

MOST_NUMBERS = 40  # classes up to which the cells have room for their counts


def confusion(counts: ArrayLike, classes: Sequence[str], *, title: str = "", unit: str = "text") -> Figure:
    """Draw a confusion matrix: a row for each label and a column for each prediction.

    The colour of a cell is its fraction of the row, so that rare and frequent classes can be compared; its number is
    the count.

    Example:
        >>> figure = confusion([[8, 2], [1, 9]], ["negative", "positive"])

    Args:
        counts: How many texts or words with the label of each row have the prediction of each column.
        classes: The names of the classes.
        title: Title of the figure.
        unit: What has a label: a text, or a word.
    """
    matrix = style.check_matrix(counts, (len(classes), len(classes)), "counts (labels, predictions)")
    fractions = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    cell = style.cell_size(*matrix.shape)
    size, fonts = style.font_size(cell), font_families([*classes, title])
    margin = 0.09 * max(map(len, classes))
    figure = style.new_figure(
        max(cell * len(classes) + margin + 1.5, 2.6), max(cell * len(classes) + margin + 0.8, 2.0) + 0.25 * bool(title)
    )
    axes = figure.add_subplot()
    mesh = style.draw_cells(axes, fractions, Normalize(0.0, 1.0))
    axes.set_aspect("equal")
    labels = [escape_math(name) for name in classes]
    ticks = range(len(classes))
    axes.set_xticks(ticks, labels=labels, rotation=90, fontsize=size, fontfamily=fonts, color=style.INK)
    axes.set_yticks(ticks, labels=labels, fontsize=size, fontfamily=fonts, color=style.INK)
    axes.set_xlabel("prediction", fontsize=8.5, color=style.INK)
    axes.set_ylabel("label", fontsize=8.5, color=style.INK)
    if len(classes) <= MOST_NUMBERS:
        for row, column in np.argwhere(matrix > 0).tolist():
            # White on the dark half of the colour scale, dark on its bright half.
            colour = style.INK if fractions[row, column] > 0.5 else "white"
            number = f"{int(matrix[row, column])}"
            axes.text(column, row, number, ha="center", va="center", fontsize=0.7 * size, color=colour)
    style.add_colour_bar(figure, mesh, axes, f"fraction of the label's {unit}s")
    style.add_title(figure, title, fonts)
    return figure
