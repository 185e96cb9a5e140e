"""From tokens of a normalised line to characters and words of the original one."""

from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from regard.text.words import word_of, words

Segment = tuple[int, int, int]
"""A token's id and the characters `[begin, end)` of the normalised line it stands for."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a line: its piece and id, its characters `line[start:end]`, and the index of its word.

    A piece that is one byte of a character has the whole character's span. `word` is None only in a line without words.
    """

    piece: str
    id: int
    start: int
    end: int
    word: int | None


def segments(ids: Sequence[int], pieces: Sequence[str], text: str, bytewise: Container[int]) -> Iterator[Segment]:
    """Walk the normalised line along SentencePiece's pieces; an unknown piece is written as its own text."""
    at = left = 0  # left: bytes of the character at `at` that are still to come
    for number, piece in zip(ids, pieces, strict=True):
        if number in bytewise:
            left = left or len(text[at].encode())
            yield number, at, at + 1
            left -= 1
            at += left == 0
        else:
            yield number, at, at + len(piece)
            at += len(piece)


def placed(surfaces: Sequence[bytes], text: str, prefixed: bool) -> list[tuple[int, int, int | None]]:
    """Start, end and word of each token in the text that their bytes make together.

    `prefixed`: the bytes open with a space that the text does not have.
    """
    spans = words(text)
    reader = getincrementaldecoder("utf-8")(errors="replace")
    shift = int(prefixed and b"".join(surfaces).startswith(b" "))
    found, at = [], -shift
    for surface in surfaces:
        part = reader.decode(surface)
        # A byte that leaves a character unfinished stands for that whole character, and so do those that finish it.
        open_end = bool(reader.getstate()[0])
        start, end = at + len(part) - len(part.lstrip()), at + len(part) + open_end
        at += len(part)
        start = max(0, min(start, end - 1))
        found.append((start, max(start, min(end, len(text))), word_of(spans, start)))
    return found


class Places:
    """Where the characters of a normalised line lie in the original one."""

    def __init__(self, line: str, origins: Sequence[int], offsets: Sequence[int], prefixed: bool) -> None:
        """Join `offsets` (normalised to prepared) with `origins` (prepared to original); each has one more, the end.

        `prefixed`: the normalised line opens with a space that the original does not have.
        """
        self.line, self.origins, self.offsets, self.prefixed = line, origins, offsets, prefixed
        self.words = words(line)

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The original characters behind `[begin, end)`, without white space at the sides unless there is no other.

        Characters that were normalised together (½ to 1⁄2, e and ´ to é) are always taken together.
        """
        begin = max(begin, int(self.prefixed))
        first = self.offsets[begin]
        if begin >= end:
            return self.origins[first], self.origins[first]
        last = self.offsets[end - 1]
        after = bisect_right(self.offsets, last)
        past = self.offsets[after] if after < len(self.offsets) else last
        start, stop = self.origins[first], self.origins[past]
        if past > first and stop == self.origins[past - 1]:
            stop += 1  # the end falls inside what one original character became
        inner = self.line[start:stop]
        if not inner.strip():
            return start, stop
        return stop - len(inner.lstrip()), start + len(inner.rstrip())

    def token(self, piece: str, segment: Segment) -> Token:
        """A segment with its place in the original line."""
        number, begin, end = segment
        start, stop = self.span(begin, end)
        return Token(piece, number, start, stop, word_of(self.words, start))
