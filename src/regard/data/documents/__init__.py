"""Generated documents whose labels are known to follow from certain sentences and words.

A document is a short review or report in English, of 3 to 12 sentences. One to three of them decide its label, and in
these some words do; the others are filler, which occurs with every label. So the question whether the attention of a
classifier is on what decides has an answer. There are two sets of labels:

- `topic`: what a document is about. Words of the topic decide.
- `sentiment`: whether the reviewer liked something. Negation and `but` decide which words count and how, and filler
  sentences have words of praise and blame that do not count.

The sentences are data: see the `.txt` files next to this module, and `docs/attention_judged.md`.
"""

import random
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from regard.data.documents.tables import FrameGroups, LabelTable, load_tables
from regard.data.generation import draw_distinct, fraction

__all__ = ["LABEL_SETS", "SPLITS", "Document", "documents", "labels", "word_spans"]

LABEL_SETS = ("topic", "sentiment")
SPLITS = ("train", "valid", "test")
SHORTEST, LONGEST = 3, 12  # sentences of a document
MOST_DECIDING = 3
VALID, TEST = 0.05, 0.10  # upper bounds of the hash: five per cent each
PATIENCE = 10_000  # consecutive draws without a new document after which a split counts as exhausted
_SALT = "regard documents"
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


class Document(NamedTuple):
    """A document, its label, and what decides the label."""

    label: str
    sentences: tuple[str, ...]
    """The sentences, in order; the text separates them by a space."""
    deciding: tuple[tuple[int, ...], ...]
    """For each sentence the numbers of its deciding words, counted from 0; none for filler."""

    @property
    def text(self) -> str:
        """The sentences as one text."""
        return " ".join(self.sentences)

    @property
    def sentence_spans(self) -> list[tuple[int, int]]:
        """Begin and end of each sentence in the text."""
        spans, begin = [], 0
        for sentence in self.sentences:
            spans.append((begin, begin + len(sentence)))
            begin += len(sentence) + 1
        return spans

    @property
    def deciding_sentences(self) -> list[int]:
        """The numbers of the sentences that decide the label, counted from 0."""
        return [number for number, words in enumerate(self.deciding) if words]

    @property
    def deciding_words(self) -> list[tuple[int, int]]:
        """Begin and end in the text of each word that decides the label, without punctuation."""
        spans = []
        for (begin, _), sentence, words in zip(self.sentence_spans, self.sentences, self.deciding, strict=True):
            places = word_spans(sentence)
            spans += [(begin + places[word][0], begin + places[word][1]) for word in words]
        return spans


def documents(label: str, split: str, count: int, seed: int = 0) -> Iterator[Document]:
    """Yield distinct documents of a split; the same seed gives the same documents on every machine.

    No deciding sentence occurs in two splits, so no document does either.

    Args:
        label: The set of labels: `topic` or `sentiment`.
        split: One of `SPLITS`.
        count: The number of documents.
        seed: The seed of the random draws.

    Example:
        >>> next(documents("topic", "train", count=1)).label
    """
    _check_name(label, LABEL_SETS, "set of labels")
    _check_name(split, SPLITS, "split")
    if count < 0:
        raise ValueError(f"cannot draw {count} documents: ask for 0 or more")
    return _draw_distinct(label, split, count, seed)


def labels(label: str) -> tuple[str, ...]:
    """Return the labels of a set of labels."""
    _check_name(label, LABEL_SETS, "set of labels")
    return tuple(_tables(label))


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return begin and end of each word of a text, without the punctuation around it."""
    return [match.span() for match in _WORD.finditer(text)]


def _draw_distinct(label: str, split: str, count: int, seed: int) -> Iterator[Document]:
    """Return distinct documents."""
    tables = list(_tables(label).items())
    # Only `Random.random` is used: it is the one method whose sequence of numbers Python guarantees not to change.
    draw = random.Random(f"documents {label} {split} {seed}").random

    def draw_document() -> tuple[str, Document]:
        name, table = tables[int(draw() * len(tables))]
        document = _document(name, table, split, draw)
        return document.text, document

    return draw_distinct(draw_document, split, count, "documents", PATIENCE)


def _document(label: str, table: LabelTable, split: str, draw: Callable[[], float]) -> Document:
    """Draw a document: its length, which sentences decide, and then the sentences."""
    length = SHORTEST + int(draw() * (LONGEST - SHORTEST + 1))
    number = 1 + int(draw() * min(MOST_DECIDING, (length - 1) // 2))  # most sentences are filler
    remaining = number
    sentences: list[str] = []
    deciding: list[tuple[int, ...]] = []
    while len(sentences) < length:
        if draw() * (length - len(sentences)) < remaining:
            sentence, words = _sentence(table.deciding, draw)
            while sentence in sentences or _split(sentence) != split:
                sentence, words = _sentence(table.deciding, draw)
            remaining -= 1
        else:
            sentence, _ = _sentence(table.filler, draw)
            words = ()
            if sentence in sentences:
                continue
        sentences.append(sentence)
        deciding.append(words)
    return Document(label, tuple(sentences), tuple(deciding))


def _sentence(frames: FrameGroups, draw: Callable[[], float]) -> tuple[str, tuple[int, ...]]:
    """Draw a sentence whose slots have different words, and return it with the numbers of its deciding words."""
    bounds = frames.bounds
    group = frames.groups[bisect(bounds, draw() * bounds[-1]) if len(bounds) > 1 else 0]
    frame = group[int(draw() * len(group))]
    while True:
        words = [slot[int(draw() * len(slot))] for slot in frame.slots]
        if len(words) < 2 or len(set(words)) == len(words):
            return frame.text % tuple(words), frame.deciding


def _split(sentence: str) -> str:
    """Return the split of a deciding sentence, by a hash that is the same on every machine."""
    value = fraction(sentence, _SALT)
    return "valid" if value < VALID else "test" if value < TEST else "train"


@cache
def _tables(label: str) -> dict[str, LabelTable]:
    """Return the tables of a set of labels, which are read once."""
    return load_tables(label)


def _check_name(name: str, names: tuple[str, ...], what: str) -> None:
    if name not in names:
        raise ValueError(f"documents have no {what} {name!r}: choose one of {', '.join(names)}")
