"""An encoded corpus in memory-mapped files: `regard.data.build` writes it, batches are gathered from it.

A store is a folder. For each field of a record it has

    <field>.ids           the ids of all records, concatenated; uint16, or int32 if the vocabulary needs it. A field
                          without a vocabulary has numbers in their place: pixels in uint8, measurements in float32
    <field>.offsets       where each record begins, and the total at the end; int64
    <field>.lengths       number of ids of each record; int32
    <field>.text          where raw text is kept: its UTF-8 bytes, concatenated
    <field>.text-offsets  and where each text begins; int64

all little-endian, and `manifest.json`, written last, with the size and a checksum of every file. Nothing is kept in
memory, so a corpus takes disk space only.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Protocol, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from regard.data.filters import FilterReport
from regard.data.rows import Lengths, Numbers, Rows, gather_slices
from regard.files import checksum, checksum_of, fsync_path

VERSION: Literal[2] = 2
"""Version of the format; part of every fingerprint, so stores of other versions are rebuilt, not misread."""

Dtype = Literal["uint8", "uint16", "int32", "float32"]
"""The types of numbers in a store. A version that knows fewer types refuses a manifest with another one."""

MANIFEST = "manifest.json"
_BLOCK = 1 << 20


class Records(Protocol):
    """Random access to encoded records: a store, or a view of one."""

    @property
    def tags(self) -> Mapping[str, int]:
        """For each tagged field, the id that each of its rows begins with."""

    @property
    def lengths(self) -> Mapping[str, Lengths]:
        """For each field, the number of ids of each record."""

    @property
    def longest(self) -> Mapping[str, int]:
        """For each field, the largest number of ids of a record."""

    def __len__(self) -> int:
        """Return the number of records."""

    def gather(self, indices: Lengths) -> dict[str, Rows]:
        """Return the ids of the records with these indices, by field."""

    def text(self, indices: Lengths) -> dict[str, list[str]]:
        """Return the raw values of the records with these indices, by field; tags are not part of them."""


class FieldManifest(BaseModel):
    """The part of a manifest about one field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype
    tokens: NonNegativeInt
    longest: NonNegativeInt
    text: NonNegativeInt | None
    """Number of bytes of raw text, or None if it was not kept."""

    def sizes(self, name: str, records: int) -> dict[str, int]:
        """Return the files of this field and the size of each in bytes."""
        files = {
            f"{name}.ids": self.tokens * np.dtype(self.dtype).itemsize,
            f"{name}.offsets": 8 * (records + 1),
            f"{name}.lengths": 4 * records,
        }
        if self.text is not None:
            files |= {f"{name}.text": self.text, f"{name}.text-offsets": 8 * (records + 1)}
        return files


class Manifest(BaseModel):
    """The contents of `manifest.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2]
    records: PositiveInt
    tags: dict[str, NonNegativeInt]
    fields: dict[str, FieldManifest]
    report: FilterReport
    checksums: dict[str, str] | None = None
    """Checksum of every file, and of the rest of the manifest; stores of earlier builds have none."""

    @property
    def own_checksum(self) -> str:
        """Checksum of the manifest without its checksums."""
        return checksum_of(memoryview(self.model_dump_json(exclude={"checksums"}).encode()))

    def sealed(self, folder: Path) -> "Manifest":
        """Return the manifest with the checksums of all files in the folder."""
        checksums = {name: checksum(folder / name) for name in self.sizes()}
        return self.model_copy(update={"checksums": {**checksums, MANIFEST: self.own_checksum}})

    def sizes(self) -> dict[str, int]:
        """Return all files of the store and the size of each in bytes."""
        return {
            file: size for name, field in self.fields.items() for file, size in field.sizes(name, self.records).items()
        }


@dataclass(frozen=True)
class StoredField:
    """The memory-mapped arrays of one field: record i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int32] | NDArray[np.float32]
    offsets: Numbers
    lengths: NDArray[np.int32]
    longest: int
    text: NDArray[np.uint8] | None
    text_offsets: Numbers | None

    def rows(self, indices: Lengths) -> Rows:
        """Return the ids of the records with these indices; those stored in 16 bits become int32."""
        ids, offsets = gather_slices(self.ids, self.offsets[indices], self.lengths[indices])
        return Rows(ids.astype(np.int32) if ids.dtype == np.uint16 else ids, offsets)

    def texts(self, indices: Lengths) -> list[str]:
        """Return the raw text of the records with these indices."""
        if self.text is None or self.text_offsets is None:
            raise ValueError("This store was built without its text. Build it with keep_text=True.")
        starts = self.text_offsets[indices]
        data, offsets = gather_slices(self.text, starts, self.text_offsets[np.asarray(indices) + 1] - starts)
        text, ends = data.tobytes(), offsets.tolist()
        return [text[start:end].decode() for start, end in pairwise(ends)]


