"""Text fields: a string becomes a sequence of token ids."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from regard.data.rows import Ids, Numbers, Rows
from regard.recipe import FieldKind
from regard.text import Tokenizer

UINT16 = 1 << 16


@dataclass(frozen=True)
class TextField:
    """A text, encoded by a tokenizer, without start and end symbols."""

    tokenizer: Tokenizer

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "text"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the tokenizer."""
        return self.tokenizer.fingerprint

    @property
    def dtype(self) -> np.dtype[Any]:
        """Two bytes per id if the vocabulary allows, otherwise four; little-endian on every machine."""
        return np.dtype("<u2" if len(self.tokenizer) <= UINT16 else "<i4")

    def __len__(self) -> int:
        """Return the size of the vocabulary."""
        return len(self.tokenizer)

    def encode(self, values: Sequence[str]) -> Rows:
        """Encode a batch of texts in the calling thread."""
        return self.encode_with(partial(self.tokenizer.encode_batch, threads=1), values)

    def encode_with(self, segment: Callable[[Sequence[str]], tuple[Ids, Numbers]], values: Sequence[str]) -> Rows:
        """Encode a batch of texts with another segmentation, such as a random one.

        Args:
            segment: Returns the ids of many texts end to end, and the offset of each text.
            values: The texts.
        """
        return Rows(*segment(values))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return self.tokenizer.decode(ids)
