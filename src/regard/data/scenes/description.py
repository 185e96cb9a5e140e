"""What a scene shows, independent of any language, and the part of the scenes that it belongs to.

A scene shows one thing, several equal ones, or two kinds of things with a relation between them. Equal things have the
same shape, colour and size and are counted, so that a picture has exactly one description:

- Of two kinds of things, the one that comes first in the order of `KINDS` is mentioned first; things of one shape in
  the order of `COLOURS`, and those of one shape and colour in the order of `SIZES`.
- If the two overlap, the one on top is in front of the other. Otherwise one is above, below, to the left or to the
  right of the other; see `regard.data.scenes.layout`.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

KINDS = ("circle", "square", "triangle", "star", "cross", "diamond")
COLOURS = ("red", "blue", "green", "yellow", "black", "purple")
SIZES = ("small", "large")
ASIDE = ("above", "below", "to_the_left_of", "to_the_right_of")
"""Relations between things that do not overlap."""
OVERLAPPING = ("in_front_of", "behind")
"""Relations between two things that overlap."""
SPLITS = ("train", "valid", "test", "novel")
HELD_OUT = frozenset({("star", "purple"), ("cross", "green"), ("triangle", "yellow"), ("circle", "black")})
"""Shapes and colours that occur together in a relation only in the split `novel`."""

_VALID, _TEST = 0.04, 0.08  # upper bounds of the hash: four per cent each
_SINGLE, _COUNTED, _PAIR = 0.1, 0.25, 0.75  # upper bounds: one thing, several, two; the rest is several and one
_SALT = "regard scenes"

Draw = Callable[[], float]
"""Returns a random number from 0 to 1."""


class Group(NamedTuple):
    """Equal things."""

    kind: str
    colour: str
    size: str
    amount: int = 1

    @property
    def rank(self) -> tuple[int, int, int]:
        """The place in the order of mention."""
        return KINDS.index(self.kind), COLOURS.index(self.colour), SIZES.index(self.size)


class Description(NamedTuple):
    """What a scene shows: the first group has the relation to the second one, if there is a second."""

    first: Group
    relation: str = ""
    second: Group | None = None

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups in the order of mention."""
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def split(self) -> str:
        """The split of all scenes with this description, by a hash that is the same on every machine."""
        if self.second is not None and any((group.kind, group.colour) in HELD_OUT for group in self.groups):
            return "novel"
        key = "|".join([_SALT, self.relation, *(" ".join(map(str, group)) for group in self.groups)])
        value = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64
        return "valid" if value < _VALID else "test" if value < _TEST else "train"


def draw_description(draw: Draw, split: str) -> Description:
    """Draw a description of a split."""
    while True:
        description = _draw_any(draw)
        if description.split == split:
            return description


def _draw_any(draw: Draw) -> Description:
    """Draw a description of any split."""
    form = draw()
    if form < _COUNTED:
        amount = 1 if form < _SINGLE else 2 + int(draw() * 3)
        return Description(_draw_group(draw)._replace(amount=amount))
    while True:
        first, second = sorted((_draw_group(draw), _draw_group(draw)), key=lambda group: group.rank)
        if form < _PAIR:
            relations = (*ASIDE, *OVERLAPPING)
            relation = relations[int(draw() * len(relations))]
            is_visible = relation in ASIDE or first.colour != second.colour
            if first != second and is_visible:
                return Description(first, relation, second)
        else:
            amount, relation = 2 + int(draw() * 2), ASIDE[int(draw() * len(ASIDE))]
            counted, single = (first, second) if draw() < 0.5 else (second, first)
            if first != second and (amount == 2 or counted.size == "small"):  # three large things do not fit
                several = counted._replace(amount=amount)
                return (
                    Description(several, relation, single)
                    if counted is first
                    else Description(single, relation, several)
                )


def _draw_group(draw: Draw) -> Group:
    """Draw one thing."""
    return Group(KINDS[int(draw() * len(KINDS))], COLOURS[int(draw() * len(COLOURS))], SIZES[int(draw() * len(SIZES))])
