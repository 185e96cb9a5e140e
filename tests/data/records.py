"""Encoded records for tests: lists of ids as `Rows`, as records in memory, and as a store on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from regard.data.filters import FilterReport
from regard.data.rows import Lengths, Numbers, Rows, offsets_of
from regard.data.store import VERSION, EncodedColumn, FieldWriter, Manifest, Store

Record = Mapping[str, Sequence[int]]
"""The ids of each field."""


def rows_from(lists: Sequence[Sequence[int]]) -> Rows:
    """Rows of these ids."""
    lengths = np.array([len(ids) for ids in lists], np.int64)
    return Rows(np.array([number for ids in lists for number in ids], np.int32), offsets_of(lengths))


def lists_from(rows: Rows) -> list[list[int]]:
    """The ids of each row."""
    return [rows.ids[start:stop].tolist() for start, stop in pairwise(rows.offsets.tolist())]


@dataclass(frozen=True)
class MemoryRecords:
    """Records that never touch the disk; their text spells their ids."""

    fields: tuple[str, ...]
    records: Sequence[Record]
    tags: Mapping[str, int]
    has_text: bool = True

    @classmethod
    def of(cls, records: Sequence[Record], **tags: int) -> "MemoryRecords":
        """The records, which already begin with the tags."""
        return cls(tuple(records[0]) if records else (), records, tags)

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def lengths(self) -> dict[str, Numbers]:
        return {name: np.array([len(record[name]) for record in self.records]) for name in self.fields}

    @cached_property
    def longest(self) -> dict[str, int]:
        return {name: int(lengths.max()) for name, lengths in self.lengths.items()}

    def gather(self, indices: Lengths) -> dict[str, Rows]:
        return {name: rows_from([self.records[index][name] for index in indices]) for name in self.fields}

    def text(self, indices: Lengths) -> dict[str, list[str]]:
        if not self.has_text:
            raise ValueError("this store was built without its text")
        return {
            name: [" ".join(map(str, self.records[index][name][int(name in self.tags) :])) for index in indices]
            for name in self.fields
        }


def random_records(fields: Sequence[str], size: int, seed: int = 0, longest: int = 8) -> MemoryRecords:
    """Records of random ids, of 0 to `longest` each; a field called `label` always has one."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(4, 999, (size, len(fields), longest)).tolist()
    lengths = draw.integers(0, longest + 1, (size, len(fields))).tolist()
    return MemoryRecords.of(
        [
            {name: row[at][: 1 if name == "label" else counts[at]] for at, name in enumerate(fields)}
            for row, counts in zip(ids, lengths, strict=True)
        ]
    )


def write_store(
    folder: Path, records: Sequence[Record], dtype: str = "<u2", texts: Sequence[Mapping[str, str]] | None = None
) -> Store:
    """A store of these records, written in two parts; with their texts if they are given."""
    folder.mkdir(exist_ok=True)
    fields = {}
    for name in records[0]:
        with FieldWriter(folder, name, np.dtype(dtype), keep_text=texts is not None) as writer:
            for part in (slice(0, 1), slice(1, None)):
                rows = rows_from([record[name] for record in records[part]])
                data = [text[name].encode() for text in texts[part]] if texts is not None else []
                writer.append(
                    EncodedColumn(
                        rows.ids.astype(dtype),
                        rows.lengths,
                        b"".join(data) if texts is not None else None,
                        np.array([len(text) for text in data], np.int64) if texts is not None else None,
                    )
                )
            fields[name] = writer.finish()
    report = FilterReport(read=len(records), kept=len(records))
    manifest = Manifest(version=VERSION, records=len(records), tags={}, fields=fields, report=report)
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Store.open(folder)
