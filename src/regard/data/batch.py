"""Batches: frozen dataclasses of ragged sequences and tensors, with everything that the training loop needs of them.

A task declares its batch as a subclass of `Batch`. Each attribute says how it relates to the sequences, and from that
moving, pinning, splitting and filling to a fixed size (for CUDA graphs) follow:

    @dataclass(frozen=True, eq=False)
    class LabelledBatch(Batch):
        text: Ragged = sequences()
        label_B: Tensor = per_sequence(fill=IGNORED)

        @property
        def units(self) -> int:
            return len(self)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field as Attribute
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from regard.data.rows import Lengths, Numbers, Rows
from regard.nn.fill import fill_to_size
from regard.nn.ragged import Layout, Ragged
from regard.text import PAD

_SEQUENCE, _INDEX = "sequence", "index"


def sequences(fill: int = PAD) -> Any:
    """Declare a `Ragged` attribute; sequences that fill up a batch consist of `fill`."""
    return field(metadata={"fill": fill})


def per_token(of: str, fill: int) -> Any:
    """Declare a tensor with one value for each token of the attribute `of`; filled-up tokens get `fill`."""
    return field(metadata={"per": of, "fill": fill})


def per_sequence(fill: int | float) -> Any:
    """Declare a tensor with one value for each sequence, or one array, such as a picture; others get `fill`."""
    return field(metadata={"per": _SEQUENCE, "fill": fill})


def example_index() -> Any:
    """Declare a tensor with the number of each example in the data; the model does not read it."""
    return field(metadata={"per": _INDEX})


@dataclass(frozen=True, eq=False)
class Batch:
    """Base class of batches. All ragged attributes have the same number of sequences.

    A batch without ragged attributes has one sequence for each row of its `per_sequence` tensors.
    """

    @property
    def units(self) -> int:
        """What the summed loss is divided by: the number of target tokens, labels, …"""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self._ragged[0]) if self._ragged else self._per_sequence[0].shape[0]

    @property
    def _ragged(self) -> list[Ragged]:
        return [value for value in vars(self).values() if isinstance(value, Ragged)]

    @property
    def _per_sequence(self) -> list[Tensor]:
        named = [attribute.name for attribute in fields(self) if attribute.metadata.get("per") == _SEQUENCE]
        return [getattr(self, name) for name in named]

    def _map(self, function: Callable[[Attribute[Any], Any], Any]) -> Self:
        """Return the batch with each attribute replaced by `function(attribute, value)`."""
        return type(self)(*(function(attribute, getattr(self, attribute.name)) for attribute in fields(self)))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Copy the batch to another device."""
        return self._map(lambda _, value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Copy the batch to page-locked memory, from which copies to CUDA are asynchronous."""
        return self._map(lambda _, value: value.pin_memory())

    @property
    def static_size(self) -> tuple[int, ...]:
        """Everything that the kernels for a batch depend on; batches of equal size can share a CUDA graph."""
        return (len(self), *(number for ragged in self._ragged for number in (ragged.tokens, ragged.longest)))

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the model reads, in a fixed order."""
        tensors: list[Tensor] = []
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if isinstance(value, Ragged):
                tensors += [value.values, value.offsets]
            elif attribute.metadata["per"] != _INDEX:
                tensors.append(value)
        return tensors

    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        """Return a batch of this size over other tensors, given in the order of `tensors`; does not synchronise."""
        remaining = iter(tensors)

        def replaced(attribute: Attribute[Any], value: Any) -> Any:
            if isinstance(value, Ragged):
                values, offsets = next(remaining), next(remaining)
                return Ragged(values, Layout.from_device_offsets(offsets, value.tokens, value.longest))
            return value if attribute.metadata["per"] == _INDEX else next(remaining)

        return self._map(replaced)

    def split(self, count: int) -> list[Self]:
        """Split into at most `count` parts with about equally many tokens, none of them empty; on the CPU only.

        Without tokens, the parts have about equally many sequences.
        """
        offsets = [ragged.offsets.numpy().astype(np.int64) for ragged in self._ragged]
        ends = np.sum(offsets or [np.arange(len(self) + 1)], axis=0)
        inner = np.searchsorted(ends, ends[-1] * np.arange(count) / count)
        # The last part ends with the last example, also if that one has no tokens.
        cuts = np.unique(np.append(inner, len(self))).tolist()
        return [self._slice(first, last) for first, last in pairwise(cuts)]

    def _slice(self, first: int, last: int) -> Self:
        """Return the examples from `first` up to `last`."""

        def part(attribute: Attribute[Any], value: Any) -> Any:
            if isinstance(value, Ragged):
                offsets = value.offsets.numpy()[first : last + 1]
                return Ragged.from_arrays(value.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])
            per = attribute.metadata["per"]
            if per in (_SEQUENCE, _INDEX):
                return value[first:last]
            begin, end = (int(getattr(self, per).offsets[index]) for index in (first, last))
            return value[begin:end]

        return self._map(part)

    def filled(self, tokens: int, sequences: int, longest: int) -> Self:
        """Fill up to this many tokens in each ragged attribute and this many sequences."""
        return self._filled(lambda ragged, fill: fill_to_size(ragged, tokens, sequences, fill, longest), sequences)

    def rounded(self, block: int) -> Self:
        """Append one sequence, if needed, so that tokens of each ragged attribute are a multiple of `block`."""
        if not any(ragged.tokens % block for ragged in self._ragged):
            return self

        def extended(ragged: Ragged, fill: int) -> Ragged:
            tokens = -ragged.tokens % block or block
            values = torch.cat([ragged.values, ragged.values.new_full((tokens,), fill)])
            return Ragged.from_arrays(values, np.append(ragged.offsets.numpy(), values.shape[0]))

        return self._filled(extended, len(self) + 1)

    def _filled(self, extend: Callable[[Ragged, int], Ragged], count: int) -> Self:
        """Extend the ragged attributes to `count` sequences, and the tensors that go with them by their fill values."""
        longer = {
            attribute.name: extend(value, attribute.metadata["fill"])
            for attribute in fields(self)
            if isinstance(value := getattr(self, attribute.name), Ragged)
        }

        def fill(attribute: Attribute[Any], value: Any) -> Any:
            if isinstance(value, Ragged):
                return longer[attribute.name]
            per = attribute.metadata["per"]
            if per == _INDEX:
                return value
            size = count if per == _SEQUENCE else longer[per].tokens
            missing = (0, 0) * (value.ndim - 1) + (0, size - value.shape[0])
            return functional.pad(value, missing, value=attribute.metadata["fill"])

        return self._map(fill)


class RandomKey(NamedTuple):
    """A key from which the random choices in a training batch are derived, so that a resumed run repeats them."""

    key: tuple[int, ...]
    """Differs between seeds and between epochs."""
    numbers: Numbers
    """The place of each record in the epoch."""


class Collator(Protocol):
    """Makes batches of encoded records; part of every task."""

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the tokens that each record brings into a batch, for each ragged attribute whose tokens are limited.

        Args:
            lengths: For each field, the number of ids of each record. Start and end symbols are not counted there but
                are counted in the result.
        """

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> Batch:
        """Make a batch of records, given by field, and their numbers in the data."""

    def collate_for_training(self, rows: Mapping[str, Rows], index: Numbers, draw: RandomKey) -> Batch:
        """Make a batch for training, in which something may be random; by default `collate` makes it."""
        return self.collate(rows, index)
