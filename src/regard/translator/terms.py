"""Terminology: phrases of the source and what each must become in the target."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from regard.files import read_lines

_UNIT = re.compile(r"\w+|[^\w\s]")


class Terms:
    """A table of phrases; letters are compared without their case, and only whole words are found."""

    def __init__(self, table: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        """Take pairs of source phrase and target phrase; of two with one source, the later counts."""
        pairs = dict(table.items() if isinstance(table, Mapping) else table)
        self._table = {tuple(_UNIT.findall(source.casefold())): target for source, target in pairs.items()}
        self._table.pop((), None)
        self._longest = max(map(len, self._table), default=0)

    @classmethod
    def read(cls, path: str | Path) -> "Terms":
        """Read a file of two columns parted by a tab; empty lines and lines that begin with # say nothing."""
        return cls(_pairs(Path(path)))

    def __len__(self) -> int:
        """How many phrases there are."""
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        """Equal tables ask for the same."""
        return isinstance(other, Terms) and self._table == other._table

    def __hash__(self) -> int:
        """Agrees with equality."""
        return hash(frozenset(self._table.items()))

    def of(self, line: str) -> tuple[str, ...]:
        """What must appear in the translation of a line, each phrase once; the longest phrase that fits is taken."""
        if not self._table:
            return ()
        units = _UNIT.findall(line.casefold())
        found: dict[str, None] = {}
        at = 0
        while at < len(units):
            for size in range(min(self._longest, len(units) - at), 0, -1):
                target = self._table.get(tuple(units[at : at + size]))
                if target is not None:
                    found[target] = None
                    at += size - 1
                    break
            at += 1
        return tuple(found)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    number = 0
    for lines in read_lines(path):
        for line in lines:
            number += 1
            if not line.strip() or line.startswith("#"):
                continue
            source, tab, target = line.partition("\t")
            if not tab or not source.strip() or not target.strip():
                raise ValueError(f"{path}, line {number}: {line!r} is no term; write source phrase, tab, target phrase")
            yield source, target.strip()


def read_phrases(path: str | Path) -> tuple[str, ...]:
    """The phrases of a file, one a line; empty lines say nothing."""
    return tuple(line.strip() for lines in read_lines(Path(path)) for line in lines if line.strip())
