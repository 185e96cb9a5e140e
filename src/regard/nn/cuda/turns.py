"""Which sequences attention takes together: those whose tokens fit a tile of one size, the longest first.

A program that sees its sequence whole has no loop to keep registers for, so more of them run side by side; and the
smaller the tile, the less of it is padding. The few sequences longer than any such tile are walked through.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from regard.nn.ragged import Layout


class Programs(NamedTuple):
    """How sequences of a class are worked on."""

    tile: int
    """Tokens looked at together."""
    warps: int
    """Of 32 threads, for each program."""
    many: int
    """Programs for a head, however many sequences there are: some take several, one after another, or none."""


LONGEST = 512  # beyond, walking leaves most of the device idle
WALK = Programs(64, 4, 256)
WHOLE = (Programs(64, 4, 256), Programs(32, 2, 1024))  # larger tiles first


@dataclass(frozen=True, eq=False)
class Turns:
    """Who is attended to when."""

    order_B: Int[Tensor, " B"]
    """The sequences, the longest first."""
    ends: Int[Tensor, " classes_and_one"]
    """Where each class begins in that order: those walked through, then those of each tile; at last where all end."""
    longest: int
    """Tokens of the longest sequence, on either side, that was announced."""


def classes(longest: int) -> Iterator[tuple[int, Programs]]:
    """The classes that sequences of at most so many tokens can be in, by number: 0 is walked through."""
    every = [WALK, *WHOLE]
    shorter = [*(each.tile for each in WHOLE), -1]
    return ((number, each) for number, each in enumerate(every) if longest > shorter[number])


def turns(queries: Layout, keys: Layout) -> Turns:
    """The order of sequences, by the longer side of each; the device is not waited for."""
    length_B, order_B = torch.maximum(queries.lengths_B, keys.lengths_B).sort(descending=True)
    above = [(length_B > each.tile).sum(dtype=torch.int32) for each in WHOLE]
    none = torch.zeros((), dtype=torch.int32, device=length_B.device)
    ends = torch.stack([none, *above, none + len(queries)])
    return Turns(order_B, ends, max(queries.longest, keys.longest))
