"""Terminology: the translation that each phrase of a source must have."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from regard.files import read_lines

_UNIT = re.compile(r"\w+|[^\w\s]")


class Terminology:
    """A table of source phrases and their translations.

    Letter case is ignored in the source, and only whole words match.

    >>> Terminology({"dog": "Hund"}).required_in("The Dog barks")
    ('Hund',)
    """

    def __init__(self, table: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        """Take pairs of source phrase and target phrase; a later pair replaces an earlier one of the same source."""
        pairs = dict(table.items() if isinstance(table, Mapping) else table)
        self._table = {tuple(_UNIT.findall(source.casefold())): target for source, target in pairs.items()}
        self._table.pop((), None)
        self._longest = max(map(len, self._table), default=0)

    @classmethod
    def read(cls, path: str | Path) -> "Terminology":
        """Read a file with two tab-separated columns; empty lines and lines that start with # are skipped."""
        return cls(_pairs(Path(path)))

    def __len__(self) -> int:
        """Return the number of phrases."""
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        """Compare two tables."""
        return isinstance(other, Terminology) and self._table == other._table

    def __hash__(self) -> int:
        """Hash the table, so that options that hold it can be dictionary keys."""
        return hash(frozenset(self._table.items()))

    def required_in(self, line: str) -> tuple[str, ...]:
        """Return the phrases that the translation of a line must contain, each once.

        Where several source phrases start at the same word, the longest counts.
        """
        if not self._table:
            return ()
        units = _UNIT.findall(line.casefold())
        required: dict[str, None] = {}
        position = 0
        while position < len(units):
            for size in range(min(self._longest, len(units) - position), 0, -1):
                target = self._table.get(tuple(units[position : position + size]))
                if target is not None:
                    required[target] = None
                    position += size - 1
                    break
            position += 1
        return tuple(required)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    number = 0
    for lines in read_lines(path):
        for line in lines:
            number += 1
            if not line.strip() or line.startswith("#"):
                continue
            source, tab, target = line.partition("\t")
            if not tab or not source.strip() or not target.strip():
                raise ValueError(
                    f"{path}, line {number}: {line!r} is not a term; write a source phrase, a tab and a target phrase"
                )
            yield source, target.strip()


def read_phrases(path: str | Path) -> tuple[str, ...]:
    """Read a file with one phrase a line; empty lines are skipped."""
    return tuple(line.strip() for lines in read_lines(Path(path)) for line in lines if line.strip())
