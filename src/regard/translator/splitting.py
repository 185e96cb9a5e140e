"""A line that is longer than a model has learned to read: where to cut it, and how to put its parts together again."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence

from regard.text import Tokenizer

Span = tuple[int, int]

# An end mark with what closes after it, then white space; scripts without spaces go on right after their full stop.
_SENTENCE_END = re.compile(r"""[.!?…؟۔।]+["'”’»›)\]]*(?=\s)|[。！？｡]+[」』”’）］]*""")
_SPACE = re.compile(r"\s+")


def split(line: str, tokenizer: Tokenizer, longest: int) -> list[Span]:
    """Spans of a line that have at most `longest` tokens each, in order: as few as sentence ends allow.

    A span ends where the last sentence that fits does; where none ends, at the last space; where there is none, at a
    token. White space between spans is left out.
    """
    # By itself a part may be cut into more tokens than it had in its line; it is then halved.
    return [part for span in _cut(line, tokenizer, longest) for part in _halved(line, span, tokenizer, longest)]


def join(parts: Sequence[str]) -> tuple[str, list[int]]:
    """Translations of a line's parts as one line, and where each begins; scripts without spaces get none between."""
    line, begins = "", []
    for part in parts:
        gap = " " if line and part and not _wide(line[-1]) and not _wide(part[0]) else ""
        begins.append(len(line) + len(gap))
        line += gap + part
    return line, begins


def leading_symbols(line: str, tokenizer: Tokenizer) -> tuple[list[int], int]:
    """The ids of symbols such as `<2de>` that a line begins with, and where the text after them begins."""
    found: list[int] = []
    at = _after_space(line, 0)
    while symbol := next((each for each in tokenizer.settings.symbols if line.startswith(each, at)), None):
        found.append(tokenizer.id(symbol))
        at = _after_space(line, at + len(symbol))
    return found, at


def _halved(line: str, span: Span, tokenizer: Tokenizer, longest: int) -> list[Span]:
    start, end = _stripped(line, span)
    if end - start <= 1 or len(tokenizer.encode(line[start:end])) <= longest:
        return [(start, end)] if end > start else []
    middle = (start + end) // 2
    halves = (start, middle), (middle, end)
    return [part for half in halves for part in _halved(line, half, tokenizer, longest)]


def _cut(line: str, tokenizer: Tokenizer, longest: int) -> list[Span]:
    """Spans that had at most `longest` tokens as parts of the line."""
    starts = [token.start for token in tokenizer.tokens(line)]
    sentences = [match.end() for match in _SENTENCE_END.finditer(line)]
    spaces = [match.start() for match in _SPACE.finditer(line)]
    spans, begin, first = [], 0, 0
    while len(starts) - first > longest:
        # Tokens that are bytes of one character all start with it, so a cut may have to go past it.
        limit = max(starts[first + longest], begin + 1)
        end = _last(sentences, begin, limit) or _last(spaces, begin, limit) or limit
        spans.append((begin, end))
        begin = end
        first = max(first + 1, bisect_right(starts, begin - 1))
    return [*spans, (begin, len(line))]


def _last(ends: Sequence[int], begin: int, limit: int) -> int | None:
    """The last of the ends after `begin` that is not beyond `limit`."""
    at = bisect_right(ends, limit) - 1
    return ends[at] if at >= 0 and ends[at] > begin else None


def _stripped(line: str, span: Span) -> Span:
    part = line[span[0] : span[1]]
    return span[0] + len(part) - len(part.lstrip()), span[0] + len(part.rstrip())


def _after_space(line: str, at: int) -> int:
    return len(line) - len(line[at:].lstrip())


def _wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in ("W", "F")
