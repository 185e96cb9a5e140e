"""A chunk of pairs to what a store holds of it: ids, lengths and perhaps text of the pairs that the filters keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Chunk
from regard.data.filters import KEPT, FilterReport, Sieve

UINT16 = 1 << 16


class Encoder(Protocol):
    """What is asked of a tokenizer."""

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints, equal ids."""

    def __len__(self) -> int:
        """Number of ids."""

    def id(self, piece: str) -> int:
        """The id of a piece, or that of `<unk>`."""

    def encode_batch(
        self, lines: Sequence[str], threads: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids of many lines end to end, and the offsets of the lines."""


class Encoders(Protocol):
    """What is asked of a pair of tokenizers."""

    @property
    def source(self) -> Encoder:
        """Of the source side."""

    @property
    def target(self) -> Encoder:
        """Of the target side."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Sequences of one side, end to end."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]
    text: bytes | None
    text_lengths: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Encoded:
    """The kept pairs of a chunk, and the report on all of them."""

    source: Rows
    target: Rows
    report: FilterReport


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """Turns chunks into rows; safe to use from many threads."""

    tokenizers: Encoders
    sieve: Sieve
    tag: int | None
    keep_text: bool

    def __call__(self, chunk: Chunk, duplicate: NDArray[np.bool_] | None) -> Encoded:
        """Encode both sides, judge the pairs, and keep the good ones."""
        source_ids, source_offsets = self.tokenizers.source.encode_batch(chunk.source, threads=1)
        target_ids, target_offsets = self.tokenizers.target.encode_batch(chunk.target, threads=1)
        source_lengths, target_lengths = np.diff(source_offsets), np.diff(target_offsets)
        verdicts = self.sieve.judge(
            chunk, source_lengths, target_lengths, duplicate=duplicate, tagged=self.tag is not None
        )
        kept = verdicts == KEPT
        source = self._rows(self.tokenizers.source, chunk.source, source_ids, source_lengths, kept)
        target = self._rows(self.tokenizers.target, chunk.target, target_ids, target_lengths, kept)
        return Encoded(self._tagged(source), target, self.sieve.report(chunk, verdicts))

    def _rows(
        self,
        tokenizer: Encoder,
        texts: list[str],
        ids: NDArray[np.int32],
        lengths: NDArray[np.int64],
        kept: NDArray[np.bool_],
    ) -> Rows:
        """The rows of the kept sequences of one side."""
        ids = ids[np.repeat(kept, lengths)].astype(ids_dtype(tokenizer))
        if not self.keep_text:
            return Rows(ids, lengths[kept], None, None)
        data = [texts[place].encode() for place in np.flatnonzero(kept)]
        return Rows(ids, lengths[kept], b"".join(data), np.fromiter(map(len, data), np.int64, len(data)))

    def _tagged(self, rows: Rows) -> Rows:
        """The rows with the tag in front of each."""
        if self.tag is None:
            return rows
        starts = np.cumsum(rows.lengths) - rows.lengths
        return Rows(np.insert(rows.ids, starts, self.tag), rows.lengths + 1, rows.text, rows.text_lengths)


def ids_dtype(tokenizer: Encoder) -> np.dtype[Any]:
    """Two bytes an id if every id of the vocabulary fits, else four; little-endian on every machine."""
    return np.dtype("<u2" if len(tokenizer) <= UINT16 else "<i4")