class Store:
    """The records of a corpus as ids, on disk."""

    def __init__(self, folder: Path, manifest: Manifest, fields: Mapping[str, StoredField]) -> None:
        """Use `Store.open` to read a store from a folder."""
        self.folder = folder
        self._manifest = manifest
        self.fields = dict(fields)
        self.report: FilterReport = manifest.report
        """Numbers of records read, kept and dropped when the store was built."""
        self.tags: dict[str, int] = manifest.tags
        """For each tagged field, the id that each row begins with; code that re-encodes the text must prepend it."""
        self.lengths = {name: field.lengths for name, field in fields.items()}
        self.longest = {name: field.longest for name, field in fields.items()}
        self._records = manifest.records
        self._selected: Numbers | None = None

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open a store.

        Raises:
            ValueError: If the folder is not a complete store of this version.
        """
        path = folder / MANIFEST
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(f"{folder} is not a store: it has no {MANIFEST}.") from None
        except ValidationError as error:
            raise ValueError(f"{path} is damaged or of another version ({error.error_count()} faults).") from error
        fields = {
            name: _open_field(folder, name, expected, manifest.records) for name, expected in manifest.fields.items()
        }
        return cls(folder, manifest, fields)

    def verify(self) -> None:
        """Read all files once; raise a ValueError if one is not as it was written."""
        checksums = self._manifest.checksums
        if checksums is None:
            return
        changed = [name for name in self._manifest.sizes() if checksum(self.folder / name) != checksums.get(name)]
        changed += [MANIFEST] * (checksums.get(MANIFEST) != self._manifest.own_checksum)
        if changed:
            raise ValueError(f"{self.folder / changed[0]} is damaged: it is not as it was written.")

    def select(self, indices: Numbers) -> "Store":
        """Return a view of this store that has only the records with these indices."""
        view = copy(self)
        view._selected = self._checked(indices).astype(np.int64)
        view._records = len(indices)
        view.lengths = {name: lengths[indices] for name, lengths in self.lengths.items()}
        view.longest = {name: int(lengths.max(initial=0)) for name, lengths in view.lengths.items()}
        return view

    def __reduce__(self) -> tuple[Callable[[Path, Numbers | None], "Store"], tuple[Path, Numbers | None]]:
        """Pickle as the path of the folder, and the indices of a view."""
        return _reopen, (self.folder, self._selected)

    def __len__(self) -> int:
        """Return the number of records."""
        return self._records

    def tokens(self, name: str) -> int:
        """Return the total number of ids of a field."""
        return int(self.fields[name].offsets[-1] if self._selected is None else self.lengths[name].sum())

    def record_numbers(self, indices: Lengths) -> list[int]:
        """Return which records of the whole store these are, counted from 1; their lines, if none was dropped."""
        return [int(index) + 1 for index in self._checked(indices)]

    def gather(self, indices: Lengths) -> dict[str, Rows]:
        """Return the ids of the records with these indices, by field; an index may occur twice."""
        indices = self._checked(indices)
        return {name: field.rows(indices) for name, field in self.fields.items()}

    def column(self, name: str) -> Rows:
        """Return the ids of one field of all records."""
        return self.fields[name].rows(self._checked(np.arange(len(self))))

    def text(self, indices: Lengths) -> dict[str, list[str]]:
        """Return the raw values of these records, by field, without tags; only if the text was kept."""
        indices = self._checked(indices)
        return {name: field.texts(indices) for name, field in self.fields.items()}

    def _checked(self, indices: Lengths) -> Lengths:
        """Return the indices in the files, as an array; raise an IndexError if one is out of range."""
        indices = np.asarray(indices)
        if indices.size and not (indices.min() >= 0 and indices.max() < len(self)):
            raise IndexError(f"the store has records 0 to {len(self) - 1}, not {indices.min()} to {indices.max()}")
        indices = indices if indices.size else indices.astype(np.int64)
        return indices if self._selected is None else self._selected[indices]


def _reopen(folder: Path, selected: Numbers | None) -> Store:
    """Open a store, or a view of it; for pickle."""
    store = Store.open(folder)
    return store if selected is None else store.select(selected)


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """The encoded values of one field for some records, with their raw text if it is to be kept."""

    ids: NDArray[Any]
    lengths: Numbers
    text: bytes | None
    text_lengths: Numbers | None


class FieldWriter:
    """Appends the values of one field to the files of a new store."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any], keep_text: bool) -> None:
        """Create the files of a field in a folder."""
        if dtype.name not in get_args(Dtype):
            raise ValueError(f"a store has numbers of the types {', '.join(get_args(Dtype))}, not {dtype.name}")
        self._dtype = cast(Dtype, dtype.name)
        self._longest = 0
        self._open = ExitStack()
        suffixes = ["ids", "offsets", "lengths"] + ["text", "text-offsets"] * keep_text
        self._paths = {suffix: folder / f"{name}.{suffix}" for suffix in suffixes}
        self._files: dict[str, BinaryIO] = {
            suffix: self._open.enter_context(path.open("wb")) for suffix, path in self._paths.items()
        }
        self._ids = _OffsetsWriter(self._files["offsets"])
        self._text = _OffsetsWriter(self._files["text-offsets"]) if keep_text else None

    def __enter__(self) -> Self:
        """Close the files when the block is left."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._open.__exit__(kind, error, trace)

    def append(self, column: EncodedColumn) -> None:
        """Write the values of more records."""
        self._files["ids"].write(column.ids.data)
        self._files["lengths"].write(column.lengths.astype("<i4").data)
        self._ids.append(column.lengths)
        self._longest = max(self._longest, int(column.lengths.max(initial=0)))
        if self._text is not None and column.text is not None and column.text_lengths is not None:
            self._files["text"].write(column.text)
            self._text.append(column.text_lengths)

    def finish(self) -> FieldManifest:
        """Close the files, wait until they are on disk, and describe them."""
        self._open.close()
        for path in self._paths.values():
            fsync_path(path)
        text = None if self._text is None else self._text.total
        return FieldManifest(dtype=self._dtype, tokens=self._ids.total, longest=self._longest, text=text)


class _OffsetsWriter:
    """Writes a file of offsets from lengths."""

    def __init__(self, file: BinaryIO) -> None:
        self.total = 0
        self._file = file
        file.write(np.zeros(1, "<i8").data)

    def append(self, lengths: Numbers) -> None:
        """Write where each of these records ends."""
        self._file.write((self.total + np.cumsum(lengths)).astype("<i8").data)
        self.total += int(lengths.sum())


def _open_field(folder: Path, name: str, expected: FieldManifest, records: int) -> StoredField:
    """Map the files of one field after checking them against the manifest."""
    for file, size in expected.sizes(name, records).items():
        path = folder / file
        actual_size = path.stat().st_size if path.is_file() else None
        if actual_size != size:
            actual = "is missing" if actual_size is None else f"has {actual_size:,}"
            raise ValueError(f"{path} is damaged: it should have {size:,} bytes but {actual}.")
    field = StoredField(
        ids=_map(folder / f"{name}.ids", expected.dtype),
        offsets=_map(folder / f"{name}.offsets", "int64"),
        lengths=_map(folder / f"{name}.lengths", "int32"),
        longest=expected.longest,
        text=None if expected.text is None else _map(folder / f"{name}.text", "uint8"),
        text_offsets=None if expected.text is None else _map(folder / f"{name}.text-offsets", "int64"),
    )
    _check_offsets(folder / f"{name}.offsets", field.offsets, field.lengths, expected.tokens)
    if field.text_offsets is not None:
        _check_offsets(folder / f"{name}.text-offsets", field.text_offsets, None, expected.text or 0)
    return field


def _check_offsets(path: Path, offsets: Numbers, lengths: NDArray[np.int32] | None, total: int) -> None:
    """Raise a ValueError unless offsets rise from 0 to the total by the lengths, so that no gather leaves the file."""
    valid = offsets[0] == 0 and offsets[-1] == total
    for start in range(0, len(offsets) - 1, _BLOCK):
        steps = np.diff(offsets[start : start + _BLOCK + 1])
        valid &= bool((steps >= 0).all())
        valid &= lengths is None or np.array_equal(steps, lengths[start : start + _BLOCK])
    if not valid:
        raise ValueError(f"{path} is damaged: its offsets do not add up.")


def _map(path: Path, dtype: str) -> NDArray[Any]:
    """Map the numbers in a file into memory, without reading them."""
    little = np.dtype(dtype).newbyteorder("<")
    if path.stat().st_size == 0:
        return np.empty(0, little)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, little, mode="r"))
