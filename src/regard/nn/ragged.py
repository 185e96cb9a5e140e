"""Ragged batches: sequences of unequal length without padding.

`Ragged` holds the values of all tokens, end to end, and `Layout` the boundaries between sequences. `NestedRagged` also
has boundaries inside of sequences: between the sentences of documents, or the turns of dialogues. What kernels need of
a layout (lengths, the sequence and the position of each token) is computed once per batch and shared by all tensors of
that layout. These are plain tensors and ints, so `torch.compile` compiles once for batches of every size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Int32, Shaped
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each sequence of a batch begins and ends. Create one with `from_offsets` or `from_lengths`."""

    lengths_B: Int32[Tensor, " B"]
    """Number of tokens of each sequence; 0 is allowed."""
    offsets: Int32[Tensor, " ends"]
    """First token of each sequence, followed by the number of tokens: one more than there are sequences."""
    sequence_N: Int32[Tensor, " N"]
    """Number of the sequence each token belongs to."""
    position_N: Int32[Tensor, " N"]
    """Position of each token in its sequence, counted from 0."""
    longest: int
    """Length of the longest sequence, known on the host without a synchronisation."""

    @classmethod
    def from_offsets(cls, offsets: Int[Tensor, " ends"] | NDArray[Any]) -> "Layout":
        """Create a layout from the boundaries of its sequences; reads and checks them on the host."""
        device = offsets.device if isinstance(offsets, Tensor) else torch.device("cpu")
        host = offsets.cpu().numpy() if isinstance(offsets, Tensor) else offsets
        _check_offsets(host)
        return _from_host_offsets(host.astype(np.int32)).to(device)

    @classmethod
    def from_lengths(cls, lengths: Int[Tensor, " B"] | NDArray[Any] | Sequence[int]) -> "Layout":
        """Create a layout from the lengths of its sequences; reads and checks them on the host.

        Example:
            >>> Layout.from_lengths([2, 0, 3]).offsets
            tensor([0, 2, 2, 5], dtype=torch.int32)
        """
        device = lengths.device if isinstance(lengths, Tensor) else torch.device("cpu")
        host = lengths.cpu().numpy() if isinstance(lengths, Tensor) else np.asarray(lengths)
        if host.size and host.min() < 0:
            raise ValueError(f"lengths must not be negative, but sequence {int(host.argmin())} has {int(host.min())}")
        offsets = np.zeros(host.size + 1, np.int64)
        np.cumsum(host, out=offsets[1:])
        return cls.from_offsets(offsets).to(device)

    @classmethod
    def from_device_offsets(cls, offsets: Int32[Tensor, " ends"], tokens: int, longest: int) -> "Layout":
        """Create a layout on the device of its offsets, without reading or checking them on the host."""
        lengths_B = offsets.diff()
        # With `output_size`, `repeat_interleave` need not wait for the device to know the size of its result.
        sequence_N = torch.repeat_interleave(lengths_B, output_size=tokens)
        start_N = torch.repeat_interleave(offsets[:-1], lengths_B, output_size=tokens)
        position_N = torch.arange(tokens, dtype=torch.int32, device=offsets.device) - start_N
        return cls(lengths_B, offsets, sequence_N, position_N, longest)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return self.lengths_B.shape[0]

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all sequences."""
        return self.sequence_N.shape[0]

    def pad(self, values: Shaped[Tensor, "N *rest"], fill: int | float = 0) -> Shaped[Tensor, "B T *rest"]:
        """Return one row a sequence, padded with `fill` to the longest."""
        padded = values.new_full((len(self), self.longest, *values.shape[1:]), fill)
        padded[self.sequence_N, self.position_N] = values
        return padded

    def unpad(self, padded: Shaped[Tensor, "B T *rest"]) -> Shaped[Tensor, "N *rest"]:
        """Return the real tokens of padded rows, end to end, without a synchronisation."""
        return padded[self.sequence_N, self.position_N]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Layout":
        """Return the layout on another device; only the offsets are copied, and the rest is computed there."""
        if self.offsets.device == torch.device(device):
            return self
        return Layout.from_device_offsets(self.offsets.to(device, non_blocking=non_blocking), self.tokens, self.longest)

    def repeated(self) -> "Layout":
        """Return this layout followed by itself, without a synchronisation."""
        return Layout(
            self.lengths_B.repeat(2),
            torch.cat([self.offsets, self.offsets[1:] + self.tokens]),
            torch.cat([self.sequence_N, self.sequence_N + len(self)]),
            self.position_N.repeat(2),
            self.longest,
        )

    def pin_memory(self) -> "Layout":
        """Return the layout with its offsets, which are all that `to` copies, in page-locked memory."""
        return Layout(self.lengths_B, self.offsets.pin_memory(), self.sequence_N, self.position_N, self.longest)


@dataclass(frozen=True, eq=False)
class Ragged:
    """A batch of sequences of unequal length: the values of all tokens, end to end, and their layout.

    Example:
        >>> batch = Ragged.from_list([[7, 8], [], [9]])
        >>> batch.values, batch.lengths_B
        (tensor([7, 8, 9]), tensor([2, 0, 1], dtype=torch.int32))
    """

    values: Shaped[Tensor, "N *rest"]
    layout: Layout

    def __post_init__(self) -> None:
        """Check that there is one value for each token."""
        if self.values.shape[0] != self.layout.tokens:
            raise ValueError(f"got {self.values.shape[0]} values for a layout of {self.layout.tokens} tokens")

    @classmethod
    def from_arrays(
        cls, values: Shaped[Tensor, "N *rest"] | NDArray[Any], offsets: Int[Tensor, " ends"] | NDArray[Any]
    ) -> "Ragged":
        """Create a batch from values laid end to end and the offsets of its sequences."""
        flat = values if isinstance(values, Tensor) else torch.from_numpy(values)
        return cls(flat, Layout.from_offsets(offsets).to(flat.device))

    @classmethod
    def from_list(cls, sequences: Sequence[Tensor] | Sequence[Sequence[int]]) -> "Ragged":
        """Create a batch from sequences, each a tensor or a list of ids; ids become int64."""
        layout = Layout.from_lengths([len(sequence) for sequence in sequences])
        tensors = [sequence for sequence in sequences if isinstance(sequence, Tensor)]
        if tensors or not sequences:
            values = torch.cat(tensors)
        else:
            # Converting all lists at once is ten times as fast as one by one.
            values = torch.from_numpy(np.fromiter(chain.from_iterable(sequences), np.int64))
        return cls(values, layout.to(values.device))

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.layout)

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all sequences."""
        return self.layout.tokens

    @property
    def offsets(self) -> Int32[Tensor, " ends"]:
        """Return the first token of each sequence, followed by the number of tokens."""
        return self.layout.offsets

    @property
    def longest(self) -> int:
        """Return the length of the longest sequence."""
        return self.layout.longest

    @property
    def lengths_B(self) -> Int32[Tensor, " B"]:
        """Return the number of tokens of each sequence."""
        return self.layout.lengths_B

    @property
    def device(self) -> torch.device:
        """The device of the batch."""
        return self.values.device

    @property
    def sequence_N(self) -> Int32[Tensor, " N"]:
        """Return the number of the sequence each token belongs to."""
        return self.layout.sequence_N

    @property
    def position_N(self) -> Int32[Tensor, " N"]:
        """Return the position of each token in its sequence, counted from 0."""
        return self.layout.position_N

    def with_values(self, values: Shaped[Tensor, "N *rest"]) -> "Ragged":
        """Return a batch of other values in the same layout."""
        return Ragged(values, self.layout)

    def repeated(self) -> "Ragged":
        """Return the batch followed by itself, without a synchronisation."""
        return Ragged(torch.cat([self.values, self.values]), self.layout.repeated())

    def to_padded(self, fill: int | float = 0) -> Shaped[Tensor, "B T *rest"]:
        """Return one row a sequence, padded with `fill` to the longest."""
        return self.layout.pad(self.values, fill)

    def to_list(self) -> list[Tensor]:
        """Return the values of each sequence, as views; waits for the device."""
        return list(torch.split_with_sizes(self.values, self.lengths_B.tolist()))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Ragged":
        """Return the batch on another device."""
        return Ragged(self.values.to(device, non_blocking=non_blocking), self.layout.to(device, non_blocking))

    def pin_memory(self) -> "Ragged":
        """Return the batch in page-locked memory, from which copies to CUDA overlap with computation."""
        return Ragged(self.values.pin_memory(), self.layout.pin_memory())


