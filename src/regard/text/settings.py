"""The settings of a tokenizer, and the ids that every vocabulary reserves."""

import re
from dataclasses import dataclass

PAD, UNK, START, END = range(4)
RESERVED = ("<pad>", "<unk>", "<s>", "</s>")
"""The pieces of the first four ids, in order."""

SPACE = "▁"
"""The character that SentencePiece writes for a space inside a piece (U+2581)."""

LINE_BREAK = "\n"
"""The piece of a line break in a multiline vocabulary, and the only character at which a document is split."""

KINDS = ("bpe", "unigram", "word", "char")
NORMALISERS = ("nfkc", "identity")
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""The piece of one byte, used to spell a character that has no piece of its own."""


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings of a tokenizer, apart from its vocabulary.

    Attributes:
        kind: `bpe`, `unigram`, `word` or `char`.
        normalise: `nfkc` unifies Unicode compatibility forms and collapses white space; `identity` changes nothing.
        lowercase: Whether text is lower-cased first.
        bytes: Whether a character without a piece is spelled in UTF-8 bytes instead of being `<unk>`.
        symbols: Pieces such as `<2de>` that are never split and always have one id.
        multiline: Whether texts are documents with line breaks, as a language model reads them. Each line break is
            then one token, all white space is kept, and no space is put in front of the first word.
    """

    kind: str = "bpe"
    normalise: str = "nfkc"
    lowercase: bool = False
    bytes: bool = True
    symbols: tuple[str, ...] = ()
    multiline: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for settings that no tokenizer can have."""
        object.__setattr__(self, "symbols", tuple(self.symbols))
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of tokenizer {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.normalise not in NORMALISERS:
            raise ValueError(f"unknown normalisation {self.normalise!r}: choose one of {', '.join(NORMALISERS)}")
        if self.multiline and self.kind == "word":
            raise ValueError("a word tokenizer drops line breaks: use kind bpe, unigram or char with multiline")
        for index, symbol in enumerate(self.symbols):
            if problem := _problem(symbol, self.symbols[:index]):
                raise ValueError(f"symbol {symbol!r} {problem}")

    @property
    def collapses(self) -> bool:
        """Whether each run of white space becomes one space."""
        return not self.multiline and (self.normalise != "identity" or self.kind == "word")

    @property
    def unsplit(self) -> tuple[str, ...]:
        """The pieces that are never split or merged: the line break, if texts have any, and the symbols."""
        return (LINE_BREAK, *self.symbols) if self.multiline else self.symbols

    @property
    def reserved(self) -> int:
        """The number of ids that are taken before anything is learned."""
        return len(RESERVED) + len(self.unsplit) + 256 * self.bytes


def _problem(symbol: str, earlier: tuple[str, ...]) -> str:
    """Return what is wrong with a symbol, or an empty string."""
    if not symbol:
        return "is empty: leave it out"
    if symbol in RESERVED or BYTE.fullmatch(symbol):
        return "is a reserved name: choose another"
    if symbol in earlier:
        return "is given twice: name it once"
    if SPACE in symbol or any(character.isspace() or not character.isprintable() for character in symbol):
        return "contains white space or an unprintable character: remove it"
    return ""
