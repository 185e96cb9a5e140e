"""Digits: generated pictures of the digits 0 to 9, drawn with strokes of several hands and varied at random.

A digit is drawn from its split, a seed and a number alone and has a name such as `digit:train/1/17`. Only operations
are used whose results are exact by the standard for floating-point numbers (sums, products, quotients and roots), so it
is the same on every machine.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import shake_256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.digits.strokes import HEIGHT, Stroke, hands, lines

__all__ = ["PIXELS", "SPLITS", "Digit", "digit_labels", "digits", "find_digit"]

PIXELS = 28
"""Height and width of a picture."""
SPLITS = ("train", "valid", "test")
_NAME = re.compile(r"digit:(\w+)/(\d{1,18})/(\d{1,18})")
_FARTHEST = 3.0  # pixels from the middle
_WOBBLE = 4.0  # how far a point of a stroke may move, in parts of 100 of the height

_ROWS, _COLUMNS = (plane.ravel().astype(np.float32) + np.float32(0.5) for plane in np.indices((PIXELS, PIXELS)))


@dataclass(frozen=True, eq=False)
class Digit:
    """A picture of a digit."""

    name: str
    """The name that identifies the picture, such as `digit:train/1/17`."""
    label: str
    """The digit."""
    image: NDArray[np.uint8]
    """The pixels, of the shape (height, width): light strokes on black."""


class _Pen(NamedTuple):
    """How a digit is drawn: a linear map of the box of its strokes, the thickness of lines, ink and noise."""

    matrix: tuple[float, float, float, float]
    shift: tuple[float, float]
    """How far the digit is from the middle on each axis, in parts of how far it may be."""
    thickness: float
    ink: float
    noise: int


def digits(split: str, count: int, seed: int = 0) -> Iterator[Digit]:
    """Yield digits of a split; the same arguments give the same pictures on every machine.

    Args:
        split: One of `SPLITS`. The pictures of all splits are drawn alike, each from random numbers of its own.
        count: The number of pictures.
        seed: The seed of the random draws.

    Example:
        >>> next(digits("train", count=1)).label
    """
    for name in _names(split, count, seed):
        yield find_digit(name)


def digit_labels(split: str, count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield names and labels of the pictures that `digits` yields, without drawing them."""
    for name in _names(split, count, seed):
        yield name, str(int(random.Random(name).random() * 10))


def find_digit(name: str) -> Digit:
    """Return the digit with a name such as `digit:train/1/17`.

    Raises:
        ValueError: If a digit cannot have this name.
    """
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in SPLITS:
        raise ValueError(f"{name!r} is no digit: write digit:split/seed/number, such as digit:train/1/17")
    draw = random.Random(name).random
    label = int(draw() * 10)
    hand = hands()[int(draw() * len(hands()))]

    def within(low: float, high: float) -> float:
        return low + draw() * (high - low)

    strokes = [
        (is_curve, tuple((x + within(-_WOBBLE, _WOBBLE), y + within(-_WOBBLE, _WOBBLE)) for x, y in points))
        for is_curve, points in map(_closed, hand[label])
    ]
    half_angle = within(-0.1, 0.1)  # the tangent of half the angle: up to 11 degrees
    cosine, sine = (1 - half_angle**2) / (1 + half_angle**2), 2 * half_angle / (1 + half_angle**2)
    height, shear = within(15.0, 19.0) / HEIGHT, within(-0.25, 0.25)
    width = height * within(0.75, 1.15)
    matrix = cosine * width, -(shear * cosine + sine) * height, sine * width, (cosine - shear * sine) * height
    shift = within(-1.0, 1.0), within(-1.0, 1.0)
    pen = _Pen(matrix, shift, within(1.3, 3.2), within(170.0, 255.0), int(within(0, 40)))
    return Digit(name, str(label), _draw(strokes, pen, name))


def _closed(stroke: Stroke) -> Stroke:
    """Return a closed curve with its first points again at the end, so that it has no gap when its points move."""
    is_curve, points = stroke
    return (is_curve, (*points, points[1])) if is_curve and points[0] == points[-1] else stroke


def _draw(strokes: list[Stroke], pen: _Pen, name: str) -> NDArray[np.uint8]:
    """Draw strokes: the brightness of a pixel falls over one pixel at the edge of a line."""
    segments = np.array([line for stroke in strokes for line in lines(stroke)])
    (a, b, c, d), x, y = pen.matrix, segments[:, :, 0], segments[:, :, 1]
    across = _placed(a * x + b * y, pen.shift[0], pen.thickness)
    down = _placed(c * x + d * y, pen.shift[1], pen.thickness)
    nearest = _squared_distances(across, down).min(0)
    strength = np.clip(pen.thickness / 2 + 0.5 - np.sqrt(nearest), 0.0, 1.0) * pen.ink
    noise = np.frombuffer(shake_256(name.encode()).digest(PIXELS * PIXELS), np.uint8) / 255.0 * pen.noise
    pixels: NDArray[np.uint8] = np.floor(np.clip(strength + noise, 0.0, 255.0)).astype(np.uint8)
    return pixels.reshape(PIXELS, PIXELS)


def _placed(points: NDArray[np.float64], shift: float, thickness: float) -> NDArray[np.float32]:
    """Move the points of a digit on one axis to the middle of the picture, and then by as much as `shift` says."""
    low, high = float(points.min()), float(points.max())
    room = (PIXELS - (high - low) - thickness - 2) / 2
    moved: NDArray[np.float32] = (points + (PIXELS - low - high) / 2 + shift * min(room, _FARTHEST)).astype(np.float32)
    return moved


def _squared_distances(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the squared distance of each pixel from each segment, whose ends are the columns of `x` and `y`."""
    begin_x, begin_y = x[:, :1], y[:, :1]
    step_x, step_y = x[:, 1:] - begin_x, y[:, 1:] - begin_y
    squared_length = np.maximum(step_x * step_x + step_y * step_y, 1e-9)
    from_x, from_y = _COLUMNS - begin_x, _ROWS - begin_y
    along = np.clip((from_x * step_x + from_y * step_y) / squared_length, 0.0, 1.0)
    off_x, off_y = from_x - along * step_x, from_y - along * step_y
    distances: NDArray[np.float32] = off_x * off_x + off_y * off_y
    return distances


def _names(split: str, count: int, seed: int) -> Iterator[str]:
    """Yield the names of the digits of a split."""
    if split not in SPLITS:
        raise ValueError(f"digits have no split {split!r}: choose one of {', '.join(SPLITS)}")
    if count < 0:
        raise ValueError(f"cannot draw {count} digits: ask for 0 or more")
    return (f"digit:{split}/{seed}/{number}" for number in range(count))
