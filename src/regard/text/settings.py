"""What a tokenizer may be told, and the ids every vocabulary begins with."""

import re
from dataclasses import dataclass

PAD, UNK, START, END = range(4)
RESERVED = ("<pad>", "<unk>", "<s>", "</s>")
"""Pieces of the first four ids, in order."""

SPACE = "▁"
"""How SentencePiece writes a space inside a piece (U+2581)."""

KINDS = ("bpe", "unigram", "word", "char")
NORMALISERS = ("nfkc", "identity")
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""The piece of one byte of a character that has no piece of its own."""


@dataclass(frozen=True)
class Settings:
    """How a line is read, apart from the vocabulary itself.

    `bytes` spells what the vocabulary lacks in UTF-8 bytes, so that nothing is unknown; `symbols` are pieces such as
    `<2de>` that are never split and always one id.
    """

    kind: str = "bpe"
    normalise: str = "nfkc"
    lowercase: bool = False
    bytes: bool = True
    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no tokenizer can do, by name."""
        object.__setattr__(self, "symbols", tuple(self.symbols))
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of tokenizer {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.normalise not in NORMALISERS:
            raise ValueError(f"unknown normalisation {self.normalise!r}: choose one of {', '.join(NORMALISERS)}")
        for at, symbol in enumerate(self.symbols):
            if fault := _fault(symbol, self.symbols[:at]):
                raise ValueError(f"symbol {symbol!r} {fault}")

    @property
    def collapses(self) -> bool:
        """Whether runs of white space become one space: only `identity` keeps them, and words never do."""
        return self.normalise != "identity" or self.kind == "word"

    @property
    def reserved(self) -> int:
        """How many ids are spoken for before anything is learned."""
        return len(RESERVED) + len(self.symbols) + 256 * self.bytes


def _fault(symbol: str, earlier: tuple[str, ...]) -> str:
    """What is wrong with a symbol, or nothing."""
    if not symbol:
        return "is empty"
    if symbol in RESERVED or BYTE.fullmatch(symbol):
        return "is a reserved name: choose another"
    if symbol in earlier:
        return "is given twice"
    if SPACE in symbol or any(character.isspace() or not character.isprintable() for character in symbol):
        return "has white space or an unprintable character in it: write it without"
    return ""
