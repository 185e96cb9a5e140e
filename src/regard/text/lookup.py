"""Encoding for the kinds whose tokens are whole units, words or characters: one table look-up per unit.

SentencePiece would merge neighbouring unknown words into a single `<unk>`; here each has its own.
"""

import re
from collections.abc import Mapping, Sequence

from regard.text.settings import SPACE, UNK, TokenizerSettings
from regard.text.spans import Segment


class LookupEncoder:
    """Encodes normalised text for the kinds `word` and `char`."""

    def __init__(self, settings: TokenizerSettings, table: Mapping[str, int], byte_ids: Sequence[int]) -> None:
        """Store the tables.

        Args:
            settings: The settings of the tokenizer.
            table: The id of each unit; words without their space.
            byte_ids: The ids of the 256 bytes, or nothing if the vocabulary has no bytes.
        """
        self.table, self.byte_ids = table, byte_ids
        self.has_words = settings.kind == "word"
        symbols = "|".join(re.escape(symbol) for symbol in sorted(settings.symbols, key=len, reverse=True))
        word = rf"(?:(?!{symbols})[^{SPACE}])+" if symbols else rf"[^{SPACE}]+"
        unit = word if self.has_words else "."
        self.unit = re.compile(f"{symbols}|{unit}" if symbols else unit, re.DOTALL)

    def units(self, text: str) -> list[str]:
        """Split normalised text into words or characters."""
        return self.unit.findall(text)

    def ids(self, text: str) -> list[int]:
        """Encode normalised text."""
        get = self.table.get
        if not self.byte_ids:
            return [get(unit, UNK) for unit in self.unit.findall(text)]
        ids: list[int] = []
        for unit in self.unit.findall(text):
            number = get(unit)
            if number is None:
                # A word spelled in bytes needs the space before it; a word in the table implies it.
                ids += [self.byte_ids[byte] for byte in (" " + unit if self.has_words else unit).encode()]
            else:
                ids.append(number)
        return ids

    def segments(self, text: str) -> list[Segment]:
        """Encode normalised text, and return the span of each token in it."""
        segments: list[Segment] = []
        for match in self.unit.finditer(text):
            begin, end = match.span()
            number = self.table.get(match[0])
            if number is not None or not self.byte_ids:
                segments.append((UNK if number is None else number, begin, end))
                continue
            if self.has_words:
                segments.append((self.byte_ids[0x20], begin - text.startswith(SPACE, begin - 1), begin))
            for position in range(begin, end):
                segments += [(self.byte_ids[byte], position, position + 1) for byte in text[position].encode()]
        return segments
