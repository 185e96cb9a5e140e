"""Scenes: generated pictures of shapes, each with its only right caption and the region that each word is about.

A scene is drawn from its split, a seed and a number alone, so it is the same on every machine and has a name:
`scene:train/1/17`. Its caption exists in five languages; `regard.data.scenes.description` says what is mentioned, and
in which order.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.scenes.captions import LANGUAGES, caption
from regard.data.scenes.description import COLOURS, KINDS, SIZES, SPLITS, Description, Draw, draw_description
from regard.data.scenes.layout import SIDE, PlacedThing, lay_out
from regard.data.scenes.shapes import POINTS, coverage

__all__ = [
    "COLOURS",
    "KINDS",
    "LANGUAGES",
    "PIXELS",
    "SIZES",
    "SPLITS",
    "Scene",
    "SceneWord",
    "Thing",
    "descriptions",
    "find_scene",
    "scenes",
]

PIXELS = SIDE // 2
"""Height and width of a scene."""

_RGB = {
    "red": (214, 40, 40),
    "blue": (40, 80, 200),
    "green": (40, 150, 60),
    "yellow": (240, 205, 40),
    "black": (28, 28, 30),
    "purple": (140, 50, 160),
}
_VARIATION = 16  # how far each channel of a colour may be from its value
_SHADES = (222, 250)  # of the background
_NAME = re.compile(r"scene:(\w+)/(\d{1,18})/(\d{1,18})")

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a region, in parts of the width and height of the picture."""


class SceneWord(NamedTuple):
    """A word of a caption."""

    text: str
    boxes: tuple[Box, ...] | None
    """The visible parts of the things it is about; None for articles and relations."""


class Thing(NamedTuple):
    """A thing in a scene."""

    kind: str
    colour: str
    size: str
    rgb: tuple[int, int, int]
    """The colour of its pixels."""
    box: Box
    """The square around its visible part."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture with its caption."""

    name: str
    """The name that identifies the picture, such as `scene:train/1/17`."""
    image: NDArray[np.uint8]
    """The pixels, of the shape (height, width, 3)."""
    words: tuple[SceneWord, ...]
    """The words of the caption."""
    things: tuple[Thing, ...]
    """What is drawn, in the order of mention."""
    description: Description

    @property
    def caption(self) -> str:
        """The words, separated by spaces."""
        return " ".join(word.text for word in self.words)


def scenes(split: str, count: int, language: str = "en", seed: int = 0) -> Iterator[Scene]:
    """Yield scenes of a split; the same arguments give the same scenes on every machine.

    No description occurs in two of the splits train, valid and test. In `novel` shapes have colours that they never
    have in a relation in the other splits.

    Args:
        split: One of `SPLITS`.
        count: The number of scenes.
        language: Language of the captions, one of `LANGUAGES`.
        seed: The seed of the random draws.

    Example:
        >>> next(scenes("train", count=1)).caption
    """
    for name in _names(split, count, seed):
        yield find_scene(name, language)


def descriptions(split: str, count: int, language: str = "en", seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield names and captions of the scenes that `scenes` yields, without drawing them."""
    _check(language, LANGUAGES, "language")
    for name in _names(split, count, seed):
        description = draw_description(_random(name), split)
        yield name, " ".join(text for text, _ in caption(description, language))


def find_scene(name: str, language: str = "en") -> Scene:
    """Return the scene with a name such as `scene:train/1/17`.

    Raises:
        ValueError: If a scene cannot have this name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no scene: write scene:split/seed/number, such as scene:train/1/17")
    _check(match[1], SPLITS, "split")
    _check(language, LANGUAGES, "language")
    draw = _random(name)
    description = draw_description(draw, match[1])
    placed = lay_out(description, draw)
    image, colours, boxes = _draw(description, placed, draw)
    regions: list[list[Box]] = [[], []]
    things = []
    for thing, rgb, box in sorted(zip(placed, colours, boxes, strict=True), key=lambda drawn: drawn[0].group):
        group = description.groups[thing.group]
        things.append(Thing(group.kind, group.colour, group.size, rgb, box))
        regions[thing.group].append(box)
    words = tuple(
        SceneWord(text, None if number is None else tuple(regions[number]))
        for text, number in caption(description, language)
    )
    return Scene(name, image, words, tuple(things), description)


def _draw(
    description: Description, placed: tuple[PlacedThing, ...], draw: Draw
) -> tuple[NDArray[np.uint8], list[tuple[int, int, int]], list[Box]]:
    """Return the picture of things, their colours and the boxes around what is visible of them."""
    edge = 16  # the array of a shape may reach over the sides of the picture
    shade = _SHADES[0] + int(draw() * (_SHADES[1] - _SHADES[0] + 1))
    canvas = np.full((PIXELS + 2 * edge, PIXELS + 2 * edge, 3), shade, np.uint16)
    owner = np.full(canvas.shape[:2], -1, np.int8)
    varied = [_varied(group.colour, draw) for group in description.groups]
    colours = [varied[thing.group] for thing in placed]
    for number, (thing, rgb) in enumerate(zip(placed, colours, strict=True)):
        counts = coverage(thing.kind, thing.radius, thing.x % 2, thing.y % 2)
        size, reach = len(counts), len(counts) // 2
        top, left = thing.y // 2 + edge - reach, thing.x // 2 + edge - reach
        area = slice(top, top + size), slice(left, left + size)
        weight = counts[:, :, None]
        canvas[area] = (canvas[area] * (POINTS - weight) + weight * np.array(rgb, np.uint16) + POINTS // 2) // POINTS
        owner[area][2 * counts >= POINTS] = number
    image = canvas[edge:-edge, edge:-edge].astype(np.uint8)
    visible = owner[edge:-edge, edge:-edge]
    return image, colours, [_box(visible == number) for number in range(len(placed))]


def _box(mask: NDArray[np.bool_]) -> Box:
    """Return the box around the pixels of a mask."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    left, top, right, bottom = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return int(left) / PIXELS, int(top) / PIXELS, int(right) / PIXELS, int(bottom) / PIXELS


def _varied(colour: str, draw: Draw) -> tuple[int, int, int]:
    """Return a shade of a colour."""
    red, green, blue = (min(255, max(0, value + int((2 * draw() - 1) * (_VARIATION + 1)))) for value in _RGB[colour])
    return red, green, blue


def _names(split: str, count: int, seed: int) -> Iterator[str]:
    """Yield the names of the scenes of a split."""
    _check(split, SPLITS, "split")
    if count < 0:
        raise ValueError(f"cannot draw {count} scenes: ask for 0 or more")
    return (f"scene:{split}/{seed}/{number}" for number in range(count))


def _random(name: str) -> Draw:
    """Return a source of random numbers, of which Python guarantees that it never changes."""
    return random.Random(name).random


def _check(value: str, known: tuple[str, ...], what: str) -> None:
    if value not in known:
        raise ValueError(f"scenes have no {what} {value!r}: choose one of {', '.join(known)}")
