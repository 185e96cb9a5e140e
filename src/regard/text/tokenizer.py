"""One vocabulary: text to ids, ids to text, and the span of each token in the text."""

import hashlib
import os
import re
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

from regard.files import write_atomically
from regard.text import learn, proto
from regard.text.lookup import LookupEncoder
from regard.text.prepare import Preparation, split_lines
from regard.text.sampling import DropoutSampler, SubwordSampler, UnigramSampler
from regard.text.settings import BYTE, SPACE, UNK, TokenizerSettings
from regard.text.spans import OriginalSpans, Segment, Token, decoded_spans, segments
from regard.text.words import UNSPACED, character_class, edge_classes

TokenBatch = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of many texts end to end, and the offset of each text; the last offset is the end."""

UNKNOWN = "⁇"  # the text of an unknown piece
_SPACE_MARKS = re.compile(f"({SPACE}+)")


class Tokenizer:
    """A vocabulary, and how text is segmented into its pieces.

    Ids 0 to 3 are `<pad> <unk> <s> </s>`. Encoding adds none of them.

    Example:
        >>> tokenizer = Tokenizer.learn(["I can go alone", "I can go"], size=300)
        >>> ids = tokenizer.encode("I can go")
        >>> tokenizer.decode(ids)
        'I can go'
    """

    def __init__(self, model: bytes) -> None:
        """Create a tokenizer from the contents of a SentencePiece model file."""
        parsed = proto.read(model).reserved_first()
        self.model = parsed.write()
        self.settings: TokenizerSettings = parsed.settings
        self._pieces = [piece.text for piece in parsed.pieces]
        self._types = [piece.type for piece in parsed.pieces]
        self._prefixed = parsed.prefixed
        self._preparation = Preparation(self.settings)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(self.model)
        except RuntimeError as error:
            raise proto.ModelFileError("SentencePiece cannot read it") from error

    @classmethod
    def learn(
        cls, lines: Iterable[str], size: int = 8000, settings: TokenizerSettings | None = None, seed: int = 0
    ) -> "Tokenizer":
        """Learn a vocabulary of at most `size` ids from a stream of lines, or of documents if they are multiline."""
        return cls(learn.learn(lines, size, settings or TokenizerSettings(), seed))

    def extended(self, symbols: Iterable[str]) -> "Tokenizer":
        """Return a tokenizer with more symbols; all existing ids stay, and the new ones come after them."""
        new = [symbol for symbol in symbols if symbol not in self.settings.symbols]
        replace(self.settings, symbols=(*self.settings.symbols, *new))  # raises for what cannot be a symbol
        return Tokenizer(proto.read(self.model).extended(new).write()) if new else self

    def __len__(self) -> int:
        """Return the size of the vocabulary."""
        return len(self._pieces)

    def __eq__(self, other: object) -> bool:
        """Compare the models: equal tokenizers give equal ids."""
        return isinstance(other, Tokenizer) and self.model == other.model

    def __hash__(self) -> int:
        """Return a hash that agrees with equality."""
        return hash(self.model)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model file alone."""
        return Tokenizer, (self.model,)

    def __repr__(self) -> str:
        """Return the kind, the size and the fingerprint."""
        return f"Tokenizer({self.settings.kind}, {len(self)} pieces, {self.fingerprint[:12]})"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model file, settings included: equal fingerprints mean equal ids."""
        return hashlib.sha256(b"regard tokenizer 1\n" + self.model).hexdigest()

    def piece(self, number: int) -> str:
        """Return the piece of an id."""
        if not 0 <= number < len(self):
            raise self._no_piece(number)
        return self._pieces[number]

    def id(self, piece: str) -> int:
        """Return the id of a piece, or UNK if there is none; a whole word may be given without its `▁`."""
        number = self._ids.get(piece)
        return self._ids.get(SPACE + piece, UNK) if number is None else number

    def normalise(self, text: str) -> str:
        """Return the text as the tokenizer sees it, which is what `decode(encode(text))` gives."""
        if self.settings.multiline:
            chunks = ((chunk, self._normalised(chunk)) for chunk in self._chunks(text))
            return "".join(chunk if _is_literal(chunk) else seen.replace(SPACE, " ") for chunk, seen in chunks)
        normalised = self._normalised(text)
        if self.settings.kind == "word":
            return " ".join(self._lookup.units(normalised))
        normalised = normalised.replace(SPACE, " ")
        return normalised.removeprefix(" ") if self._prefixed else normalised

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text, without `<s>` and `</s>`."""
        if self.settings.multiline:
            row: list[int] = self._encode_documents([text], threads=1)[0].tolist()
            return row
        if self._has_whole_units:
            return self._lookup.ids(self._normalised(text))
        ids: list[int] = self._processor.encode(self._preparation.line(text))
        return ids

    def encode_phrase(self, phrase: str) -> list[int]:
        """Return the ids of a phrase inside a line: without a space before it, if its script is written without."""
        ids = self.encode(phrase)
        text = phrase.lstrip()
        if not ids or not text or character_class(text[0]) != UNSPACED or not self._surfaces[ids[0]].startswith(b" "):
            return ids
        first = self._pieces[ids[0]].removeprefix(SPACE)
        if first in self._ids:
            return [self._ids[first], *ids[1:]]
        return [number for character in first for number in self._character_ids(character)] + ids[1:]

    def _character_ids(self, character: str) -> list[int]:
        return [self._ids[character]] if character in self._ids else self._spelled(character)

    @cached_property
    def character_classes(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """The class of the first and of the last character of each piece, for `regard.text.words.JOINS`."""
        edges = [edge_classes(surface) for surface in self._surfaces]
        first, last = np.array(edges, dtype=np.int8).T
        return first, last

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> TokenBatch:
        """Encode a batch of texts.

        Args:
            texts: Lines; or documents with line breaks, if the tokenizer is multiline.
            threads: The number of threads; by default the number of cores.

        Returns:
            The ids of all texts end to end, and the offsets of the texts.
        """
        threads = _thread_count(threads)
        if self.settings.multiline:
            return self._encode_documents(texts, threads)
        if self._has_whole_units:
            return _flatten([self._lookup.ids(self._normalised(text)) for text in texts])
        return _join(self._processor.encode(self._preparation.lines(texts), num_threads=threads, return_type="numpy"))

    def _encode_documents(self, documents: Sequence[str], threads: int) -> TokenBatch:
        """Encode documents chunk by chunk, so that time grows linearly with their length."""
        split = [self._chunks(document) for document in documents]
        chunks = list(chain.from_iterable(split))
        if self._has_whole_units:
            rows = [np.array(self._lookup.ids(self._normalised(chunk)), dtype=np.int32) for chunk in chunks]
        else:
            rows = self._processor.encode(self._preparation.lines(chunks), num_threads=threads, return_type="numpy")
        for number, chunk in enumerate(chunks):
            if _is_literal(chunk):
                rows[number] = np.array(self._spelled(chunk), dtype=np.int32)
        ids, offsets = _join(rows)
        return ids, offsets[_offsets(split)]

    def sample_batch(self, texts: Sequence[str], amount: float, seed: int, threads: int | None = None) -> TokenBatch:
        """Encode a batch of texts with a random segmentation of each; the same seed gives the same ids.

        Args:
            texts: Lines or documents, as in `encode_batch`.
            amount: For bpe, the probability to skip a merge (BPE-dropout, Provilkov et al. 2020). For unigram, the
                smoothing α (Kudo 2018), where less gives more variety. 0 turns sampling off.
            seed: The seed of the segmentations.
            threads: The number of threads without sampling. Sampling itself is Python code, which more threads do not
                make faster; use more processes.
        """
        if self.settings.kind in ("word", "char"):
            raise ValueError(
                f"a {self.settings.kind} tokenizer has one segmentation of a text: sample with bpe or unigram"
            )
        if not 0 <= amount <= 1:
            raise ValueError(f"the amount of sampling is {amount}: set it to a number between 0 and 1")
        if amount == 0:
            return self.encode_batch(texts, threads)
        random = Random(seed)
        return _flatten([self._sample(text, amount, random) for text in texts])

    def _sample(self, text: str, amount: float, random: Random) -> list[int]:
        ids: list[int] = []
        for chunk in self._chunks(text):
            if self.settings.multiline and _is_literal(chunk):
                ids += self._spelled(chunk)
            else:
                ids += self._sampler.sample(self._normalised(chunk), amount, random)
        return ids

    def tokens(self, text: str) -> list[Token]:
        """Encode one text, and return each token with its span and its word."""
        encoded: list[Segment] = []
        offsets, origins = [0], [0]
        for chunk in self._chunks(text):
            prepared = self._preparation.line(chunk)
            normalised, chunk_offsets = self._processor.normalize(prepared, with_offsets=True)
            before = len(offsets) - 1
            for number, begin, end in self._segments(chunk, prepared, normalised):
                encoded.append((number, begin + before, end + before))
            # Each list ends with the end of the text, which the first entry of the next chunk replaces.
            offsets[-1:] = [offset + len(origins) - 1 for offset in chunk_offsets]
            origins[-1:] = [offset + origins[-1] for offset in self._preparation.origins(chunk)]
        spans = OriginalSpans(text, origins, offsets, self._prefixed)
        return [spans.token(self._pieces[segment[0]], segment) for segment in encoded]

    def _segments(self, chunk: str, prepared: str, normalised: str) -> Iterable[Segment]:
        if self.settings.multiline and _is_literal(chunk):
            ids = self._spelled(chunk)
            return segments(ids, [SPACE] * len(ids), normalised, self._byte_of)
        if self._has_whole_units:
            return self._lookup.segments(normalised)
        pieces = self._processor.encode(prepared, return_type=str)
        return segments(self._processor.encode(prepared), pieces, normalised, self._byte_of)

    def decode(self, ids: ArrayLike) -> str:
        """Return the text of ids; `<pad>`, `<s>` and `</s>` are dropped."""
        numbers = np.asarray(ids)
        if numbers.size == 0:
            return ""
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ValueError(
                f"ids are {numbers.dtype} of shape {numbers.shape}: give one row of whole numbers, or use decode_batch"
            )
        if numbers.min() < 0 or numbers.max() >= len(self):
            raise self._no_piece(numbers[(numbers < 0) | (numbers >= len(self))][0])
        surfaces = self._surfaces
        text = b"".join([surfaces[number] for number in numbers.tolist()]).decode(errors="replace")
        return text.removeprefix(" ") if self._prefixed else text

    def tokens_of(self, ids: Sequence[int]) -> list[Token]:
        """Return the tokens of ids, each with its span and its word in `decode(ids)`.

        `tokens(decode(ids))` may segment that text in another way than the model that generated the ids.
        """
        spans = decoded_spans([self._surfaces[number] for number in ids], self.decode(ids), self._prefixed)
        return [Token(self._pieces[number], number, *span) for number, span in zip(ids, spans, strict=True)]

    def decode_batch(self, rows: Iterable[ArrayLike]) -> list[str]:
        """Return the text of many rows of ids."""
        return [self.decode(row) for row in rows]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file atomically; it contains the settings."""
        write_atomically(Path(path), self.model)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a model file of ours, or one trained elsewhere with SentencePiece, whose reserved ids are moved."""
        file = Path(path)
        if not file.is_file():
            raise ValueError(f"{file} does not exist or is not a file: name a SentencePiece .model file")
        return cls.parse(file.read_bytes(), file)

    @classmethod
    def parse(cls, data: bytes, file: Path) -> "Tokenizer":
        """Return the tokenizer in the contents of a model file, which errors name."""
        try:
            return cls(data)
        except proto.ModelFileError as error:
            raise ValueError(f"{file} is damaged: {error}; restore it from a copy, or learn it again") from error
        except ValueError as error:
            raise ValueError(f"{file} cannot be used: {error}") from error

    def _no_piece(self, number: int) -> ValueError:
        return ValueError(f"no piece has the id {number}: the ids of this vocabulary are 0 to {len(self) - 1}")

    def _chunks(self, text: str) -> list[str]:
        """Split a document into chunks that are encoded one by one; a line is a single chunk.

        SentencePiece reads `▁` as a space. In a document each run of `▁` is therefore a chunk of its own, which is
        spelled in bytes, so that nothing is lost.
        """
        if not self.settings.multiline:
            return [text]
        chunks = split_lines(text, learn.LONGEST, self.settings.symbols)
        if SPACE in text:
            chunks = [part for chunk in chunks for part in _SPACE_MARKS.split(chunk) if part]
        return chunks

    def _spelled(self, chunk: str) -> list[int]:
        """Return the ids of the UTF-8 bytes of a chunk, or UNK for each character if bytes have no ids."""
        return [self._byte_ids[byte] for byte in chunk.encode()] if self._byte_ids else [UNK] * len(chunk)

    def _normalised(self, line: str) -> str:
        """Return the line as SentencePiece normalises it, with `▁` for spaces."""
        text: str = self._processor.normalize(self._preparation.line(line))
        return text

    @property
    def _has_whole_units(self) -> bool:
        """Whether `_lookup` encodes. For characters with bytes SentencePiece gives the same ids, and is faster."""
        return self.settings.kind == "word" or (self.settings.kind == "char" and not self.settings.bytes)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self._pieces)}

    @cached_property
    def _byte_of(self) -> dict[int, int]:
        """The byte of each id whose piece is a byte."""
        pieces = enumerate(zip(self._pieces, self._types, strict=True))
        return {
            number: int(piece[3:5], 16)
            for number, (piece, kind) in pieces
            if kind == proto.BYTES and BYTE.fullmatch(piece)
        }

    @cached_property
    def _byte_ids(self) -> list[int]:
        """The id of each of the 256 bytes, or nothing if bytes have no ids."""
        return sorted(self._byte_of, key=self._byte_of.__getitem__)

    @cached_property
    def _lookup(self) -> LookupEncoder:
        is_word = self.settings.kind == "word"
        table: dict[str, int] = {}
        for number, (piece, kind) in enumerate(zip(self._pieces, self._types, strict=True)):
            if kind in (proto.NORMAL, proto.SYMBOL):
                table[piece.removeprefix(SPACE) if is_word else piece] = number
        return LookupEncoder(self.settings, table, self._byte_ids)

    @cached_property
    def _surfaces(self) -> list[bytes]:
        """The text of each id, in UTF-8."""
        is_word = self.settings.kind == "word"
        surfaces: list[bytes] = []
        for number, (piece, kind) in enumerate(zip(self._pieces, self._types, strict=True)):
            if number in self._byte_of:
                surfaces.append(bytes([self._byte_of[number]]))
            elif kind == proto.CONTROL:
                surfaces.append(b"")
            else:
                text = UNKNOWN if kind == proto.UNKNOWN else piece.replace(SPACE, " ")
                surfaces.append((" " + text if is_word and kind != proto.NORMAL else text).encode())
        return surfaces

    @cached_property
    def _sampler(self) -> SubwordSampler:
        scores = self._processor.get_score(list(range(len(self))))
        ordinary = {
            piece: (number, scores[number])
            for number, (piece, kind) in enumerate(zip(self._pieces, self._types, strict=True))
            if kind in (proto.NORMAL, proto.SYMBOL)
        }
        sampler = DropoutSampler if self.settings.kind == "bpe" else UnigramSampler
        return sampler(ordinary, self.settings.unsplit, self._byte_ids)


def _is_literal(chunk: str) -> bool:
    """Return whether a chunk of a document is a run of `▁`, which is spelled in bytes."""
    return chunk.startswith(SPACE)


def _thread_count(threads: int | None) -> int:
    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}: encoding needs at least one")
    return threads or os.cpu_count() or 1


def _join(rows: Sequence[NDArray[np.int32]]) -> TokenBatch:
    return (np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)), _offsets(rows)


def _flatten(rows: Sequence[Sequence[int]]) -> TokenBatch:
    offsets = _offsets(rows)
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=offsets[-1]), offsets


def _offsets(rows: Sequence[Sized]) -> NDArray[np.int64]:
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)), out=offsets[1:])
    return offsets
