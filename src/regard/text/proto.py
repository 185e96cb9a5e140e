"""SentencePiece's model file, read and written without the protobuf package.

A `.model` file is one protobuf message: the pieces (field 1: text 1, score 2, type 3), the settings of its training
(field 2) and of its normaliser (field 3). This module reads what the library does not report, and moves the reserved
ids of a model trained elsewhere to where ours are.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from regard.text.settings import LINE_BREAK, RESERVED, UNK, TokenizerSettings

Field = tuple[int, int, int | bytes]
"""The number of a field, its wire type, and its value."""

NORMAL, UNKNOWN, CONTROL, SYMBOL, UNUSED, BYTES = 1, 2, 3, 4, 5, 6
_KIND = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_LOWERCASE = "+lower"  # appended to the name of the normaliser


class ModelFileError(ValueError):
    """The file is not a SentencePiece model, or only a part of one."""


@dataclass(frozen=True)
class VocabularyEntry:
    """One entry of the vocabulary: the text of a piece, its type, and all its fields."""

    text: str
    type: int
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class ModelProto:
    """The parsed contents of a model file."""

    pieces: tuple[VocabularyEntry, ...]
    training: tuple[Field, ...]
    normaliser: tuple[Field, ...]
    rest: tuple[Field, ...]

    @property
    def settings(self) -> TokenizerSettings:
        """The settings of the tokenizer, as far as the file records them."""
        name = _text(self.normaliser, 1, "nfkc")
        symbols = [piece.text for piece in self.pieces if piece.type == SYMBOL]
        multiline = not self.prefixed and LINE_BREAK in symbols
        return TokenizerSettings(
            kind=_KIND[_number(self.training, 3, 1)],
            normalise="identity" if name.removesuffix(_LOWERCASE) == "identity" else "nfkc",
            lowercase=name.endswith(_LOWERCASE),
            bytes=any(piece.type == BYTES for piece in self.pieces),
            symbols=tuple(symbol for symbol in symbols if not (multiline and symbol == LINE_BREAK)),
            multiline=multiline,
        )

    @property
    def prefixed(self) -> bool:
        """Whether a space is put before the first word (SentencePiece's dummy prefix)."""
        return bool(_number(self.normaliser, 3, 1))

    def write(self) -> bytes:
        """Return the contents of the model file."""
        pieces: list[Field] = [(1, 2, _write(piece.fields)) for piece in self.pieces]
        return _write([*pieces, (2, 2, _write(self.training)), (3, 2, _write(self.normaliser)), *self.rest])

    def without(self, symbols: Container[str]) -> "ModelProto":
        """Return a model without some of its symbols."""
        return replace(self, pieces=tuple(p for p in self.pieces if p.type != SYMBOL or p.text not in symbols))

    def extended(self, symbols: Iterable[str]) -> "ModelProto":
        """Return a model with more symbols, whose ids come after all others."""
        return replace(self, pieces=(*self.pieces, *(_entry(text, SYMBOL) for text in symbols)))

    def lowercased(self) -> "ModelProto":
        """Return a model that is marked as one for lower-cased text."""
        name = _text(self.normaliser, 1, "nfkc") + _LOWERCASE
        others = [field for field in self.normaliser if field[0] != 1]
        return replace(self, normaliser=((1, 2, name.encode()), *others))

    def reserved_first(self) -> "ModelProto":
        """Return a model with `<pad> <unk> <s> </s>` as ids 0 to 3; those it lacks are added.

        The order of the pieces has no meaning in a model (scores have), so moving them changes nothing but ids.
        """
        if _number(self.training, 24, 0) or not _number(self.normaliser, 5, 1):
            raise ValueError(
                "it writes the space after a word, or not at all, and only ▁ before a word is supported: "
                "train it without treat_whitespace_as_suffix and with escape_whitespaces"
            )
        if [piece.text for piece in self.pieces[: len(RESERVED)]] == list(RESERVED):
            return self
        control = {piece.text: piece for piece in self.pieces if piece.type == CONTROL}
        clash = [piece.text for piece in self.pieces if piece.text in RESERVED and piece.type not in (CONTROL, UNKNOWN)]
        unknown = [piece for piece in self.pieces if piece.type == UNKNOWN]
        if clash or len(unknown) != 1:
            raise ValueError(
                f"its reserved pieces cannot be mapped to {' '.join(RESERVED)}: it has {len(unknown)} unknown pieces "
                f"instead of one, or ordinary pieces with these names ({', '.join(clash) or 'none'})"
            )
        first = [control.get(text, _entry(text, CONTROL)) for text in RESERVED]
        first[UNK] = unknown[0]
        rest = [piece for piece in self.pieces if piece not in first]
        return replace(self, pieces=(*first, *rest))


def read(blob: bytes) -> ModelProto:
    """Parse the contents of a model file."""
    try:
        fields = list(_read(blob))
        pieces = tuple(_parse_entry(value) for number, _, value in fields if number == 1)
        parts = {number: tuple(_read(value)) for number, _, value in fields if number in (2, 3)}
        rest = tuple(field for field in fields if field[0] not in (1, 2, 3))
        model = ModelProto(pieces, parts[2], parts[3], rest)
        _KIND[_number(model.training, 3, 1)]
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, ModelFileError) as error:
        raise ModelFileError("it is not a complete SentencePiece model") from error
    return model


def _entry(text: str, kind: int) -> VocabularyEntry:
    return VocabularyEntry(text, kind, ((1, 2, text.encode()), (2, 5, bytes(4)), (3, 0, kind)))


def _parse_entry(value: int | bytes) -> VocabularyEntry:
    fields = tuple(_read(value))
    return VocabularyEntry(_text(fields, 1, ""), _number(fields, 3, NORMAL), fields)


def _number(fields: tuple[Field, ...], number: int, default: int) -> int:
    values = [value for key, _, value in fields if key == number and isinstance(value, int)]
    return values[-1] if values else default


def _text(fields: tuple[Field, ...], number: int, default: str) -> str:
    values = [value for key, _, value in fields if key == number and isinstance(value, bytes)]
    return values[-1].decode() if values else default


def _read(blob: int | bytes) -> Iterator[Field]:
    """Yield the fields of a message in order (protobuf's wire format)."""
    if isinstance(blob, int):
        raise ModelFileError("a number stands in the place of a message")
    position = 0
    while position < len(blob):
        key, position = _read_varint(blob, position)
        wire = key & 7
        if wire == 0:
            number, position = _read_varint(blob, position)
            yield key >> 3, wire, number
            continue
        size, position = _read_varint(blob, position) if wire == 2 else ({1: 8, 5: 4}[wire], position)
        if position + size > len(blob):
            raise ModelFileError("it ends in the middle of a field")
        yield key >> 3, wire, blob[position : position + size]
        position += size


def _read_varint(blob: bytes, position: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the position after it."""
    number = shift = 0
    while blob[position] & 0x80:
        if shift > 63:
            raise ModelFileError("a number has more than 64 bits")
        number |= (blob[position] & 0x7F) << shift
        shift, position = shift + 7, position + 1
    return number | blob[position] << shift, position + 1


def _write(fields: Iterable[Field]) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        _append_varint(out, number << 3 | wire)
        if isinstance(value, int):
            _append_varint(out, value)
            continue
        if wire == 2:
            _append_varint(out, len(value))
        out += value
    return bytes(out)


def _append_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
