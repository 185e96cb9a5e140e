"""A batch of sequences of unequal length without padding: every token end to end, and where each sequence begins.

`Ragged` is the values, `Layout` the boundaries. What kernels ask of a layout (lengths, the sequence and the position
of each token) is computed once, when the batch is made, and shared by every tensor of the same layout. These are plain
tensors and two ints, so `torch.compile` traces through them and compiles once for batches of every size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Int32, Shaped
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each sequence of a batch begins and ends. Build one with `from_offsets` or `from_lengths`."""

    lengths_B: Int32[Tensor, " B"]
    """Tokens of each sequence; 0 is legal."""
    offsets: Int32[Tensor, " ends"]
    """Where each sequence begins, and at last the number of tokens: one more than there are sequences."""
    sequence_N: Int32[Tensor, " N"]
    """Number of the sequence each token belongs to."""
    position_N: Int32[Tensor, " N"]
    """Position of each token within its sequence, counted from 0."""
    longest: int
    """Length of the longest sequence, known to the host without asking the device."""

    @classmethod
    def from_offsets(cls, offsets: Int[Tensor, " ends"] | NDArray[Any]) -> "Layout":
        """The layout with these boundaries; reads them on the host, so a device is waited for."""
        where = offsets.device if isinstance(offsets, Tensor) else torch.device("cpu")
        host = offsets.cpu().numpy() if isinstance(offsets, Tensor) else offsets
        _check_offsets(host)
        return _spread_on_host(host.astype(np.int32)).to(where)

    @classmethod
    def from_lengths(cls, lengths: Int[Tensor, " B"] | NDArray[Any] | Sequence[int]) -> "Layout":
        """The layout of sequences of these lengths; reads them on the host, so a device is waited for."""
        where = lengths.device if isinstance(lengths, Tensor) else torch.device("cpu")
        host = lengths.cpu().numpy() if isinstance(lengths, Tensor) else np.asarray(lengths)
        if host.size and host.min() < 0:
            raise ValueError(f"a length cannot be negative: sequence {int(host.argmin())} has {int(host.min())}")
        offsets = np.zeros(host.size + 1, np.int64)
        np.cumsum(host, out=offsets[1:])
        return cls.from_offsets(offsets).to(where)

    @classmethod
    def spread(cls, offsets: Int32[Tensor, " ends"], tokens: int, longest: int) -> "Layout":
        """The layout with good boundaries, made on their device; they are not looked at, so nothing is waited for."""
        lengths_B = offsets.diff()
        # Given the output's size, `repeat_interleave` need not ask the device for it.
        sequence_N = torch.repeat_interleave(lengths_B, output_size=tokens)
        start_N = torch.repeat_interleave(offsets[:-1], lengths_B, output_size=tokens)
        position_N = torch.arange(tokens, dtype=torch.int32, device=offsets.device) - start_N
        return cls(lengths_B, offsets, sequence_N, position_N, longest)

    def __len__(self) -> int:
        """How many sequences there are."""
        return self.lengths_B.shape[0]

    @property
    def tokens(self) -> int:
        """How many tokens there are in all."""
        return self.sequence_N.shape[0]

    def pad(self, values: Shaped[Tensor, "N *rest"], fill: int | float = 0) -> Shaped[Tensor, "B T *rest"]:
        """Lay the sequences out as rows as long as the longest, `fill` behind the shorter ones."""
        padded = values.new_full((len(self), self.longest, *values.shape[1:]), fill)
        padded[self.sequence_N, self.position_N] = values
        return padded

    def unpad(self, padded: Shaped[Tensor, "B T *rest"]) -> Shaped[Tensor, "N *rest"]:
        """Put the real tokens of padded rows end to end again; the device is not waited for."""
        return padded[self.sequence_N, self.position_N]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Layout":
        """The same layout on another device: only the offsets travel, the rest is computed where it arrives."""
        if self.offsets.device == torch.device(device):
            return self
        return Layout.spread(self.offsets.to(device, non_blocking=non_blocking), self.tokens, self.longest)

    def twice(self) -> "Layout":
        """This layout followed by itself; the device is not waited for."""
        return Layout(
            self.lengths_B.repeat(2),
            torch.cat([self.offsets, self.offsets[1:] + self.tokens]),
            torch.cat([self.sequence_N, self.sequence_N + len(self)]),
            self.position_N.repeat(2),
            self.longest,
        )

    def pin_memory(self) -> "Layout":
        """The same layout with its offsets, all that ever travels, in page-locked memory."""
        return Layout(self.lengths_B, self.offsets.pin_memory(), self.sequence_N, self.position_N, self.longest)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Values of all tokens of a batch, end to end, and the layout that says whose they are."""

    values: Shaped[Tensor, "N *rest"]
    layout: Layout

    def __post_init__(self) -> None:
        """Hold that there is one value for each token."""
        if self.values.shape[0] != self.layout.tokens:
            raise ValueError(f"{self.values.shape[0]} values do not fit a layout of {self.layout.tokens} tokens")

    @classmethod
    def from_arrays(
        cls, values: Shaped[Tensor, "N *rest"] | NDArray[Any], offsets: Int[Tensor, " ends"] | NDArray[Any]
    ) -> "Ragged":
        """A batch of values laid end to end, cut at the offsets."""
        flat = values if isinstance(values, Tensor) else torch.from_numpy(values)
        return cls(flat, Layout.from_offsets(offsets).to(flat.device))

    @classmethod
    def from_list(cls, sequences: Sequence[Tensor] | Sequence[Sequence[int]]) -> "Ragged":
        """A batch of the given sequences, each a tensor or a list of ids (which become int64)."""
        layout = Layout.from_lengths([len(sequence) for sequence in sequences])
        tensors = [each for each in sequences if isinstance(each, Tensor)]
        if tensors or not sequences:
            values = torch.cat(tensors)
        else:  # all lists at once, which is ten times as quick as one by one
            values = torch.from_numpy(np.fromiter(chain.from_iterable(sequences), np.int64))
        return cls(values, layout.to(values.device))

    @classmethod
    def from_padded(
        cls,
        padded: Shaped[Tensor, "B T *rest"],
        lengths: Int[Tensor, " B"] | NDArray[Any] | Sequence[int],
    ) -> "Ragged":
        """The real tokens of padded rows, the first `lengths[i]` of row i."""
        layout = Layout.from_lengths(lengths)
        if len(layout) != padded.shape[0] or layout.longest > padded.shape[1]:
            raise ValueError(
                f"{len(layout)} lengths up to {layout.longest} do not fit {padded.shape[0]} rows of {padded.shape[1]}"
            )
        layout = layout.to(padded.device)
        return cls(layout.unpad(padded), layout)

    def __len__(self) -> int:
        """How many sequences there are."""
        return len(self.layout)

    @property
    def tokens(self) -> int:
        """How many tokens there are in all."""
        return self.layout.tokens

    @property
    def offsets(self) -> Int32[Tensor, " ends"]:
        """Where each sequence begins, and at last the number of tokens."""
        return self.layout.offsets

    @property
    def longest(self) -> int:
        """Length of the longest sequence."""
        return self.layout.longest

    @property
    def lengths_B(self) -> Int32[Tensor, " B"]:
        """Tokens of each sequence."""
        return self.layout.lengths_B

    @property
    def sequence_N(self) -> Int32[Tensor, " N"]:
        """Number of the sequence each token belongs to."""
        return self.layout.sequence_N

    @property
    def position_N(self) -> Int32[Tensor, " N"]:
        """Position of each token within its sequence, counted from 0."""
        return self.layout.position_N

    def with_values(self, values: Shaped[Tensor, "N *rest"]) -> "Ragged":
        """Other values in the same layout."""
        return Ragged(values, self.layout)

    def twice(self) -> "Ragged":
        """The batch followed by itself; the device is not waited for."""
        return Ragged(torch.cat([self.values, self.values]), self.layout.twice())

    def to_padded(self, fill: int | float = 0) -> Shaped[Tensor, "B T *rest"]:
        """One row a sequence, `fill` behind the shorter ones."""
        return self.layout.pad(self.values, fill)

    def to_list(self) -> list[Tensor]:
        """Each sequence's values, as views; waits for the device."""
        return list(torch.split_with_sizes(self.values, self.lengths_B.tolist()))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Ragged":
        """The same batch on another device."""
        return Ragged(self.values.to(device, non_blocking=non_blocking), self.layout.to(device, non_blocking))

    def pin_memory(self) -> "Ragged":
        """The same batch in page-locked memory, from which a copy to CUDA runs beside the computation."""
        return Ragged(self.values.pin_memory(), self.layout.pin_memory())


