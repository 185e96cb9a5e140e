"""One vocabulary: a line to ids, ids to a line, and each token's place in the line."""

import hashlib
import os
from collections.abc import Iterable, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import ArrayLike, NDArray

from regard.files import write_whole
from regard.text import learn, proto
from regard.text.lookup import Lookup
from regard.text.prepare import Prepare
from regard.text.sampling import DropoutSampler, Sampler, UnigramSampler
from regard.text.settings import BYTE, SPACE, UNK, Settings
from regard.text.spans import Places, Token, placed, segments

Batch = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of many lines end to end, and where each begins; the last offset is the end."""

UNKNOWN = "⁇"  # how an unknown piece is written in decoded text


class Tokenizer:
    """A vocabulary and how lines are cut into its pieces; ids 0 to 3 are `<pad> <unk> <s> </s>`."""

    def __init__(self, model: bytes) -> None:
        """Take a SentencePiece model file's contents."""
        parts = proto.read(model).reserved_first()
        self.model = parts.write()
        self.settings: Settings = parts.settings
        self._pieces = [piece.text for piece in parts.pieces]
        self._types = [piece.type for piece in parts.pieces]
        self._prefixed = parts.prefixed
        self._prepare = Prepare(self.settings)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(self.model)
        except RuntimeError as fault:
            raise proto.BrokenError("SentencePiece cannot read it") from fault

    @classmethod
    def learn(
        cls, lines: Iterable[str], size: int = 8000, settings: Settings | None = None, seed: int = 0
    ) -> "Tokenizer":
        """Learn a vocabulary of at most `size` ids from a stream of lines."""
        return cls(learn.learn(lines, size, settings or Settings(), seed))

    def extended(self, symbols: Iterable[str]) -> "Tokenizer":
        """The same with these symbols too; every id it has stays what it is, new ones come after."""
        new = [symbol for symbol in symbols if symbol not in self.settings.symbols]
        replace(self.settings, symbols=(*self.settings.symbols, *new))  # refuses what cannot be a symbol
        return Tokenizer(proto.read(self.model).extended(new).write()) if new else self

    def __len__(self) -> int:
        """How many ids there are."""
        return len(self._pieces)

    def __eq__(self, other: object) -> bool:
        """Equal tokenizers give equal ids: they have the same model."""
        return isinstance(other, Tokenizer) and self.model == other.model

    def __hash__(self) -> int:
        """Agrees with equality."""
        return hash(self.model)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to another process as its model."""
        return Tokenizer, (self.model,)

    def __repr__(self) -> str:
        """Kind, size and fingerprint."""
        return f"Tokenizer({self.settings.kind}, {len(self)} pieces, {self.fingerprint[:12]})"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model, settings included: equal fingerprints, equal ids."""
        return hashlib.sha256(b"regard tokenizer 1\n" + self.model).hexdigest()

    def piece(self, number: int) -> str:
        """The piece of an id."""
        if not 0 <= number < len(self):
            raise ValueError(f"no piece has the id {number}: this vocabulary's ids are 0 to {len(self) - 1}")
        return self._pieces[number]

    def id(self, piece: str) -> int:
        """The id of a piece; UNK if there is none. A whole word may be given without its `▁`."""
        found = self._ids.get(piece)
        return self._ids.get(SPACE + piece, UNK) if found is None else found

    def normalise(self, line: str) -> str:
        """The line as the tokenizer sees it, which is what `decode(encode(line))` gives back."""
        text = self._normalised(line)
        if self.settings.kind == "word":
            return " ".join(self._lookup.units(text))
        text = text.replace(SPACE, " ")
        return text.removeprefix(" ") if self._prefixed else text

    def encode(self, line: str) -> list[int]:
        """The ids of one line, without `<s>` and `</s>`."""
        if self._looked_up:
            return self._lookup.ids(self._normalised(line))
        ids: list[int] = self._processor.encode(self._prepare.line(line))
        return ids

    def encode_batch(self, lines: Sequence[str], threads: int | None = None) -> Batch:
        """The ids of many lines; `threads` is by default the number of cores."""
        workers = _threads(threads)
        if self._looked_up:
            return _flatten([self._lookup.ids(self._normalised(line)) for line in lines])
        return _join(self._processor.encode(self._prepare.lines(lines), num_threads=workers, return_type="numpy"))

    def sample_batch(self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None) -> Batch:
        """Ids of a random segmentation of each line: the same seed gives the same ids, whatever `threads` is.

        `amount` is the chance that a merge is dropped (BPE-dropout, Provilkov et al. 2020), or for a unigram model the
        smoothing α (Kudo 2018), where less is more varied; 0 turns sampling off. Only encoding without sampling has a
        use for threads: sampling is Python, so another process, not another thread, makes it faster.
        """
        if self.settings.kind in ("word", "char"):
            raise ValueError(f"a {self.settings.kind} tokenizer has one way to cut a line: sample with bpe or unigram")
        if not 0 <= amount <= 1:
            raise ValueError(f"the amount of sampling is between 0 and 1, not {amount}")
        if amount == 0:
            return self.encode_batch(lines, threads)
        random = Random(seed)
        return _flatten([self._sampler.sample(self._normalised(line), amount, random) for line in lines])

    def tokens(self, line: str) -> list[Token]:
        """The tokens of one line, each with its characters and its word."""
        prepared = self._prepare.line(line)
        text, offsets = self._processor.normalize(prepared, with_offsets=True)
        if self._looked_up:
            found = self._lookup.segments(text)
        else:
            ids = self._processor.encode(prepared)
            found = list(segments(ids, self._processor.encode(prepared, return_type=str), text, self._byte_ids))
        places = Places(line, self._prepare.origins(line), offsets, self._prefixed)
        return [places.token(self._pieces[segment[0]], segment) for segment in found]

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; `<pad>`, `<s>` and `</s>` are dropped."""
        numbers = np.asarray(ids)
        if numbers.size == 0:
            return ""
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ValueError(f"ids are one row of whole numbers, not {numbers.dtype} of shape {numbers.shape}")
        if numbers.min() < 0 or numbers.max() >= len(self):
            wrong = numbers[(numbers < 0) | (numbers >= len(self))][0]
            raise ValueError(f"no piece has the id {wrong}: this vocabulary's ids are 0 to {len(self) - 1}")
        surfaces = self._surfaces
        text = b"".join([surfaces[number] for number in numbers.tolist()]).decode(errors="replace")
        return text.removeprefix(" ") if self._prefixed else text

    def tokens_of(self, ids: Sequence[int]) -> list[Token]:
        """The tokens of ids, each with its characters and its word in the text that `decode(ids)` gives.

        `tokens(decode(ids))` may cut that text otherwise than a model did.
        """
        text = self.decode(ids)
        found = placed([self._surfaces[number] for number in ids], text, self._prefixed)
        return [Token(self._pieces[number], number, *place) for number, place in zip(ids, found, strict=True)]

    def decode_batch(self, rows: Iterable[ArrayLike]) -> list[str]:
        """The text of many rows of ids."""
        return [self.decode(row) for row in rows]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file, whole or not at all; its settings are inside."""
        write_whole(Path(path), self.model)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a model file: ours, or one trained elsewhere with SentencePiece, whose reserved ids are then moved."""
        file = Path(path)
        if not file.is_file():
            raise ValueError(f"{file} is not there or not a file: name a SentencePiece .model file")
        try:
            return cls(file.read_bytes())
        except proto.BrokenError as fault:
            raise ValueError(f"{file} is damaged: {fault}; restore it from a copy, or learn it again") from fault
        except ValueError as fault:
            raise ValueError(f"{file} cannot be used: {fault}") from fault

    def _normalised(self, line: str) -> str:
        """The line as SentencePiece normalises it, spaces as `▁`."""
        text: str = self._processor.normalize(self._prepare.line(line))
        return text

    @property
    def _looked_up(self) -> bool:
        """Whether we look tokens up ourselves; SentencePiece is as right, and faster, for characters with bytes."""
        return self.settings.kind == "word" or (self.settings.kind == "char" and not self.settings.bytes)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self._pieces)}

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        """From the id of a byte's piece to the byte."""
        pieces = enumerate(zip(self._pieces, self._types, strict=True))
        return {
            at: int(piece[3:5], 16) for at, (piece, kind) in pieces if kind == proto.BYTES and BYTE.fullmatch(piece)
        }

    @cached_property
    def _bytewise(self) -> list[int]:
        """The id of each byte, or nothing where bytes have none."""
        return sorted(self._byte_ids, key=self._byte_ids.__getitem__)

    @cached_property
    def _lookup(self) -> Lookup:
        wordwise = self.settings.kind == "word"
        table: dict[str, int] = {}
        for number, (piece, kind) in enumerate(zip(self._pieces, self._types, strict=True)):
            if kind in (proto.NORMAL, proto.SYMBOL):
                table[piece.removeprefix(SPACE) if wordwise else piece] = number
        return Lookup(self.settings, table, self._bytewise)

    @cached_property
    def _surfaces(self) -> list[bytes]:
        """For each id, the text it stands for."""
        wordwise = self.settings.kind == "word"
        found: list[bytes] = []
        for number, (piece, kind) in enumerate(zip(self._pieces, self._types, strict=True)):
            if number in self._byte_ids:
                found.append(bytes([self._byte_ids[number]]))
            elif kind == proto.CONTROL:
                found.append(b"")
            else:
                text = UNKNOWN if kind == proto.UNKNOWN else piece.replace(SPACE, " ")
                found.append((" " + text if wordwise and kind != proto.NORMAL else text).encode())
        return found

    @cached_property
    def _sampler(self) -> Sampler:
        scores = self._processor.get_score(list(range(len(self))))
        ordinary = {
            piece: (number, scores[number])
            for number, (piece, kind) in enumerate(zip(self._pieces, self._types, strict=True))
            if kind in (proto.NORMAL, proto.SYMBOL)
        }
        family = DropoutSampler if self.settings.kind == "bpe" else UnigramSampler
        return family(ordinary, self.settings.symbols, self._bytewise)


def _threads(asked: int | None) -> int:
    """The number asked for, or of the machine's cores."""
    if asked is not None and asked < 1:
        raise ValueError(f"encoding needs at least one thread, not {asked}")
    return asked or os.cpu_count() or 1


def _join(rows: Sequence[NDArray[np.int32]]) -> Batch:
    return (np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)), _offsets(rows)


def _flatten(rows: Sequence[Sequence[int]]) -> Batch:
    offsets = _offsets(rows)
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=offsets[-1]), offsets


def _offsets(rows: Sequence[Sized]) -> NDArray[np.int64]:
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)), out=offsets[1:])
    return offsets
