"""Field kinds: how a raw value of a record becomes ids, and back.

A record is a mapping from field name to value, such as `{"source": "I can", "target": "Ich kann"}`. A task
(`regard.tasks`) names its fields and gives each a kind:

| kind       | raw value                            | encoded                                  | class           |
|------------|--------------------------------------|------------------------------------------|-----------------|
| `text`     | a string                             | token ids                                | `TextField`     |
| `document` | a string, split into sentences       | token ids, `END` after each sentence     | `DocumentField` |
| `turns`    | turns, separated by tabs             | speaker, token ids, `END` for each turn  | `TurnsField`    |
| `words`    | words, separated by white space      | token ids, `END` after each word         | `WordsField`    |
| `texts`    | alternative texts, separated by tabs | token ids, `END` after each text         | `TextsField`    |
| `label`    | a string out of a small set          | one class number                         | `LabelField`    |
| `labels`   | such strings, separated by commas    | class numbers                            | `LabelsField`   |
| `tags`     | such strings, separated by spaces    | class numbers, one for each word         | `TagsField`     |
| `image`    | the path of a picture                | pixels, as bytes                         | `ImageField`    |
| `series`   | the numbers of a row, tab-separated  | scaled numbers, in float32               | `SeriesField`   |

A new kind is one class here that implements `Field`, a line in `_assemble`, and its name in `regard.recipe.FieldKind`.
One `Field` object encodes for training, prediction, server and explorer alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard.data.fields.image import ImageField, UnreadableImageError
from regard.data.fields.label import LabelField, LabelsField, TagsField
from regard.data.fields.lists import SEPARATOR
from regard.data.fields.nested import DocumentField, TextsField, TurnsField, WordsField, split_parts
from regard.data.fields.series import SeriesField
from regard.data.fields.text import TextField
from regard.data.rows import Numbers, Rows
from regard.recipe import FieldKind, ImageSettings, Recipe
from regard.run_files import TOKENIZER
from regard.text import Tokenizer, Tokenizers

__all__ = [
    "CUT_KINDS",
    "TEXT_KINDS",
    "DocumentField",
    "Field",
    "Fields",
    "ImageField",
    "LabelField",
    "LabelsField",
    "SeriesField",
    "TagsField",
    "TextField",
    "TextsField",
    "TurnsField",
    "UnequalLengthsError",
    "UnreadableImageError",
    "WordsField",
    "learn_fields",
    "load_fields",
    "split_parts",
    "text_lengths",
    "text_names",
    "with_tokenizers",
]

LABELS = "labels.json"

_TEXT_FIELDS: dict[FieldKind, type[TextField]] = {
    "text": TextField,
    "document": DocumentField,
    "turns": TurnsField,
    "words": WordsField,
    "texts": TextsField,
}
TEXT_KINDS = frozenset(_TEXT_FIELDS)
"""The kinds of fields that a tokenizer encodes."""
CUT_KINDS: frozenset[FieldKind] = frozenset({"turns"})
"""The kinds whose values are cut to `data.longest` tokens, so that no filter compares their lengths."""
_LABEL_FIELDS: dict[FieldKind, type[LabelField]] = {"label": LabelField, "labels": LabelsField, "tags": TagsField}


class UnequalLengthsError(ValueError):
    """A record has not as many tags as words."""

    def __init__(self, words: int, tags: int, index: int) -> None:
        """Describe the record, which is number `index` of the encoded values."""
        super().__init__(
            f"{words} words and {tags} tags; give one tag for each word, in the same order, separated alike"
        )
        self.index = index


class Field(Protocol):
    """Encodes the values of one field of a record."""

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""

    @property
    def fingerprint(self) -> str:
        """A hash of everything that ids depend on: equal fingerprints, equal ids."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds every id, in which a store keeps them."""

    def __len__(self) -> int:
        """Return the size of the vocabulary, or the number of values of a picture or of a row."""

    def encode(self, values: Sequence[str]) -> Rows:
        """Encode a batch of raw values, one row each."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the raw value of ids."""


@dataclass(frozen=True)
class Fields(Mapping[str, Field]):
    """The fields of a task with their vocabularies, by name and in order."""

    by_name: Mapping[str, Field]

    def __getitem__(self, name: str) -> Field:
        """Return the field of a name."""
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(self.by_name)

    def __len__(self) -> int:
        """Return the number of fields."""
        return len(self.by_name)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of the text fields; there must be one."""
        return Tokenizers({name: field.tokenizer for name, field in self.items() if isinstance(field, TextField)})

    @property
    def fingerprint(self) -> str:
        """A hash of all vocabularies."""
        return "-".join(field.fingerprint for field in self.values())

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each vocabulary; for pictures, channels · height · width; for series, the number of columns."""
        return {name: len(field) for name, field in self.items()}

    def encode(self, columns: Mapping[str, Sequence[str]]) -> dict[str, Rows]:
        """Encode the values of all fields of a batch of records.

        Raises:
            UnequalLengthsError: A record has not as many tags as words.
            UnknownLabelError: A label is none of the classes of its field.
        """
        encoded = {name: field.encode(columns[name]) for name, field in self.items()}
        words = [encoded[name] for name, field in self.items() if isinstance(field, WordsField)]
        tags = [encoded[name] for name, field in self.items() if isinstance(field, TagsField)]
        for texts, labels in zip(words, tags, strict=False):
            counts = split_parts(texts)[1].lengths
            unequal = np.flatnonzero(counts != labels.lengths)
            if unequal.size:
                first = int(unequal[0])
                raise UnequalLengthsError(int(counts[first]), int(labels.lengths[first]), first)
        return encoded

    def save(self, folder: Path) -> None:
        """Write all vocabularies into the folder of a run."""
        if any(isinstance(field, TextField) for field in self.values()):
            self.tokenizers.save(folder / TOKENIZER)
        labels = {name: field for name, field in self.items() if isinstance(field, LabelField)}
        if labels:
            LabelField.save_all(labels, folder / LABELS)
        for name, field in self.items():
            if isinstance(field, SeriesField):
                field.save(name, folder)


