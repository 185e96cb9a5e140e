"""Kinds whose tokens are whole units, words or characters: one table look-up each.

SentencePiece would run neighbouring unknown words together into one `<unk>`; here each is its own.
"""

import re
from collections.abc import Mapping, Sequence

from regard.text.settings import SPACE, UNK, Settings
from regard.text.spans import Segment


class Lookup:
    """Encodes normalised lines for the kinds `word` and `char`."""

    def __init__(self, settings: Settings, table: Mapping[str, int], bytewise: Sequence[int]) -> None:
        """Take the table from unit to id (words without their space), and the ids of the 256 bytes if there are any."""
        self.table, self.bytewise = table, bytewise
        self.wordwise = settings.kind == "word"
        symbols = "|".join(re.escape(symbol) for symbol in sorted(settings.symbols, key=len, reverse=True))
        word = rf"(?:(?!{symbols})[^{SPACE}])+" if symbols else rf"[^{SPACE}]+"
        unit = word if self.wordwise else "."
        self.unit = re.compile(f"{symbols}|{unit}" if symbols else unit, re.DOTALL)

    def units(self, text: str) -> list[str]:
        """The words or characters of a normalised line."""
        return self.unit.findall(text)

    def ids(self, text: str) -> list[int]:
        """The ids of a normalised line."""
        get = self.table.get
        if not self.bytewise:
            return [get(unit, UNK) for unit in self.unit.findall(text)]
        found: list[int] = []
        for unit in self.unit.findall(text):
            known = get(unit)
            found += self._spell(unit) if known is None else [known]
        return found

    def segments(self, text: str) -> list[Segment]:
        """The ids of a normalised line, each with its characters there."""
        found: list[Segment] = []
        for match in self.unit.finditer(text):
            begin, end = match.span()
            known = self.table.get(match[0])
            if known is not None or not self.bytewise:
                found.append((UNK if known is None else known, begin, end))
                continue
            if self.wordwise:
                found.append((self.bytewise[0x20], begin - text.startswith(SPACE, begin - 1), begin))
            for at in range(begin, end):
                found += [(self.bytewise[byte], at, at + 1) for byte in text[at].encode()]
        return found

    def _spell(self, unit: str) -> list[int]:
        """A unit the table lacks, byte by byte; a word brings the space before it."""
        return [self.bytewise[byte] for byte in (" " + unit if self.wordwise else unit).encode()]
