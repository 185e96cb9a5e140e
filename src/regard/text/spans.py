"""From the tokens of normalised text to characters and words of the original text."""

from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from regard.text.words import word_of, words

Segment = tuple[int, int, int]
"""The id of a token and its characters `[begin, end)` in the normalised text."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text: its piece and id, its characters `text[start:end]`, and the index of its word.

    A piece that is one byte of a character has the span of the whole character. `word` is None only if the text has no
    words.
    """

    piece: str
    id: int
    start: int
    end: int
    word: int | None


def segments(ids: Sequence[int], pieces: Sequence[str], text: str, byte_ids: Container[int]) -> Iterator[Segment]:
    """Yield the span in the normalised text of each of SentencePiece's pieces; an unknown piece is its own text."""
    position = left = 0  # left: bytes of the character at `position` that are still to come
    for number, piece in zip(ids, pieces, strict=True):
        if number in byte_ids:
            left = left or len(text[position].encode())
            yield number, position, position + 1
            left -= 1
            position += left == 0
        else:
            yield number, position, position + len(piece)
            position += len(piece)


def decoded_spans(surfaces: Sequence[bytes], text: str, prefixed: bool) -> list[tuple[int, int, int | None]]:
    """Return start, end and word of each token in decoded text.

    Args:
        surfaces: The bytes that each token stands for.
        text: The text that these bytes make together.
        prefixed: Whether the bytes may begin with a space that the text does not have.
    """
    word_spans = words(text)
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    shift = int(prefixed and b"".join(surfaces).startswith(b" "))
    spans, position = [], -shift
    for surface in surfaces:
        part = decoder.decode(surface)
        # A byte that leaves a character incomplete has the span of the whole character, and so have those that
        # complete it.
        incomplete = bool(decoder.getstate()[0])
        start, end = position + len(part) - len(part.lstrip()), position + len(part) + incomplete
        position += len(part)
        start = max(0, min(start, end - 1))
        spans.append((start, max(start, min(end, len(text))), word_of(word_spans, start)))
    return spans


class OriginalSpans:
    """Maps spans of normalised text to the original text."""

    def __init__(self, text: str, origins: Sequence[int], offsets: Sequence[int], prefixed: bool) -> None:
        """Store the maps.

        Args:
            text: The original text.
            origins: The position in the original text of each prepared character, and of the end.
            offsets: The position in the prepared text of each normalised character, and of the end.
            prefixed: Whether the normalised text begins with a space that the original does not have.
        """
        self.text, self.origins, self.offsets, self.prefixed = text, origins, offsets, prefixed
        self.words = words(text)

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Return the original characters of the normalised `[begin, end)`.

        White space at either side is left out, unless there is nothing else. Characters that were normalised together
        (½ to 1⁄2, e and ´ to é) always have the same span.
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
        inner = self.text[start:stop]
        if not inner.strip():
            return start, stop
        return stop - len(inner.lstrip()), start + len(inner.rstrip())

    def token(self, piece: str, segment: Segment) -> Token:
        """Return the token of a segment, with its span in the original text."""
        number, begin, end = segment
        start, stop = self.span(begin, end)
        return Token(piece, number, start, stop, word_of(self.words, start))