def text_lengths(kind: FieldKind, rows: Rows) -> Numbers:
    """Return the number of tokens of each text of a field; of alternative texts, those of the longest one."""
    if kind != "texts":
        return rows.lengths
    sizes = split_parts(rows)[1]
    longest = np.zeros(len(rows), np.int64)
    np.maximum.at(longest, np.repeat(np.arange(len(rows)), sizes.lengths), sizes.ids)
    return longest


def text_names(kinds: Mapping[str, FieldKind]) -> list[str]:
    """Return the names of the fields that have a tokenizer."""
    return [name for name, kind in kinds.items() if kind in _TEXT_FIELDS]


def learn_fields(
    kinds: Mapping[str, FieldKind],
    records: Iterable[tuple[str, ...]],
    recipe: Recipe,
    multiline: bool = False,
    tokenizers: Tokenizers | None = None,
) -> Fields:
    """Learn the vocabularies of all fields from raw records, whose values come in the order of `kinds`.

    The records are read once. Tokenizers are learned as the recipe's `[text]` section says, unless they are given; the
    classes of a label field are the values that occur. `multiline` texts are documents, whose line breaks are tokens.
    A series needs no vocabulary: see `SeriesField.learn`.
    """
    names = list(kinds)
    text_at = [index for index, name in enumerate(names) if kinds[name] in _TEXT_FIELDS]
    values: dict[str, set[str]] = {name: set() for name in names if kinds[name] in _LABEL_FIELDS}

    def texts() -> Iterator[tuple[str, ...]]:
        for record in records:
            for name, classes in values.items():
                classes.update(_LABEL_FIELDS[kinds[name]].split(record[names.index(name)]))
            # The tabs between turns are no text, unlike those of a document.
            yield tuple(
                record[index].replace(SEPARATOR, " ") if kinds[names[index]] == "turns" else record[index]
                for index in text_at
            )

    text, columns = recipe.text, texts()
    if tokenizers is None and text_at:
        tokenizers = Tokenizers.learn(
            columns,
            fields=[names[index] for index in text_at],
            kind=text.kind,
            size=text.size,
            joint=text.joint,
            normalise=text.normalise,
            lowercase=text.lowercase,
            bytes=text.bytes,
            symbols=text.symbols,
            multiline=multiline,
            seed=recipe.seed,
        )
    for _ in columns:  # no tokenizer was learned, and the labels are still to be read
        pass
    classes = {name: tuple(sorted(labels)) for name, labels in values.items()}
    return _assemble(kinds, tokenizers or {}, classes, recipe.image)


def load_fields(folder: Path, kinds: Mapping[str, FieldKind], images: ImageSettings | None = None) -> Fields:
    """Read the vocabularies that `Fields.save` wrote into the folder of a run.

    Args:
        folder: The folder.
        kinds: The fields and their kinds.
        images: The recipe's `[image]` section; its default if there are no pictures.
    """
    texts = text_names(kinds)
    labels = [name for name, kind in kinds.items() if kind in _LABEL_FIELDS]
    tokenizers = Tokenizers.load(folder, fields=texts) if texts else {}
    classes = LabelField.load_all(folder / LABELS, labels) if labels else {}
    series = {name: SeriesField.load(name, folder) for name, kind in kinds.items() if kind == "series"}
    return _assemble(kinds, tokenizers, classes, images or ImageSettings(), series)


def with_tokenizers(tokenizers: Tokenizers, kinds: Mapping[str, FieldKind] | None = None) -> Fields:
    """Return fields that are all texts, with these tokenizers; `kinds` has the kind of each if it is not `text`."""
    kind_of = kinds or {}
    return Fields({name: _TEXT_FIELDS[kind_of.get(name, "text")](tokenizer) for name, tokenizer in tokenizers.items()})


def _assemble(
    kinds: Mapping[str, FieldKind],
    tokenizers: Mapping[str, Tokenizer],
    classes: Mapping[str, tuple[str, ...]],
    images: ImageSettings,
    series: Mapping[str, SeriesField] | None = None,
) -> Fields:
    """Put the fields into the order of the task."""
    fields: dict[str, Field] = {}
    for name, kind in kinds.items():
        if kind in _TEXT_FIELDS:
            fields[name] = _TEXT_FIELDS[kind](tokenizers[name])
        elif kind == "series":
            fields[name] = (series or {})[name]
        else:
            fields[name] = ImageField(images) if kind == "image" else _LABEL_FIELDS[kind](classes[name])
    return Fields(fields)