class NestedParts(NamedTuple):
    """The parts of a nested batch; those without tokens are left out.

    If no part is left, a single one without tokens takes their place, which belongs to no sequence.
    """

    tokens: Ragged
    """The tokens, with each part as a sequence of its own."""
    members: Layout
    """The parts of each sequence."""
    layout: Layout
    """The tokens of each sequence."""


@dataclass(frozen=True, eq=False)
class NestedRagged:
    """A batch of sequences of parts, such as dialogues of turns: tokens, and the sizes of the parts.

    Example:
        >>> batch = NestedRagged.from_list([[[7, 8], [9]], [[5]]])
        >>> batch.tokens.lengths_B, batch.sizes.values
        (tensor([3, 1], dtype=torch.int32), tensor([2, 1, 1]))
    """

    tokens: Ragged
    """The token ids of each sequence. Tokens beyond its last part fill up a batch and are not read."""
    sizes: Ragged
    """The number of tokens of each part of each sequence."""

    def __post_init__(self) -> None:
        """Check that the parts belong to the sequences."""
        if len(self.tokens) != len(self.sizes):
            raise ValueError(f"got the parts of {len(self.sizes)} sequences for {len(self.tokens)} sequences")

    @classmethod
    def from_list(cls, sequences: Sequence[Sequence[Sequence[int]]]) -> "NestedRagged":
        """Create a batch from the parts of each sequence, given as lists of ids."""
        tokens = Ragged.from_list([list(chain.from_iterable(parts)) for parts in sequences])
        return cls(tokens, Ragged.from_list([[len(part) for part in parts] for parts in sequences]))

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.tokens)

    @property
    def device(self) -> torch.device:
        """The device of the batch."""
        return self.tokens.device

    def parts(self) -> NestedParts:
        """Return the parts, each as a sequence of its own; reads the sizes on the host.

        Raises:
            ValueError: The parts of a sequence have more tokens than the sequence.
        """
        sizes, counts_B, given_B = (
            tensor.cpu().numpy() for tensor in (self.sizes.values, self.sizes.lengths_B, self.tokens.lengths_B)
        )
        sequence, kept = np.repeat(np.arange(counts_B.size), counts_B), sizes > 0
        lengths_B = np.bincount(sequence, sizes, counts_B.size).astype(np.int64)
        if (lengths_B > given_B).any():
            wrong = int((lengths_B > given_B).argmax())
            raise ValueError(
                f"the parts of sequence {wrong} have {lengths_B[wrong]} tokens together, but it has {given_B[wrong]}"
            )
        parts = Layout.from_lengths(sizes[kept] if kept.any() else np.zeros(1, np.int64)).to(self.device)
        members = Layout.from_lengths(np.bincount(sequence[kept], minlength=counts_B.size)).to(self.device)
        layout, values = Layout.from_lengths(lengths_B).to(self.device), self.tokens.values
        if layout.tokens < values.shape[0]:  # filled up
            values = values[self.tokens.position_N < layout.lengths_B[self.tokens.sequence_N]]
        return NestedParts(Ragged(values, parts), members, layout)

    def repeated(self) -> "NestedRagged":
        """Return the batch followed by itself."""
        return NestedRagged(self.tokens.repeated(), self.sizes.repeated())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "NestedRagged":
        """Return the batch on another device."""
        return NestedRagged(self.tokens.to(device, non_blocking), self.sizes.to(device, non_blocking))


