"""Where the things of a scene are.

All numbers are whole, in half pixels, so that a scene is the same on every machine. With a relation such as above or to
the left, the two groups have a gap between them on one axis; on the other axis they overlap by at least half of the
narrower group. So exactly one of the four relations holds. With a relation such as behind, one thing covers
a part of the other, of which more than a half remains visible.
"""

from typing import NamedTuple

import numpy as np

from regard.data.scenes.description import OVERLAPPING, Description, Draw, Group
from regard.data.scenes.shapes import covers

SIDE = 128
"""Height and width of a scene."""
MARGIN = 3
GAP = 5  # between two groups, and between the things of one
RADII = {"small": (11, 14), "large": (21, 26)}
"""Least and largest radius of a thing, which is half the side of the square around it."""
UNEVEN = 3  # how far the things of a row are from one line
MOST_HIDDEN, LEAST_HIDDEN = 0.45, 0.15  # part of the covered thing, and of the smaller one


class PlacedThing(NamedTuple):
    """A thing of a scene with its place."""

    group: int
    """The number of its group: 0 or 1."""
    kind: str
    x: int
    y: int
    radius: int


def lay_out(description: Description, draw: Draw) -> tuple[PlacedThing, ...]:
    """Place the things of a scene; a later one is drawn over an earlier one."""
    first, second = description.first, description.second
    if second is None:
        return _scattered(first, draw)
    if description.relation in OVERLAPPING:
        front, back = (0, 1) if description.relation == "in_front_of" else (1, 0)
        return _overlapping(description.groups[front], description.groups[back], front, draw)
    is_vertical = description.relation in ("above", "below")
    is_first_low = description.relation in ("above", "to_the_left_of")  # at the lower coordinate
    groups = [(0, first), (1, second)] if is_first_low else [(1, second), (0, first)]
    return _side_by_side(groups, is_vertical, draw)


def between(low: int, high: int, draw: Draw) -> int:
    """Draw a whole number from `low` to `high`, both included."""
    return low + int(draw() * (high - low + 1))


def _scattered(group: Group, draw: Draw) -> tuple[PlacedThing, ...]:
    """Place one thing anywhere, or several in different quarters of the picture."""
    if group.amount == 1:
        radius = between(*RADII[group.size], draw)
        low, high = MARGIN + radius, SIDE - MARGIN - radius
        return (PlacedThing(0, group.kind, between(low, high, draw), between(low, high, draw), radius),)
    quarters = [(x, y) for x in (0, SIDE // 2) for y in (0, SIDE // 2)]
    things = []
    for _ in range(group.amount):
        x, y = quarters.pop(int(draw() * len(quarters)))
        radius = between(*RADII[group.size], draw)
        low, high = MARGIN + radius, SIDE // 2 - MARGIN - radius
        things.append(PlacedThing(0, group.kind, x + between(low, high, draw), y + between(low, high, draw), radius))
    return tuple(things)


class _Row(NamedTuple):
    """The things of a group beside each other on the cross axis: where each is, in relation to the row."""

    number: int
    kind: str
    radii: tuple[int, ...]
    along: tuple[int, ...]
    """On the main axis, on which the groups have a gap."""
    across: tuple[int, ...]
    depth: int
    """Size on the main axis."""
    width: int
    """Size on the cross axis."""


def _row(number: int, group: Group, draw: Draw) -> _Row:
    """Draw the sizes of the things of a group, and where they are in their row."""
    radii = tuple(between(*RADII[group.size], draw) for _ in range(group.amount))
    uneven = UNEVEN if group.amount > 1 else 0
    depth = 2 * max(radii) + uneven
    along = tuple(between(radius, depth - radius, draw) if uneven else radius for radius in radii)
    across, end = [], 0
    for radius in radii:
        across.append(end + radius)
        end += 2 * radius + GAP
    return _Row(number, group.kind, radii, along, tuple(across), depth, end - GAP)


def _side_by_side(groups: list[tuple[int, Group]], is_vertical: bool, draw: Draw) -> tuple[PlacedThing, ...]:
    """Place two groups, the first one at the lower coordinate of the main axis."""
    low, high = (_row(number, group, draw) for number, group in groups)
    free = SIDE - 2 * MARGIN - low.depth - high.depth - GAP
    start = between(0, free, draw)
    starts = MARGIN + start, MARGIN + start + low.depth + GAP + between(0, free - start, draw)
    wide, narrow = (low, high) if low.width >= high.width else (high, low)
    wide_at = between(MARGIN, SIDE - MARGIN - wide.width, draw)
    half = narrow.width // 2
    first = max(MARGIN, wide_at - half)
    last = min(SIDE - MARGIN - narrow.width, wide_at + wide.width - (narrow.width - half))
    narrow_at = between(first, last, draw)
    things = []
    for row, start in zip((low, high), starts, strict=True):
        origin = wide_at if row is wide else narrow_at
        for radius, along, across in zip(row.radii, row.along, row.across, strict=True):
            main, cross = start + along, origin + across
            x, y = (cross, main) if is_vertical else (main, cross)
            things.append(PlacedThing(row.number, row.kind, x, y, radius))
    return tuple(things)


def _overlapping(front: Group, back: Group, front_number: int, draw: Draw) -> tuple[PlacedThing, ...]:
    """Place one thing over a part of another."""
    while True:
        radius, over = (between(*RADII[group.size], draw) for group in (back, front))
        low, high = MARGIN + radius, SIDE - MARGIN - radius
        below = PlacedThing(1 - front_number, back.kind, between(low, high, draw), between(low, high, draw), radius)
        reach = radius + over
        x, y = below.x + between(-reach, reach, draw), below.y + between(-reach, reach, draw)
        above = PlacedThing(front_number, front.kind, x, y, over)
        is_inside = all(MARGIN + over <= place <= SIDE - MARGIN - over for place in (x, y))
        if is_inside and _is_partly_hidden(below, above):
            return below, above


def _is_partly_hidden(below: PlacedThing, above: PlacedThing) -> bool:
    """Return whether enough of a thing is covered by another to see that it is, and enough is not."""
    lower, upper = (covers(thing.kind, thing.radius, SIDE // 2, thing.x, thing.y) for thing in (below, above))
    area, covered = int(lower.sum()), int(np.count_nonzero(lower & upper))
    smaller = min(area, int(upper.sum()))
    return covered <= MOST_HIDDEN * area and covered >= LEAST_HIDDEN * smaller
