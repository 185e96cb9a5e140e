"""SentencePiece's model file, read and rewritten without the protobuf package.

A `.model` file is one protobuf message: pieces (field 1: text 1, score 2, type 3), how it was trained (field 2) and how
it normalises (field 3). We read what the library does not tell, and put the reserved ids of a model trained elsewhere
where ours are.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from regard.text.settings import RESERVED, UNK, Settings

Field = tuple[int, int, int | bytes]
"""A field's number, its wire type, and its value."""

NORMAL, UNKNOWN, CONTROL, SYMBOL, UNUSED, BYTES = 1, 2, 3, 4, 5, 6
_KIND = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_LOWER = "+lower"


class BrokenError(ValueError):
    """The file is not a SentencePiece model, or only a part of one."""


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    type: int
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Model:
    """A model file taken apart."""

    pieces: tuple[Piece, ...]
    training: tuple[Field, ...]
    normaliser: tuple[Field, ...]
    rest: tuple[Field, ...]

    @property
    def settings(self) -> Settings:
        """The settings the model was made with, as far as its file tells."""
        name = _text(self.normaliser, 1, "nfkc")
        return Settings(
            kind=_KIND[_number(self.training, 3, 1)],
            normalise="identity" if name.removesuffix(_LOWER) == "identity" else "nfkc",
            lowercase=name.endswith(_LOWER),
            bytes=any(piece.type == BYTES for piece in self.pieces),
            symbols=tuple(piece.text for piece in self.pieces if piece.type == SYMBOL),
        )

    @property
    def prefixed(self) -> bool:
        """Whether a space is put before the first word, so that it looks like the others."""
        return bool(_number(self.normaliser, 3, 1))

    def write(self) -> bytes:
        """The model as a file."""
        pieces: list[Field] = [(1, 2, _write(piece.fields)) for piece in self.pieces]
        return _write([*pieces, (2, 2, _write(self.training)), (3, 2, _write(self.normaliser)), *self.rest])

    def without(self, symbols: Container[str]) -> "Model":
        """The same model without some of its symbols."""
        return replace(self, pieces=tuple(p for p in self.pieces if p.type != SYMBOL or p.text not in symbols))

    def extended(self, symbols: Iterable[str]) -> "Model":
        """The same model with more symbols, whose ids come after all others."""
        return replace(self, pieces=(*self.pieces, *(_reserved(text, SYMBOL) for text in symbols)))

    def lowered(self) -> "Model":
        """The same model, marked as one whose lines are lower-cased first."""
        name = _text(self.normaliser, 1, "nfkc") + _LOWER
        others = [field for field in self.normaliser if field[0] != 1]
        return replace(self, normaliser=((1, 2, name.encode()), *others))

    def reserved_first(self) -> "Model":
        """The same model with `<pad> <unk> <s> </s>` as ids 0 to 3, those it lacks added.

        Order carries no meaning in a model (scores do), so moving pieces changes ids and nothing else.
        """
        if _number(self.training, 24, 0) or not _number(self.normaliser, 5, 1):
            raise ValueError("it writes the space after a word or not at all, and only ▁ before a word is understood")
        if [piece.text for piece in self.pieces[: len(RESERVED)]] == list(RESERVED):
            return self
        named = {piece.text: piece for piece in self.pieces if piece.type == CONTROL}
        clash = [piece.text for piece in self.pieces if piece.text in RESERVED and piece.type not in (CONTROL, UNKNOWN)]
        unknown = [piece for piece in self.pieces if piece.type == UNKNOWN]
        if clash or len(unknown) != 1:
            raise ValueError(f"its reserved pieces cannot be mapped to {' '.join(RESERVED)} (clash: {clash})")
        first = [named.get(text, _reserved(text, CONTROL)) for text in RESERVED]
        first[UNK] = unknown[0]
        rest = [piece for piece in self.pieces if piece not in first]
        return replace(self, pieces=(*first, *rest))


def read(blob: bytes) -> Model:
    """Take a model file apart."""
    try:
        fields = list(_read(blob))
        pieces = tuple(_piece(value) for number, _, value in fields if number == 1)
        parts = {number: tuple(_read(value)) for number, _, value in fields if number in (2, 3)}
        rest = tuple(field for field in fields if field[0] not in (1, 2, 3))
        model = Model(pieces, parts[2], parts[3], rest)
        _KIND[_number(model.training, 3, 1)]
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, BrokenError) as fault:
        raise BrokenError("it is not a whole SentencePiece model") from fault
    return model


def _reserved(text: str, kind: int) -> Piece:
    return Piece(text, kind, ((1, 2, text.encode()), (2, 5, bytes(4)), (3, 0, kind)))


def _piece(value: int | bytes) -> Piece:
    fields = tuple(_read(value))
    return Piece(_text(fields, 1, ""), _number(fields, 3, NORMAL), fields)


def _number(fields: tuple[Field, ...], number: int, default: int) -> int:
    found = [value for at, _, value in fields if at == number and isinstance(value, int)]
    return found[-1] if found else default


def _text(fields: tuple[Field, ...], number: int, default: str) -> str:
    found = [value for at, _, value in fields if at == number and isinstance(value, bytes)]
    return found[-1].decode() if found else default


def _read(blob: int | bytes) -> Iterator[Field]:
    """The fields of a message, in order (protobuf's wire format)."""
    if isinstance(blob, int):
        raise BrokenError("a number stands where a message belongs")
    at = 0
    while at < len(blob):
        key, at = _varint(blob, at)
        wire = key & 7
        if wire == 0:
            number, at = _varint(blob, at)
            yield key >> 3, wire, number
            continue
        size, at = _varint(blob, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        if at + size > len(blob):
            raise BrokenError("it ends in the middle of a field")
        yield key >> 3, wire, blob[at : at + size]
        at += size


def _varint(blob: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while blob[at] & 0x80:
        number |= (blob[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return number | blob[at] << shift, at + 1


def _write(fields: list[Field] | tuple[Field, ...]) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        _append(out, number << 3 | wire)
        if isinstance(value, int):
            _append(out, value)
            continue
        if wire == 2:
            _append(out, len(value))
        out += value
    return bytes(out)


def _append(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
