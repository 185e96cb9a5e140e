"""Length classes: which sequences the Triton attention kernel processes together, and with which launch settings.

A program that holds a whole sequence in one tile needs no loop and fewer registers, so more of them run at once; and
the smaller the tile, the less of it is padding. Sequences are therefore sorted by length and split into classes: one
for each single-tile size, and one for the few sequences that need several tiles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from regard.nn.ragged import Layout


class LaunchConfig(NamedTuple):
    """Launch settings of the kernel of a class."""

    tile: int
    """Tokens that a program processes at a time."""
    warps: int
    """Warps of 32 threads in a program."""
    programs: int
    """Programs per head. The grid does not depend on the batch: a program processes several sequences, or none."""


MAX_LENGTH = 512  # with longer sequences, looping over tiles leaves most of the device idle
TILED = LaunchConfig(64, 4, 256)
SINGLE_TILE = (LaunchConfig(64, 4, 256), LaunchConfig(32, 2, 1024))  # larger tiles first


@dataclass(frozen=True, eq=False)
class LengthClasses:
    """The sequences of a batch sorted by length and split into classes."""

    order_B: Int[Tensor, " B"]
    """Numbers of the sequences, the longest first."""
    bounds: Int[Tensor, " classes_and_one"]
    """Where each class begins in that order: several tiles first, then each single-tile size; at last the end."""
    longest: int
    """Largest length that a sequence of either side may have."""


def launch_configs(longest: int) -> Iterator[tuple[int, LaunchConfig]]:
    """Return number and launch settings of each class that may occur up to this length; class 0 has several tiles."""
    configs = [TILED, *SINGLE_TILE]
    exceeds = [*(config.tile for config in SINGLE_TILE), -1]  # sequences of class i are longer than exceeds[i]
    return ((number, config) for number, config in enumerate(configs) if longest > exceeds[number])


def classify_lengths(queries: Layout, keys: Layout) -> LengthClasses:
    """Sort sequences by the longer of their two sides and split them into classes, without a synchronisation."""
    length_B, order_B = torch.maximum(queries.lengths_B, keys.lengths_B).sort(descending=True)
    longer = [(length_B > config.tile).sum(dtype=torch.int32) for config in SINGLE_TILE]
    zero = torch.zeros((), dtype=torch.int32, device=length_B.device)
    bounds = torch.stack([zero, *longer, zero + len(queries)])
    return LengthClasses(order_B, bounds, max(queries.longest, keys.longest))
