"""Duplicates are exactly the pairs a plain set has seen before, however small the parts are that memory holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Chunk
from regard.data.dedupe import find_duplicates

SIDE = st.sampled_from(["", "a", "b", "ab", "ä", "\0", "a\0"])


def chunked(pairs: list[tuple[str, str]], size: int) -> list[Chunk]:
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [Chunk(1 + i * size, [s for s, _ in part], [t for _, t in part]) for i, part in enumerate(parts)]


def seen_before(pairs: list[tuple[str, str]]) -> list[bool]:
    seen: set[tuple[str, str]] = set()
    repeated = []
    for pair in pairs:
        repeated.append(pair in seen)
        seen.add(pair)
    return repeated


@given(pairs=st.lists(st.tuples(SIDE, SIDE)), size=st.integers(1, 9), part=st.integers(1, 100))
def test_duplicates_are_those_a_set_has_seen_before(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], size: int, part: int
) -> None:
    scratch = tmp_path_factory.mktemp("dedupe") / "hashes"
    found = find_duplicates(chunked(pairs, size), scratch, tick=lambda: None, part=part)
    assert found.tolist() == seen_before(pairs)
    assert not scratch.exists()


def test_many_pairs_in_many_parts(tmp_path: Path) -> None:
    pairs = [(str(i * i % 7919), str(i % 3)) for i in range(50_000)]
    ticks: list[None] = []
    chunks = chunked(pairs, 1000)
    found = find_duplicates(chunks, tmp_path / "hashes", tick=lambda: ticks.append(None), part=1000)
    assert found.tolist() == seen_before(pairs)
    assert len(ticks) == len(chunks)


def test_the_scratch_file_goes_when_reading_fails(tmp_path: Path) -> None:
    def broken() -> Iterator[Chunk]:
        yield Chunk(1, ["a"], ["b"])
        raise ValueError("line 2 is broken")

    with pytest.raises(ValueError, match="line 2"):
        find_duplicates(broken(), tmp_path / "hashes", tick=lambda: None)
    assert not list(tmp_path.iterdir())
