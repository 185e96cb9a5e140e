"""A tokenised corpus in memory-mapped files: what `regard.data.build` writes and batches are gathered from.

A store is a folder. For each side, `source` and `target`, it holds

    <side>.ids           the ids of all tokens, end to end, without <s> and </s>; uint16, or int32 if need be
    <side>.offsets       where each sequence begins, and at last where the last one ends; int64
    <side>.lengths       tokens of each sequence; int32
    <side>.text          where the text is kept: its bytes in UTF-8, end to end
    <side>.text-offsets  and where each text begins; int64

all little-endian, and `manifest.json`, written last, with the size of every file. Nothing is read until it is asked
for, so a corpus needs disk, not memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from regard.data.filters import FilterReport

VERSION: Literal[1] = 1
"""Of the format; part of every fingerprint."""

Ids = NDArray[np.uint16] | NDArray[np.int32]
Ragged = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]
"""Source ids end to end and their offsets, then those of the target."""

_BLOCK = 1 << 20


class SideManifest(BaseModel):
    """What a manifest says of one side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Literal["uint16", "int32"]
    tokens: NonNegativeInt
    longest: NonNegativeInt
    text: NonNegativeInt | None
    """Bytes of text; none where it was not kept."""

    def sizes(self, name: str, pairs: int) -> dict[str, int]:
        """The files of this side and the bytes each must have."""
        files = {
            f"{name}.ids": self.tokens * np.dtype(self.dtype).itemsize,
            f"{name}.offsets": 8 * (pairs + 1),
            f"{name}.lengths": 4 * pairs,
        }
        if self.text is not None:
            files |= {f"{name}.text": self.text, f"{name}.text-offsets": 8 * (pairs + 1)}
        return files


class Manifest(BaseModel):
    """What a store says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    pairs: PositiveInt
    tag: NonNegativeInt | None
    source: SideManifest
    target: SideManifest
    report: FilterReport


@dataclass(frozen=True)
class Side:
    """One side of the corpus: sequence i is `ids[offsets[i] : offsets[i + 1]]`."""

    ids: Ids
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]
    longest: int
    text: NDArray[np.uint8] | None
    text_offsets: NDArray[np.int64] | None

    def texts(self, which: NDArray[np.integer[Any]]) -> list[str]:
        """The text of the chosen sequences, as it stood in the corpus."""
        if self.text is None or self.text_offsets is None:
            raise ValueError("This store was built without its text. Build it with keep_text=True.")
        starts = self.text_offsets[which]
        data, offsets = _gather(self.text, starts, self.text_offsets[np.asarray(which) + 1] - starts)
        whole, ends = data.tobytes(), offsets.tolist()
        return [whole[start:end].decode() for start, end in pairwise(ends)]


class Store:
    """The pairs of a corpus as token ids, on disk."""

    def __init__(self, folder: Path, manifest: Manifest, source: Side, target: Side) -> None:
        """Take the parts; `Store.open` reads them from a folder."""
        self.folder = folder
        self.source = source
        self.target = target
        self.report: FilterReport = manifest.report
        """What was read, kept and dropped when the store was built."""
        self.tag: int | None = manifest.tag
        """The id every source begins with; whoever encodes a text anew puts it in front. None without a tag."""
        self._pairs = manifest.pairs

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open a finished store; a folder that is not a whole one is a ValueError."""
        path = folder / "manifest.json"
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(f"{folder} is no store: it has no manifest.json.") from None
        except ValidationError as error:
            raise ValueError(f"{path} is damaged or of another version ({error.error_count()} faults).") from error
        source = _open_side(folder, "source", manifest.source, manifest.pairs)
        target = _open_side(folder, "target", manifest.target, manifest.pairs)
        return cls(folder, manifest, source, target)

    def __reduce__(self) -> tuple[Callable[[Path], "Store"], tuple[Path]]:
        """Travels to another process as its folder."""
        return Store.open, (self.folder,)

    def __len__(self) -> int:
        """Number of pairs."""
        return self._pairs

    @property
    def lengths(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tokens of each source and of each target."""
        return self.source.lengths, self.target.lengths

    @cached_property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and of the longest target."""
        return self.source.longest, self.target.longest

    def gather(self, which: NDArray[np.integer[Any]]) -> Ragged:
        """The ids of the chosen pairs, in the order given; a pair may be chosen twice."""
        which = self._checked(which)
        source, target = (
            _gather(side.ids, side.offsets[which], side.lengths[which]) for side in (self.source, self.target)
        )
        return source[0].astype(np.int32, copy=False), source[1], target[0].astype(np.int32, copy=False), target[1]

    def text(self, which: NDArray[np.integer[Any]]) -> tuple[list[str], list[str]]:
        """The sources and targets of the chosen pairs as text, without the tag; only where the text was kept."""
        which = self._checked(which)
        return self.source.texts(which), self.target.texts(which)

    def _checked(self, which: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """The places as an array, all of them in the store."""
        which = np.asarray(which)
        if which.size and not (which.min() >= 0 and which.max() < len(self)):
            raise IndexError(f"the store has pairs 0 to {len(self) - 1}, not {which.min()} to {which.max()}")
        return which if which.size else which.astype(np.int64)


def _gather(
    values: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.integer[Any]]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Runs of `values`, end to end, and their offsets."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    index = np.arange(offsets[-1])
    index += np.repeat(starts - offsets[:-1], lengths)
    # Offsets are checked when a store is opened, so no index is outside: `clip` spares numpy looking for one.
    return values.take(index, mode="clip"), offsets


def _open_side(folder: Path, name: str, said: SideManifest, pairs: int) -> Side:
    """Map the files of one side, if they are what the manifest says."""
    for file, size in said.sizes(name, pairs).items():
        path = folder / file
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            raise ValueError(f"{path} is damaged: it should have {size:,} bytes but {_has(found)}.")
    side = Side(
        ids=_mapped(folder / f"{name}.ids", said.dtype),
        offsets=_mapped(folder / f"{name}.offsets", "int64"),
        lengths=_mapped(folder / f"{name}.lengths", "int32"),
        longest=said.longest,
        text=None if said.text is None else _mapped(folder / f"{name}.text", "uint8"),
        text_offsets=None if said.text is None else _mapped(folder / f"{name}.text-offsets", "int64"),
    )
    _check_offsets(folder / f"{name}.offsets", side.offsets, side.lengths, said.tokens)
    if side.text_offsets is not None:
        _check_offsets(folder / f"{name}.text-offsets", side.text_offsets, None, said.text or 0)
    return side


def _has(size: int | None) -> str:
    """How a file's true size is told."""
    return "is missing" if size is None else f"has {size:,}"


def _check_offsets(path: Path, offsets: NDArray[np.int64], lengths: NDArray[np.int32] | None, total: int) -> None:
    """Offsets must rise from 0 to the total by the lengths, so that no gather can leave the file."""
    sound = offsets[0] == 0 and offsets[-1] == total
    for start in range(0, len(offsets) - 1, _BLOCK):
        steps = np.diff(offsets[start : start + _BLOCK + 1])
        sound &= bool((steps >= 0).all())
        sound &= lengths is None or np.array_equal(steps, lengths[start : start + _BLOCK])
    if not sound:
        raise ValueError(f"{path} is damaged: its offsets do not add up.")


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    """The numbers in a file, mapped, not read."""
    little = np.dtype(dtype).newbyteorder("<")
    if path.stat().st_size == 0:
        return np.empty(0, little)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, little, mode="r"))
