"""Split lines into segments that a model can translate, and tokenise them; join the translations of segments again.

A line has one segment, unless it is longer than the sources that the model was trained on.
"""

import re
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from regard.decode import SentenceOptions, WordBoundaries
from regard.options import OptionError, TranslationOptions
from regard.text import JOINS, Tokenizer, Tokenizers, find_phrase, word_of, words

Span = tuple[int, int]

# Punctuation that ends a sentence with what closes after it, then white space; scripts without spaces need none.
_SENTENCE_END = re.compile(r"""[.!?…؟۔।]+["'”’»›)\]]*(?=\s)|[。！？｡]+[」』”’）］]*""")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class TranslationRequest:
    """A line to translate, with options for this line only.

    >>> translator(TranslationRequest("I can go alone", prefix="Ich", constraints=("allein",)), beam=8)
    """

    line: str
    prefix: str = ""
    """Text that its translation starts with."""
    constraints: tuple[str, ...] = ()
    """Phrases that its translation must contain."""
    avoid: tuple[str, ...] = ()
    """Phrases that its translation must not contain."""
    number: int | None = None
    """Its line in warnings; by default lines are counted from 1 on."""


@dataclass(frozen=True)
class SourceSegment:
    """A source line, or a part of a long one, with its token ids and the options of its search."""

    text: str
    start: int
    """Index of its first character in the line."""
    ids: tuple[int, ...]
    """Token ids, the symbols before the line first."""
    symbols: int
    """Number of symbols, such as `<2de>`, that stand before the line."""
    options: SentenceOptions
    avoid: tuple[str, ...]
    """Phrases that its translation must not contain."""
    is_last: bool
    """Whether it is the last segment of its line."""

    def word_indices(self, tokenizer: Tokenizer, spans: list[Span]) -> list[int | None]:
        """Return the index of each token's word in the line, whose words have these spans; symbols have none."""
        tokens = tokenizer.tokens(self.text)
        return [None] * self.symbols + [word_of(spans, token.start + self.start) for token in tokens]


def make_segments(
    request: TranslationRequest, tokenizers: Tokenizers, options: TranslationOptions, longest: int
) -> tuple[SourceSegment, ...]:
    """Tokenise a line, and split it into segments of at most `longest` tokens; an empty line has no segments.

    The prefix and the constraints of the request belong to the first segment. A term of the terminology belongs to the
    segments in which it occurs.

    Raises:
        ValueError: If the line is too long and `options.long` is `error`.
    """
    tokenizer, target = tokenizers["source"], tokenizers["target"]
    symbols, begin = leading_symbols(request.line, tokenizer)
    line = request.line[begin:]
    ids = tokenizer.encode(line)
    if not ids:
        return ()
    parts = [(line, ids, begin)]
    if len(symbols) + len(ids) > longest:
        if options.long == "error":
            raise OptionError(
                "the line has {0} tokens, more than the {1} this model was trained on; shorten it, or use {long:split}",
                len(symbols) + len(ids),
                longest,
            )
        spans = split_line(line, tokenizer, max(1, longest - len(symbols)))
        parts = [(line[start:end], tokenizer.encode(line[start:end]), begin + start) for start, end in spans]
    avoid = (*options.avoid, *request.avoid)
    segments = []
    for number, (text, ids, start) in enumerate(parts):
        prefix = (request.prefix or options.prefix) if number == 0 else ""
        required = (*options.constraints, *request.constraints) if number == 0 else ()
        phrases = dict.fromkeys((*required, *options.terms.required_in(text)))
        # A phrase that the prefix contains need not appear again. At its end the next token may continue the word.
        met = {phrase for phrase in phrases if any(end < len(prefix) for _, end in find_phrase(phrase, prefix))}
        constraints = tuple(tuple(target.encode_phrase(phrase)) for phrase in phrases if phrase and phrase not in met)
        avoided = (
            tuple(encode(phrase)) for phrase in avoid if phrase for encode in (target.encode, target.encode_phrase)
        )
        sentence = SentenceOptions(
            source_length=len(symbols) + len(ids),
            prefix=tuple(target.encode(prefix)),
            constraints=constraints,
            boundaries=WordBoundaries(*target.character_classes, JOINS) if constraints else None,
            avoid=tuple(dict.fromkeys(avoided)),
            # The seed depends on the text, so that equal lines get equal samples and different lines different ones.
            seed=(options.seed << 32) | zlib.crc32(text.encode(errors="replace")),
        )
        is_last = number == len(parts) - 1
        segments.append(SourceSegment(text, start, (*symbols, *ids), len(symbols), sentence, avoid, is_last))
    return tuple(segments)


