"""A picture with attention weights of its patches laid over it."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.plot import style
from regard.plot.fonts import escape_math, font_families

SIDE = 2.1  # inches of a picture
STRENGTH = 0.75  # opacity of a map over the picture


def patches(
    image: NDArray[np.uint8],
    maps: Mapping[str, ArrayLike],
    *,
    caption: str = "",
    title: str = "",
    scale: style.ColourScale = "linear",
) -> Figure:
    """Draw a picture, and beside it one copy for each map of weights with the map over it.

    Every map has a colour scale of its own, because weights through all layers are closer to each other than those of
    one layer.

    Example:
        >>> figure = patches(digit, {"rollout": rollout, "layer 6": last}, caption="7 (99 %)")

    Args:
        image: The picture, of the shape (height, width), or (height, width, channels) with 1 or 3 channels.
        maps: Weights of patches, in rows and columns, by name.
        caption: Text above the picture, such as the predicted label.
        title: Title of the figure.
        scale: How colours depend on weights.
    """
    flat = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
    if flat.dtype != np.uint8 or flat.ndim not in (2, 3) or (flat.ndim == 3 and flat.shape[2] != 3) or not flat.size:
        raise ValueError(f"a picture is uint8 with 1 or 3 channels; got {image.dtype} of the shape {image.shape}")
    fonts = font_families([caption, title, *maps])
    figure = style.new_figure(SIDE * (1 + 1.25 * len(maps)), SIDE * 1.15 + 0.3 * bool(title))
    axes = figure.subplots(1, 1 + len(maps), squeeze=False)[0]
    _draw_picture(axes[0], flat, caption, fonts)
    for (name, weights), place in zip(maps.items(), axes[1:], strict=True):
        values = np.asarray(weights, np.float64)
        values = style.check_matrix(values, values.shape if values.ndim == 2 else (1, 1), f"{name} (rows, columns)")
        _draw_picture(place, _grey(flat), name, fonts)
        norm = style.weight_norm(values, scale)
        height, width = flat.shape[:2]
        place.imshow(
            values, style.SEQUENTIAL, norm, alpha=STRENGTH, interpolation="nearest",
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        )  # fmt: skip
        bar = figure.colorbar(ScalarMappable(norm, style.SEQUENTIAL), ax=place, shrink=0.8, aspect=16, pad=0.03)
        bar.ax.tick_params(labelsize=7, colors=style.INK)
        bar.outline.set_visible(False)
    style.add_title(figure, escape_math(title), fonts)
    return figure


def _draw_picture(axes: Axes, image: NDArray[np.uint8], name: str, fonts: list[str]) -> None:
    """Draw a picture without axes, with its name above it."""
    axes.imshow(image, "gray" if image.ndim == 2 else None, vmin=0, vmax=255, interpolation="nearest")
    axes.axis("off")
    axes.set_title(escape_math(name), fontsize=9, color=style.INK, fontfamily=fonts)


def _grey(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the brightness of a picture, over which colours show weights (ITU-R BT.601)."""
    if image.ndim == 2:
        return image
    grey: NDArray[np.uint8] = np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    return grey
