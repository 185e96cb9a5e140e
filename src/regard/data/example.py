"""Token ids of sentence pairs to what a model reads and what it must say: the six steps of preparing a batch.

1. A number of pairs is drawn                              `regard.data.batching`
2. `<eos>` is appended to each source                      `Rows.append`, here
3. `<sos>` before each target makes the decoder's input,
   `<eos>` after it makes the labels                       `Rows.prepend` and `Rows.append`, here
4. Sequences are made one rectangle by `<pad>`             we pack them end to end instead; `Ragged.to_padded` pads
5. Tokens become ids                                       `regard.text`, before all this
6. What the vocabulary lacks becomes `<unk>`; lengths      `regard.text`; the offsets of each `Rows`, here

All of it works on a whole batch at once, as flat arrays, without a loop over the examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from regard.nn.ragged import Ragged
from regard.text import END, START

Ids = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of token ids, end to end; row i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: Numbers

    def __len__(self) -> int:
        """How many rows there are."""
        return self.offsets.size - 1

    @property
    def lengths(self) -> Numbers:
        """Ids of each row."""
        return np.diff(self.offsets)

    def append(self, token: int) -> "Rows":
        """The token behind each row."""
        return self._with_slots(self.offsets[1:], token)

    def prepend(self, token: int) -> "Rows":
        """The token before each row."""
        return self._with_slots(self.offsets[:-1], token)

    def take(self, which: Numbers) -> "Rows":
        """The rows of these numbers, in this order."""
        starts = self.offsets[which]
        lengths = self.offsets[which + 1] - starts
        offsets = _offsets(lengths)
        index = np.arange(offsets[-1])
        index += np.repeat(starts - offsets[:-1], lengths)
        # Clipping never happens, but without it numpy checks each index apart, at twice the time.
        return Rows(self.ids.take(index, mode="clip"), offsets)

    def to_ragged(self) -> Ragged:
        """The same rows as tensors; ids become int64, which is what losses and one-hot encodings ask for."""
        return Ragged.from_arrays(self.ids.astype(np.int64), self.offsets)

    @classmethod
    def join(cls, parts: Sequence["Rows"]) -> "Rows":
        """The rows of all parts, one part after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.ids for part in parts]), _offsets(lengths))

    def _with_slots(self, before: Numbers, token: int) -> "Rows":
        """One token more in each row, put before the given places of the flat ids."""
        slots = before + np.arange(len(self))
        taken = np.zeros(self.ids.size + len(self), bool)
        taken[slots] = True
        ids = np.empty(taken.size, np.int32)
        ids[~taken] = self.ids
        ids[slots] = token
        return Rows(ids, self.offsets + np.arange(len(self) + 1))


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs as a model takes them: what it reads, what it has said so far, what it must say next."""

    source: Ragged
    """Source ids, each sequence closed by `<eos>`."""
    target: Ragged
    """The decoder's input: `<sos>`, then the target."""
    labels_N: Int64[Tensor, " N"]
    """The decoder's output, in the layout of `target`: the target, then `<eos>`."""
    index_B: Int64[Tensor, " B"]
    """Numbers of the examples, so that results find their way back."""

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.source)

    @property
    def source_tokens(self) -> int:
        """Tokens the encoder reads, `<eos>` included."""
        return self.source.tokens

    @property
    def target_tokens(self) -> int:
        """Tokens the decoder predicts, `<eos>` included; what a summed loss is divided by."""
        return self.target.tokens

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on another device."""
        return Batch(
            self.source.to(device, non_blocking),
            self.target.to(device, non_blocking),
            self.labels_N.to(device, non_blocking=non_blocking),
            self.index_B.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory."""
        return Batch(
            self.source.pin_memory(), self.target.pin_memory(), self.labels_N.pin_memory(), self.index_B.pin_memory()
        )


def prepare(source: Rows, target: Rows, index: Numbers) -> Batch:
    """Put the reserved symbols where encoder, decoder and loss expect them."""
    labels = target.append(END)
    return Batch(
        source.append(END).to_ragged(),
        target.prepend(START).to_ragged(),
        torch.from_numpy(labels.ids.astype(np.int64)),
        torch.from_numpy(index),
    )


def _offsets(lengths: Numbers) -> Numbers:
    """Where rows of these lengths begin, and where the last one ends."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