def tokenize_with_words(line: str, tokenizer: Tokenizer, symbols: bool = True) -> tuple[list[int], list[int | None]]:
    """Return the token ids of a line, and the index of each token's word.

    With `symbols`, symbols such as `<2de>` before the line are single tokens that belong to no word.
    """
    leading, begin = leading_symbols(line, tokenizer) if symbols else ([], 0)
    text, spans = line[begin:], words(line)
    indices = [word_of(spans, token.start + begin) for token in tokenizer.tokens(text)]
    return [*leading, *tokenizer.encode(text)], [*([None] * len(leading)), *indices]


def leading_symbols(line: str, tokenizer: Tokenizer) -> tuple[list[int], int]:
    """Return the ids of symbols such as `<2de>` that a line begins with, and the index of the text after them."""
    ids: list[int] = []
    at = _skip_space(line, 0)
    while symbol := next((name for name in tokenizer.settings.symbols if line.startswith(name, at)), None):
        ids.append(tokenizer.id(symbol))
        at = _skip_space(line, at + len(symbol))
    return ids, at


def split_line(line: str, tokenizer: Tokenizer, longest: int) -> list[Span]:
    """Return spans of a line that have at most `longest` tokens each, as few as sentence ends allow.

    A span ends with the last sentence that fits; if no sentence ends, at the last space; if there is none, at a token.
    White space between spans is left out.
    """
    starts = [token.start for token in tokenizer.tokens(line)]
    sentences = [match.end() for match in _SENTENCE_END.finditer(line)]
    spaces = [match.start() for match in _SPACE.finditer(line)]
    spans, begin, first = [], 0, 0
    while len(starts) - first > longest:
        # Tokens that are bytes of one character all start at it, so a span may have to end after that character.
        limit = max(starts[first + longest], begin + 1)
        end = _last_between(sentences, begin, limit) or _last_between(spaces, begin, limit) or limit
        spans.append((begin, end))
        begin = end
        first = max(first + 1, bisect_right(starts, begin - 1))
    spans.append((begin, len(line)))
    return [part for span in spans for part in _halve_if_long(line, span, tokenizer, longest)]


def join_segments(texts: Sequence[str]) -> tuple[str, list[int]]:
    """Join the translations of a line's segments; return the line, and the index in it where each begins.

    They are separated by a space, except in scripts that are written without spaces.
    """
    line, begins = "", []
    for text in texts:
        space = " " if line and text and not _is_wide(line[-1]) and not _is_wide(text[0]) else ""
        begins.append(len(line) + len(space))
        line += space + text
    return line, begins


def _halve_if_long(line: str, span: Span, tokenizer: Tokenizer, longest: int) -> list[Span]:
    """Strip a span, and halve it while it is too long: text may have more tokens alone than within its line."""
    start = _skip_space(line, *span)
    end = span[0] + len(line[span[0] : span[1]].rstrip())
    if end - start <= 1 or len(tokenizer.encode(line[start:end])) <= longest:
        return [(start, end)] if end > start else []
    middle = (start + end) // 2
    halves = (start, middle), (middle, end)
    return [part for half in halves for part in _halve_if_long(line, half, tokenizer, longest)]


def _last_between(ends: Sequence[int], begin: int, limit: int) -> int | None:
    """Return the last of the sorted ends that is after `begin` and not after `limit`."""
    at = bisect_right(ends, limit) - 1
    return ends[at] if at >= 0 and ends[at] > begin else None


def _skip_space(line: str, at: int, end: int | None = None) -> int:
    """Return the index of the first character from `at` on that is no white space, or else the end."""
    end = len(line) if end is None else end
    while at < end and line[at].isspace():
        at += 1
    return at


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in ("W", "F")
