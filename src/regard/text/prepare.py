"""What happens to a line before SentencePiece sees it: every step keeps track of the original characters.

Lone surrogates (which UTF-8 cannot hold) become U+FFFD; where white space collapses, each white-space character and
each `▁` becomes a plain space; then the line is lower-cased if asked. Only lower-casing may change a line's length
(İ becomes two characters), and `Prepare.origins` says which character each came from.
"""

import re
from collections.abc import Iterable

from regard.text.settings import SPACE, Settings

_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITE = re.compile(rf"\s|{SPACE}")


class Prepare:
    """The steps that come before SentencePiece, for one tokenizer's settings."""

    def __init__(self, settings: Settings) -> None:
        """Read from the settings which steps apply."""
        self.collapses = settings.collapses
        self.lowercase = settings.lowercase
        # Lower-casing must not reach into a symbol that is written with capitals.
        capital = [re.escape(symbol) for symbol in settings.symbols if symbol != symbol.lower()]
        self.kept = re.compile("(" + "|".join(sorted(capital, key=len, reverse=True)) + ")") if capital else None

    def line(self, line: str) -> str:
        """The line as SentencePiece is given it."""
        # Surrogates and white space other than the plain space are unprintable, so most lines pass untouched.
        if not line.isprintable():
            line = _SURROGATE.sub("\ufffd", line)
            if self.collapses:
                line = _WHITE.sub(" ", line)
        elif self.collapses and SPACE in line:
            line = line.replace(SPACE, " ")
        return self._lower(line) if self.lowercase else line

    def lines(self, lines: Iterable[str]) -> list[str]:
        """Many lines as SentencePiece is given them."""
        return [self.line(line) for line in lines]

    def origins(self, line: str) -> list[int]:
        """For each character of the prepared line, and for its end, the position in the original line."""
        if not self.lowercase or len(self._lower(line)) == len(line):
            return list(range(len(line) + 1))
        found: list[int] = []
        at = 0
        for part, lowered in self._parts(line):
            for character in part:
                found += [at] * (len(character.lower()) if lowered else 1)
                at += 1
        return [*found, at]

    def _lower(self, line: str) -> str:
        return "".join(part.lower() if lowered else part for part, lowered in self._parts(line))

    def _parts(self, line: str) -> list[tuple[str, bool]]:
        """The line cut at symbols that keep their capitals; true where a part is to be lower-cased."""
        if self.kept is None:
            return [(line, True)]
        return [(part, at % 2 == 0) for at, part in enumerate(self.kept.split(line))]
