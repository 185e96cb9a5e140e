"""The pixels that a shape covers, by whole numbers alone, so that a picture is the same on every machine.

A shape of a radius fills the square around it from -radius to +radius, as far as its form allows. A pixel is divided
into 4 x 4 points, and its coverage is the number of points inside of the shape.
"""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

POINTS = 16
"""Points of a pixel."""
_STEP = 8  # units of a pixel; its points are at 1, 3, 5 and 7 on each axis, half a pixel is 4

Plane = NDArray[np.int64]
"""A coordinate of many points, in eighths of a pixel, counted from the centre of a shape."""


def _circle(x: Plane, y: Plane, radius: int) -> NDArray[np.bool_]:
    return x * x + y * y <= radius * radius


def _square(x: Plane, y: Plane, radius: int) -> NDArray[np.bool_]:
    return 100 * np.maximum(abs(x), abs(y)) <= 86 * radius


def _triangle(x: Plane, y: Plane, radius: int) -> NDArray[np.bool_]:
    return (10 * y <= 9 * radius) & (19 * abs(x) <= 10 * (y + radius))


def _diamond(x: Plane, y: Plane, radius: int) -> NDArray[np.bool_]:
    return 4 * abs(x) + 3 * abs(y) <= 3 * radius


def _cross(x: Plane, y: Plane, radius: int) -> NDArray[np.bool_]:
    return (100 * np.minimum(abs(x), abs(y)) <= 34 * radius) & (np.maximum(abs(x), abs(y)) <= radius)


def _star(x: Plane, y: Plane, radius: int) -> NDArray[np.bool_]:
    """Return the points of a pentagram: those on the inner side of at least four of its five lines."""
    y = 20 * y - 2 * radius  # the middle between the highest and the lowest point is not the centre of the lines
    outside = np.stack([20 * a * x + b * y > 6490 * radius for a, b in _STAR])
    inside: NDArray[np.bool_] = np.count_nonzero(outside, axis=0) <= 1
    return inside


# Directions of the five points, times 1,000. The lines are at cos(72°) times 1.05 radii from the centre.
_STAR = ((0, -1000), (951, -309), (588, 809), (-588, 809), (-951, -309))

_SHAPES: Mapping[str, Callable[[Plane, Plane, int], NDArray[np.bool_]]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "diamond": _diamond,
}


@cache
def coverage(kind: str, radius: int, x_half: int, y_half: int) -> NDArray[np.uint16]:
    """Return how many points of each pixel a shape covers.

    Args:
        kind: The shape.
        radius: Its radius in half pixels.
        x_half: 1 if its centre is in the middle of a pixel, and 0 if it is at the left side of one.
        y_half: The same for the vertical axis.

    Returns:
        A square array; the pixel of the centre is in its middle.
    """
    reach = (radius + 1) // 2 + 1
    points = np.arange((2 * reach + 1) * 4, dtype=np.int64) * 2 + 1 - _STEP * reach
    inside = _SHAPES[kind]((points - 4 * x_half)[None, :], (points - 4 * y_half)[:, None], 4 * radius)
    size = 2 * reach + 1
    counts: NDArray[np.uint16] = inside.reshape(size, 4, size, 4).sum((1, 3)).astype(np.uint16)
    return counts


def covers(kind: str, radius: int, side: int, x: int, y: int) -> NDArray[np.bool_]:
    """Return which pixels of a picture a shape covers by at least a half.

    Args:
        kind: The shape.
        radius: Its radius in half pixels.
        side: Height and width of the picture in pixels.
        x: Centre of the shape in half pixels.
        y: The same for the vertical axis.
    """
    counts = coverage(kind, radius, x % 2, y % 2)
    reach = len(counts) // 2
    # The array may reach over the sides of the picture, where the shape itself does not.
    padded = np.zeros((side + 2 * reach, side + 2 * reach), bool)
    top, left = y // 2, x // 2
    padded[top : top + len(counts), left : left + len(counts)] = 2 * counts >= POINTS
    return padded[reach : reach + side, reach : reach + side]
