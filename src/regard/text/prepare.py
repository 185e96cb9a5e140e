"""Steps before SentencePiece, each of which keeps track of the original characters.

Lone surrogates, which UTF-8 cannot encode, become U+FFFD. Where white space collapses, each white-space character and
each `▁` becomes a plain space. Then the line is lower-cased if the settings say so. Only lower-casing can change the
length of a line (İ becomes two characters); `Preparation.origins` maps each character back to where it came from.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from regard.text.settings import LINE_BREAK, SPACE, TokenizerSettings

_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITE_SPACE = re.compile(rf"\s|{SPACE}")


class Preparation:
    """The steps before SentencePiece that the settings of a tokenizer ask for."""

    def __init__(self, settings: TokenizerSettings) -> None:
        """Read the settings."""
        self.collapses = settings.collapses
        self.lowercase = settings.lowercase
        # Lower-casing must not change a symbol that has capitals.
        capital = [re.escape(symbol) for symbol in settings.symbols if symbol != symbol.lower()]
        self.cased = re.compile("(" + "|".join(sorted(capital, key=len, reverse=True)) + ")") if capital else None

    def line(self, line: str) -> str:
        """Return the line as SentencePiece gets it."""
        # Surrogates and white space other than the plain space are unprintable, so most lines need no regex.
        if not line.isprintable():
            line = _SURROGATE.sub("\ufffd", line)
            if self.collapses:
                line = _WHITE_SPACE.sub(" ", line)
        elif self.collapses and SPACE in line:
            line = line.replace(SPACE, " ")
        return self._lower(line) if self.lowercase else line

    def lines(self, lines: Iterable[str]) -> list[str]:
        """Return many lines as SentencePiece gets them."""
        return [self.line(line) for line in lines]

    def origins(self, line: str) -> list[int]:
        """Return the position in the original line of each character of the prepared line, and of its end."""
        if not self.lowercase or len(self._lower(line)) == len(line):
            return list(range(len(line) + 1))
        origins: list[int] = []
        position = 0
        for part, lowered in self._cased_parts(line):
            for character in part:
                origins += [position] * (len(character.lower()) if lowered else 1)
                position += 1
        return [*origins, position]

    def _lower(self, line: str) -> str:
        return "".join(part.lower() if lowered else part for part, lowered in self._cased_parts(line))

    def _cased_parts(self, line: str) -> list[tuple[str, bool]]:
        """Split a line at the symbols that keep their capitals; true marks a part to lower-case."""
        if self.cased is None:
            return [(line, True)]
        return [(part, index % 2 == 0) for index, part in enumerate(self.cased.split(line))]


def split_lines(text: str, longest: int, unsplit: Sequence[str] = ()) -> list[str]:
    """Split a document after each line break, and before a space where a line has more than `longest` characters.

    No piece crosses either place, so encoding the parts gives the tokens of the document. Only a word of more than
    `longest` characters is split elsewhere, but never inside one of the `unsplit` pieces.
    """
    *complete, last = text.split(LINE_BREAK)
    lines = [line + LINE_BREAK for line in complete]
    if last:
        lines.append(last)
    if len(text) <= longest or max(map(len, lines)) <= longest:
        return lines
    return [part for line in lines for part in _parts(line, longest, unsplit)]


def _parts(line: str, longest: int, unsplit: Sequence[str]) -> Iterator[str]:
    start = 0
    while len(line) - start > longest:
        end = line.rfind(" ", start + 1, start + longest + 1)
        if end < 0:
            end = start + longest
            for piece in unsplit:
                inside = line.find(piece, max(start, end - len(piece)) + 1, end + len(piece) - 1)
                end = end if inside < 0 else inside
        yield line[start:end]
        start = end
    yield line[start:]
