"""Duplicates are exactly the records that a plain set has seen before, however few hashes fit into memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Chunk
from regard.data.dedupe import find_duplicates

VALUE = st.sampled_from(["", "a", "b", "ab", "ä", "\0", "a\0"])
RECORDS = st.integers(1, 3).flatmap(lambda fields: st.lists(st.tuples(*[VALUE] * fields)))


def chunked(records: list[tuple[str, ...]], size: int) -> list[Chunk]:
    parts = [records[start : start + size] for start in range(0, len(records), size)]
    return [
        Chunk(1 + number * size, {str(at): [record[at] for record in part] for at in range(len(part[0]))})
        for number, part in enumerate(parts)
    ]


def seen_before(records: list[tuple[str, ...]]) -> list[bool]:
    seen: set[tuple[str, ...]] = set()
    repeated = []
    for record in records:
        repeated.append(record in seen)
        seen.add(record)
    return repeated


@given(records=RECORDS, size=st.integers(1, 9), part=st.integers(1, 100))
def test_duplicates_are_those_a_set_has_seen_before(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, ...]], size: int, part: int
) -> None:
    scratch = tmp_path_factory.mktemp("dedupe") / "hashes"
    duplicates = find_duplicates(chunked(records, size), scratch, tick=lambda: None, part=part)
    assert duplicates.tolist() == seen_before(records)
    assert not scratch.exists()


def test_many_records_in_many_parts(tmp_path: Path) -> None:
    records: list[tuple[str, ...]] = [(str(number * number % 7919), str(number % 3)) for number in range(50_000)]
    ticks: list[None] = []
    chunks = chunked(records, 1000)
    duplicates = find_duplicates(chunks, tmp_path / "hashes", tick=lambda: ticks.append(None), part=1000)
    assert duplicates.tolist() == seen_before(records)
    assert len(ticks) == len(chunks)


def test_the_scratch_file_is_removed_when_reading_fails(tmp_path: Path) -> None:
    def broken() -> Iterator[Chunk]:
        yield Chunk(1, {"source": ["a"], "target": ["b"]})
        raise ValueError("line 2 is broken")

    with pytest.raises(ValueError, match="line 2"):
        find_duplicates(broken(), tmp_path / "hashes", tick=lambda: None)
    assert not list(tmp_path.iterdir())
