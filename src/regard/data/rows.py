"""Ragged arrays in numpy: the encoded values of one field for many records.

The values of most fields are ids. Those of pictures are bytes, and those of measurements are numbers in float32. `Rows`
is the host-side counterpart of `regard.nn.ragged.Ragged`. All methods work on flat arrays, without a Python loop over
the records unless each has hundreds of values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.nn.ragged import Ragged

COPIED = 256
"""Number of values of a slice from which on slices are copied one by one, which is faster than by an index."""

Ids = NDArray[np.int32]
Numbers = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of ids, concatenated; row i is `ids[offsets[i]:offsets[i + 1]]`.

    The ids are int32. A field that has no vocabulary has other numbers in their place: uint8 or float32.
    """

    ids: NDArray[Any]
    offsets: Numbers

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.offsets.size - 1

    @property
    def lengths(self) -> Numbers:
        """The number of ids in each row."""
        return np.diff(self.offsets)

    def append(self, token: int) -> "Rows":
        """Append a token to each row."""
        return self._insert(self.offsets[1:], token)

    def prepend(self, token: int) -> "Rows":
        """Insert a token before each row."""
        return self._insert(self.offsets[:-1], token)

    def cut(self, longest: int) -> "Rows":
        """Keep at most the first `longest` ids of each row."""
        lengths = self.lengths
        if not lengths.size or lengths.max() <= longest:
            return self
        return Rows(*gather_slices(self.ids, self.offsets[:-1], np.minimum(lengths, longest)))

    def take(self, indices: Lengths) -> "Rows":
        """Return the rows with these indices, in this order; an index may occur twice."""
        starts = self.offsets[indices]
        return Rows(*gather_slices(self.ids, starts, self.offsets[np.asarray(indices) + 1] - starts))

    def to_ragged(self) -> Ragged:
        """Convert to tensors; ids become int64, which losses and embeddings require, and other numbers are kept."""
        return Ragged.from_arrays(
            self.ids.astype(np.int64 if self.ids.dtype == np.int32 else self.ids.dtype), self.offsets
        )

    def to_tensor(self, *shape: int) -> torch.Tensor:
        """Convert to one tensor with rows of this shape, such as (channels, height, width); the type is kept.

        Raises:
            ValueError: If a row has another number of values.
        """
        values = int(np.prod(shape))
        if (self.lengths != values).any():
            found = sorted(set(self.lengths.tolist()))
            raise ValueError(f"rows of {found} values cannot be arrays of the shape {shape}, which has {values}")
        return torch.from_numpy(self.ids.reshape(len(self), *shape).copy())

    @classmethod
    def concatenate(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return the rows of all parts, one part after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.ids for part in parts]), offsets_of(lengths))

    def _insert(self, positions: Numbers, token: int) -> "Rows":
        """Insert one token per row before the given positions of the flat ids."""
        slots = positions + np.arange(len(self))
        inserted = np.zeros(self.ids.size + len(self), bool)
        inserted[slots] = True
        ids = np.empty(inserted.size, self.ids.dtype)
        ids[~inserted] = self.ids
        ids[slots] = token
        return Rows(ids, self.offsets + np.arange(len(self) + 1))


def offsets_of(lengths: Lengths) -> Numbers:
    """Return where rows of these lengths begin when concatenated, and the total at the end."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gather_slices(values: NDArray[Any], starts: Numbers, lengths: Lengths) -> tuple[NDArray[Any], Numbers]:
    """Concatenate the slices `values[start:start + length]` and return them with their offsets."""
    offsets = offsets_of(lengths)
    if offsets[-1] > COPIED * lengths.size:
        slices = zip(starts.tolist(), lengths.tolist(), strict=True)
        return np.concatenate([values[start : start + length] for start, length in slices]), offsets
    index = np.arange(offsets[-1])
    index += np.repeat(starts - offsets[:-1], lengths)
    # No index is out of range. mode="clip" skips numpy's per-index check, which would double the time.
    return values.take(index, mode="clip"), offsets
