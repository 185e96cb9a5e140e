"""A line as what a model reads of it: tokens with their characters and words, symbols that no character stands for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.text import END, Tokenizer, word_of, words
from regard.text.spans import Token
from regard.translator.splitting import leading_symbols


@dataclass(frozen=True)
class Piece:
    """One token."""

    piece: str
    text: str
    """Its characters in the line."""
    id: int
    word: int | None
    """Number of its word; None for one that belongs to none."""
    special: bool
    """Whether it is a symbol, such as the end of a sentence or a language wanted."""
    span: tuple[int, int]


@dataclass(frozen=True)
class Side:
    """A line, its tokens with the end symbol as the last, and its words."""

    text: str
    pieces: tuple[Piece, ...]
    words: tuple[str, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids without the end symbol."""
        return tuple(each.id for each in self.pieces[:-1])

    @property
    def numbers(self) -> list[int | None]:
        """The number of each token's word, the end symbol left out."""
        return [each.word for each in self.pieces[:-1]]

    def to_json(self) -> list[dict[str, Any]]:
        """The tokens as a frame's message has them."""
        return [asdict(each) for each in self.pieces]


def source_side(line: str, tokenizer: Tokenizer) -> Side:
    """A line as the encoder reads it: symbols it begins with, its tokens, the end."""
    symbols, begin = leading_symbols(line, tokenizer)
    pieces = [Piece(piece := tokenizer.piece(each), piece, each, None, True, (0, begin)) for each in symbols]
    spans = words(line)
    for token in tokenizer.tokens(line[begin:]):
        start, end = token.start + begin, token.end + begin
        pieces.append(Piece(token.piece, line[start:end], token.id, word_of(spans, start), False, (start, end)))
    return Side(line, (*pieces, _end(tokenizer, len(line))), tuple(line[start:end] for start, end in spans))


def target_side(ids: Sequence[int], tokenizer: Tokenizer, ended: bool = True) -> Side:
    """Ids as the decoder told them, and the end unless it was not told yet."""
    text = tokenizer.decode(ids)
    pieces = [_told(token, text) for token in tokenizer.tokens_of(ids)]
    if ended:
        pieces.append(_end(tokenizer, len(text)))
    return Side(text, tuple(pieces), tuple(text[start:end] for start, end in words(text)))


def surface(piece: str) -> str:
    """What a piece says where it stands in no line yet."""
    return piece.replace("▁", " ").strip() or piece


def _told(token: Token, text: str) -> Piece:
    special = token.piece in ("<pad>", "<s>", "</s>", "<unk>")
    start, end = token.start, token.end
    return Piece(token.piece, text[start:end], token.id, token.word, special, (start, end))


def _end(tokenizer: Tokenizer, at: int) -> Piece:
    return Piece(tokenizer.piece(END), "", END, None, True, (at, at))
