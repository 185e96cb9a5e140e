"""Nested text fields: documents of sentences, dialogues of turns, sentences of words, alternative texts.

A row holds the tokens of all parts, and `END` after each part. So a store needs no second level of offsets, and
`split_parts` finds the parts again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.fields.lists import SEPARATOR, join_list, split_list, split_turns
from regard.data.fields.text import TextField
from regard.data.rows import Ids, Numbers, Rows, offsets_of
from regard.recipe import ME, YOU, FieldKind
from regard.text import END, UNK
from regard.text.sentences import split_sentences


@dataclass(frozen=True)
class DocumentField(TextField):
    """A document: a text that is split into sentences."""

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "document"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the tokenizer, and the kind of parts."""
        return f"{self.kind}-{self.tokenizer.fingerprint}"

    def parts(self, value: str) -> list[str]:
        """Return the sentences."""
        return [value[begin:end] for begin, end in split_sentences(value)]

    def encode_with(self, segment: Callable[[Sequence[str]], tuple[Ids, Numbers]], values: Sequence[str]) -> Rows:
        """Encode a batch of values: the tokens of each part, then `END`; `segment` gets all parts."""
        parts = [self.parts(value) for value in values]
        tokens = Rows(*segment([part for value in parts for part in value]))
        if not tokens.lengths.all():  # a part that normalisation removes is an unknown token, so that none is lost
            slots = tokens.offsets[:-1][tokens.lengths == 0]
            lengths = np.maximum(tokens.lengths, 1)
            tokens = Rows(np.insert(tokens.ids, slots, UNK).astype(np.int32), offsets_of(lengths))
        ended = tokens.append(END)
        return Rows(ended.ids, ended.offsets[offsets_of(np.array([len(value) for value in parts], np.int64))])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the parts of a row as a text."""
        parts, part = [], list[int]()
        for token in ids:
            if token == END:
                parts.append(self.tokenizer.decode(part))
                part = []
            else:
                part.append(int(token))
        return " ".join(parts)


@dataclass(frozen=True)
class WordsField(DocumentField):
    """A sentence whose words are given, separated by white space or, if words contain some, by tabs."""

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "words"

    def parts(self, value: str) -> list[str]:
        """Return the words."""
        return split_list(value)


@dataclass(frozen=True)
class TextsField(DocumentField):
    """Alternative texts, such as several captions of one picture, separated by tabs."""

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "texts"

    def parts(self, value: str) -> list[str]:
        """Return the texts; empty ones are left out."""
        return [stripped for text in value.split(SEPARATOR) if (stripped := text.strip())]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the texts of a row as one value."""
        return SEPARATOR.join(self.tokenizer.decode(text) for text in self.texts(ids))

    def texts(self, ids: Sequence[int]) -> list[list[int]]:
        """Return the token ids of each text of a row."""
        texts: list[list[int]] = [[]]
        for token in ids:
            if token == END:
                texts.append([])
            else:
                texts[-1].append(int(token))
        return texts[:-1]


@dataclass(frozen=True)
class TurnsField(DocumentField):
    """The turns of a dialogue before a reply, separated by tabs.

    Each turn begins with a symbol for its speaker: `YOU` for the last turn, which the reply answers, and by turns `ME`
    and `YOU` for those before it. Such a symbol in the text of a turn is an unknown token, so that nobody can speak for
    the other speaker.
    """

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "turns"

    def parts(self, value: str) -> list[str]:
        """Return the turns, without empty ones; a value without text is one empty turn, so that a model reads it."""
        return split_turns(value) or [""]

    def encode_with(self, segment: Callable[[Sequence[str]], tuple[Ids, Numbers]], values: Sequence[str]) -> Rows:
        """Encode a batch of values: for each turn the symbol of its speaker, its tokens and `END`."""
        rows = super().encode_with(segment, values)
        you, me = self.tokenizer.id(YOU), self.tokenizer.id(ME)
        typed = (rows.ids == you) | (rows.ids == me)
        starts = part_starts(rows)
        turns = np.searchsorted(starts, rows.offsets)  # turns before each row
        from_last = np.repeat(turns[1:], np.diff(turns)) - np.arange(starts.size) - 1
        ids = np.insert(np.where(typed, UNK, rows.ids), starts, self.speakers(from_last)).astype(np.int32)
        return Rows(ids, rows.offsets + turns)

    def speakers(self, from_last: Numbers) -> Numbers:
        """Return the symbols of the speakers of turns, each so many turns before the last one."""
        return np.where(from_last % 2 == 0, self.tokenizer.id(YOU), self.tokenizer.id(ME))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the turns of a row as one value."""
        return join_list([self.tokenizer.decode(turn) for turn in self.turns(ids)])

    def turns(self, ids: Sequence[int]) -> list[list[int]]:
        """Return the token ids of each turn of a row, without symbols."""
        turns: list[list[int]] = [[]]
        for token in ids:
            if token == END:
                turns.append([])
            else:
                turns[-1].append(int(token))
        return [turn[1:] for turn in turns[:-1]]


def part_starts(rows: Rows) -> Numbers:
    """Return the index of the first id of each part, in the concatenated ids of all rows."""
    return np.flatnonzero(np.concatenate([[END], rows.ids[:-1]]) == END) if rows.ids.size else np.zeros(0, np.int64)


def keep_last_parts(rows: Rows, longest: int) -> Rows:
    """Keep the last parts of each row that have at most `longest` ids together, `END` included.

    Of a last part that is longer itself, the first id and the last ones are kept.

    Args:
        rows: Rows of parts, each followed by `END`.
        longest: Maximum number of ids; at least 2.
    """
    too_long = np.flatnonzero(rows.lengths > longest)
    if not too_long.size:
        return rows
    kept, starts = np.ones(rows.ids.size, bool), part_starts(rows)
    for begin, end in zip(rows.offsets[too_long], rows.offsets[too_long + 1], strict=True):
        first = starts[np.searchsorted(starts, end - longest)] if starts[-1] >= end - longest else end
        if first < end:
            kept[begin:first] = False
        else:
            last = starts[np.searchsorted(starts, end) - 1]
            kept[begin : end - longest + 1] = False
            kept[last] = True
    return Rows(rows.ids[kept], offsets_of(kept)[rows.offsets])


def cut_parts(rows: Rows, longest: int) -> Rows:
    """Keep at most the first `longest` ids of each row, `END` included, and end a part that is cut off by `END`."""
    rows = rows.cut(longest)
    last = np.where(rows.lengths > 0, rows.ids[rows.offsets[1:] - 1] if rows.ids.size else END, END)
    open_rows = last != END
    if not open_rows.any():
        return rows
    ids = np.insert(rows.ids, rows.offsets[1:][open_rows], END).astype(np.int32)
    return Rows(ids, offsets_of(rows.lengths + open_rows))


def split_parts(rows: Rows) -> tuple[Rows, Rows]:
    """Return the tokens of each row without the ends of its parts, and the number of tokens of each of its parts."""
    is_end = rows.ids == END
    ends = np.flatnonzero(is_end)
    # Number of ends before each position, so before each row.
    before = np.concatenate([[0], np.cumsum(is_end)])[rows.offsets]
    sizes = np.diff(ends, prepend=-1) - 1
    return Rows(rows.ids[~is_end], rows.offsets - before), Rows(sizes.astype(np.int32), before)
