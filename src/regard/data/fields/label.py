"""Label fields: a string out of a small set becomes a class number; or several strings, several numbers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.fields.lists import split_list
from regard.data.rows import Rows, offsets_of
from regard.files import read_inside, write_atomically
from regard.recipe import FieldKind

MOST_CLASSES = 100_000
"""Classes a label field may have; more are a sign that the wrong column was named."""
_LONGEST_FILE = 1 << 28  # bytes


class UnknownLabelError(ValueError):
    """A label is none of the classes of its field."""

    def __init__(self, label: str, classes: Sequence[str], index: int) -> None:
        """Describe the label, which is number `index` of the encoded values."""
        similar = get_close_matches(label, classes, n=1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"the classes are {', '.join(classes[:10])}"
        problem = f"the label {label!r} does not occur in the training data; {hint}"
        super().__init__(problem if label.strip() else "the label is empty; give one, or remove the record")
        self.index = index


@dataclass(frozen=True)
class LabelField:
    """A label, encoded as its position in a sorted list of classes."""

    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check that the classes are distinct and that their number is plausible."""
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a label field has each class once; the list of classes repeats one")
        if not 0 < len(self.classes) <= MOST_CLASSES:
            raise ValueError(
                f"a label field has 1 to {MOST_CLASSES:,} classes, not {len(self.classes):,}; is it the right column?"
            )

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "label"

    @property
    def fingerprint(self) -> str:
        """A hash of the list of classes."""
        return hashlib.sha256(json.dumps(self.classes).encode()).hexdigest()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Two bytes are enough for all but very long lists of classes."""
        return np.dtype("<u2" if len(self.classes) <= 1 << 16 else "<i4")

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.classes)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def encode(self, values: Sequence[str]) -> Rows:
        """Return one row with one class number for each label; an unknown label raises an `UnknownLabelError`."""
        try:
            ids = [self._numbers[value] for value in values]
        except KeyError as error:
            raise UnknownLabelError(error.args[0], self.classes, values.index(error.args[0])) from None
        return Rows(np.array(ids, np.int32), np.arange(len(ids) + 1))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the class of one number."""
        (number,) = ids
        return self.classes[number]

    @classmethod
    def split(cls, value: str) -> list[str]:
        """Return the labels in a raw value: one, or none if it is empty."""
        return [value] if value.strip() else []

    @staticmethod
    def save_all(fields: Mapping[str, "LabelField"], path: Path) -> None:
        """Write the classes of several label fields into one JSON file."""
        table = {name: list(field.classes) for name, field in fields.items()}
        write_atomically(path, (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode())

    @staticmethod
    def load_all(path: Path, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Read the classes of label fields from a JSON file."""
        try:
            table = json.loads(read_inside(path.parent, path.name, _LONGEST_FILE))
            return {name: LabelField(tuple(map(str, table[name]))).classes for name in names}
        except FileNotFoundError:
            raise ValueError(f"{path} is missing: it lists the classes of {', '.join(names)}") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error}); restore it from a copy, or train again") from error


@dataclass(frozen=True)
class LabelsField(LabelField):
    """Any number of labels, separated by commas."""

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "labels"

    @classmethod
    def split(cls, value: str) -> list[str]:
        """Return the labels in a raw value, each once, in order."""
        return sorted(set(split_list(value, ",")))

    def encode(self, values: Sequence[str]) -> Rows:
        """Return one row with the class number of each label; an unknown label raises an `UnknownLabelError`."""
        split = [self.split(value) for value in values]
        try:
            ids = [self._numbers[label] for labels in split for label in labels]
        except KeyError as error:
            index = next(number for number, labels in enumerate(split) if error.args[0] in labels)
            raise UnknownLabelError(error.args[0], self.classes, index) from None
        return Rows(np.array(ids, np.int32), offsets_of(np.array([len(labels) for labels in split], np.int64)))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the labels of class numbers."""
        return ",".join(self.classes[number] for number in ids)


@dataclass(frozen=True)
class TagsField(LabelsField):
    """One tag for each word of a sentence, separated by white space."""

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "tags"

    @classmethod
    def split(cls, value: str) -> list[str]:
        """Return the tags in a raw value, in order."""
        return split_list(value)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the tags of class numbers."""
        return " ".join(self.classes[number] for number in ids)
