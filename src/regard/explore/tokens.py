"""Tokenize a text for display: tokens with their characters and words, and symbols that have no characters."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.explore.questions import MAX_CHARACTERS
from regard.predict.segments import leading_symbols
from regard.text import END, START, Tokenizer, word_of, words


@dataclass(frozen=True)
class DisplayToken:
    """One token of a text."""

    piece: str
    text: str
    """Its characters in the text."""
    id: int
    word: int | None
    """Index of its word; None for a token that belongs to no word."""
    special: bool
    """Whether it is a symbol, such as the end of a sentence or a target language tag."""
    span: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return the token as a message contains it."""
        return asdict(self)


@dataclass(frozen=True)
class TokenizedText:
    """A text with its tokens and words; the end symbol is the last token of a complete text."""

    text: str
    tokens: tuple[DisplayToken, ...]
    words: tuple[str, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids without the end symbol."""
        return tuple(token.id for token in self.tokens if token.id != END)

    @property
    def word_indices(self) -> list[int | None]:
        """The word index of each token, without the end symbol."""
        return [token.word for token in self.tokens if token.id != END]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the tokens as a message contains them."""
        return [token.to_json() for token in self.tokens]


def tokenize_input(text: str, tokenizer: Tokenizer, ended: bool = True) -> TokenizedText:
    """Tokenize a text as a model reads it: leading symbols, tokens and, if `ended`, the end symbol.

    Raises:
        ValueError: The text has too many tokens to be shown. Normalisation may turn one character into many.
    """
    if (count := len(tokenizer.encode(text))) > MAX_CHARACTERS:
        raise ValueError(f"the text has {count} tokens, and at most {MAX_CHARACTERS} can be shown; shorten it")
    symbols, begin = leading_symbols(text, tokenizer)
    tokens = [
        DisplayToken(piece := tokenizer.piece(symbol), piece, symbol, None, True, (0, begin)) for symbol in symbols
    ]
    spans = words(text)
    for token in tokenizer.tokens(text[begin:]):
        start, end = token.start + begin, token.end + begin
        tokens.append(DisplayToken(token.piece, text[start:end], token.id, word_of(spans, start), False, (start, end)))
    return _with_end(text, tokens, spans, tokenizer, ended)


def tokenize_output(labels: Sequence[int], tokenizer: Tokenizer) -> TokenizedText:
    """Detokenize the ids of a decoder; the end symbol may be the last one."""
    ended = bool(labels) and labels[-1] == END
    ids = labels[:-1] if ended else labels
    text = tokenizer.decode(ids)
    tokens = [
        DisplayToken(
            token.piece,
            text[token.start : token.end],
            token.id,
            token.word,
            token.piece in ("<pad>", "<s>", "</s>", "<unk>"),
            (token.start, token.end),
        )
        for token in tokenizer.tokens_of(ids)
    ]
    return _with_end(text, tokens, words(text), tokenizer, ended)


def start_token(tokenizer: Tokenizer) -> DisplayToken:
    """Return the symbol that a decoder reads first."""
    return DisplayToken(tokenizer.piece(START), "", START, None, True, (0, 0))


def piece_text(piece: str) -> str:
    """Return the characters of a piece outside any text."""
    return piece.replace("▁", " ").strip() or piece


def _with_end(
    text: str, tokens: list[DisplayToken], spans: Sequence[tuple[int, int]], tokenizer: Tokenizer, ended: bool
) -> TokenizedText:
    if ended:
        tokens.append(DisplayToken(tokenizer.piece(END), "", END, None, True, (len(text), len(text))))
    return TokenizedText(text, tuple(tokens), tuple(text[start:end] for start, end in spans))