def _spread_on_host(offsets: NDArray[np.int32]) -> Layout:
    """What follows from good offsets, by numpy: torch would share this little work out among its threads and wait."""
    lengths = np.diff(offsets)
    sequence = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    position = np.arange(offsets[-1], dtype=np.int32)
    position -= np.repeat(offsets[:-1], lengths)
    lengths_B, sequence_N, position_N = map(torch.from_numpy, (lengths, sequence, position))
    return Layout(lengths_B, torch.from_numpy(offsets), sequence_N, position_N, int(lengths.max()))


def _check_offsets(offsets: NDArray[Any]) -> None:
    """Refuse offsets that cut no batch, naming what is wrong with them."""
    if offsets.dtype not in (np.int32, np.int64):
        raise ValueError(f"offsets are int32 or int64, not {offsets.dtype}")
    if offsets.ndim != 1:
        raise ValueError(f"offsets are one row of numbers, not of shape {offsets.shape}")
    if offsets.size < 2:
        raise ValueError(f"a batch has at least one sequence, so at least two offsets, not {offsets.size}")
    if offsets[0] != 0:
        raise ValueError(f"the first offset is 0, not {offsets[0]}")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0])
        raise ValueError(f"offsets never fall, but offset {at + 1} is {offsets[at + 1]} after {offsets[at]}")
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"a batch holds at most {np.iinfo(np.int32).max} tokens, not {offsets[-1]}")