def _from_host_offsets(offsets: NDArray[np.int32]) -> Layout:
    """Create a layout from valid offsets by numpy; torch would split this little work among threads and wait."""
    lengths = np.diff(offsets)
    sequence = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    position = np.arange(offsets[-1], dtype=np.int32)
    position -= np.repeat(offsets[:-1], lengths)
    lengths_B, sequence_N, position_N = map(torch.from_numpy, (lengths, sequence, position))
    return Layout(lengths_B, torch.from_numpy(offsets), sequence_N, position_N, int(lengths.max()))


def _check_offsets(offsets: NDArray[Any]) -> None:
    """Raise a ValueError that names what is wrong with invalid offsets."""
    if offsets.dtype not in (np.int32, np.int64):
        raise ValueError(f"offsets must be int32 or int64, got {offsets.dtype}")
    if offsets.ndim != 1:
        raise ValueError(f"offsets must be one-dimensional, got shape {offsets.shape}")
    if offsets.size < 2:
        raise ValueError(f"a batch needs at least one sequence, so at least two offsets, got {offsets.size}")
    if offsets[0] != 0:
        raise ValueError(f"the first offset must be 0, got {offsets[0]}")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        index = int(falls[0])
        raise ValueError(
            f"offsets must not decrease, but offset {index + 1} is {offsets[index + 1]} after {offsets[index]}"
        )
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"a batch holds at most {np.iinfo(np.int32).max} tokens, got {offsets[-1]}")
