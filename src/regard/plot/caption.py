"""A picture once for each word of its caption, with where the word looks, as in the figures of Xu et al. 2015."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from regard.plot import style
from regard.plot.fonts import escape_math, font_families

TILE = 1.15  # inches of a picture
COLUMNS = 8
FADE = 0.75  # how far a region without attention is faded to grey

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in parts of the width and height of the picture."""


def caption(
    image: NDArray[np.uint8],
    words: Sequence[str],
    weights: ArrayLike,
    *,
    boxes: Sequence[Sequence[Box]] = (),
    title: str = "",
    smooth: bool = True,
    columns: int = COLUMNS,
) -> Figure:
    """Draw a picture, and for each word the picture lit up where the word attends to.

    The map of each word is scaled by its own largest weight, which is written below.

    Args:
        image: The pixels (height, width) or (height, width, 3).
        words: The words of the caption.
        weights: The attention weights (words, rows, columns).
        boxes: For each word the regions that it is about, if they are known; they are framed.
        title: Title of the figure.
        smooth: Interpolate the weights between the centres of regions; otherwise show the regions as squares.
        columns: Pictures in a row.
    """
    pixels = np.repeat(image[:, :, None], 3, 2) if image.ndim == 2 else image
    table = np.asarray(weights, np.float64)
    if not words or table.ndim != 3 or table.shape[0] != len(words):
        raise ValueError(f"{len(words)} words need weights (words, rows, columns); got the shape {table.shape}")
    style.check_matrix(table, table.shape, "weights (words, rows, columns)")
    count = len(words) + 1
    across = min(columns, count)
    down = ceil(count / across)
    figure = style.new_figure(TILE * across, (TILE + 0.38) * down + 0.25 * bool(title))
    fonts = font_families([*words, title])
    for number in range(count):
        axes = figure.add_subplot(down, across, number + 1)
        axes.set_axis_off()
        if not number:
            axes.imshow(pixels)
            continue
        word, map_HW = words[number - 1], upsample(table[number - 1], pixels.shape[:2], smooth)
        axes.imshow(_lit(pixels, map_HW))
        axes.set_title(escape_math(word), fontsize=9, color=style.INK, fontfamily=fonts, pad=3)
        axes.text(
            0.5, -0.04, f"{table[number - 1].max():.2f}", transform=axes.transAxes, fontsize=6.5, color=style.FAINT,
            ha="center", va="top",
        )  # fmt: skip
        for left, top, right, bottom in boxes[number - 1] if boxes else ():
            height, width = pixels.shape[:2]
            axes.add_patch(
                Rectangle(
                    (left * width - 0.5, top * height - 0.5),
                    (right - left) * width,
                    (bottom - top) * height,
                    fill=False,
                    edgecolor=style.ACCENT,
                    linewidth=1.0,
                )
            )
    style.add_title(figure, escape_math(title), fonts)
    return figure


def upsample(weights: NDArray[np.float64], size: tuple[int, int], smooth: bool = True) -> NDArray[np.float64]:
    """Return a map of weights in the size of a picture: bilinear between the centres of regions, or constant."""
    interpolated = weights
    for axis, pixels in enumerate(size):
        cells = weights.shape[axis]
        place = (np.arange(pixels) + 0.5) * cells / pixels - 0.5
        if not smooth:
            place = np.rint(place)
        place = place.clip(0, cells - 1)
        low = np.minimum(place.astype(int), max(cells - 2, 0))
        share = np.expand_dims(place - low, 1 - axis)
        first, second = (interpolated.take(np.minimum(low + step, cells - 1), axis) for step in (0, 1))
        interpolated = first * (1 - share) + second * share
    return interpolated


def _lit(pixels: NDArray[np.uint8], map_HW: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the picture in its colours where the map is large, and in pale grey where it is small."""
    colours = pixels / 255
    grey = 0.35 + 0.4 * colours.mean(-1, keepdims=True)
    strength = (map_HW / max(float(map_HW.max()), 1e-12))[:, :, None]
    return np.asarray(colours * strength + (colours * (1 - FADE) + grey * FADE) * (1 - strength))
