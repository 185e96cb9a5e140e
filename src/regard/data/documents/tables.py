"""The parser of the tables that documents are generated from, with errors that name the file and the line.

A table has sections, each under a heading:

- `[words]`, `[words LABEL]`: a line `slot: word, word, …` lists the words of a slot, of every label or of one label.
- `[deciding WEIGHT]`: frames of sentences that decide the label. `*` marks the deciding words.
- `[filler WEIGHT]`: frames of sentences that do not.

A frame is a sentence with slots. `{x}` is a word of the document's label or, if labels have no such slot, of all;
`{!x}` is a word of another label, and `{?x}` one of any label. A section is chosen by its weight, by default 1, and all
its frames are equally likely. `filler.txt` belongs to every table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import accumulate
from typing import Literal, NamedTuple

from regard.data.generation import read_lines

Role = Literal["deciding", "filler"]
FILLER = "filler.txt"
SLOT = re.compile(r"\{([!?]?)(\w+)\}")
HEADING = re.compile(r"\[(\w+)(?: (\w+))?\]")
Words = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The words of each slot, by label; those of every label are under the empty label."""


class Frame(NamedTuple):
    """A sentence of one label with slots, ready to be filled."""

    text: str
    """The sentence, `%s` in place of each slot."""
    slots: tuple[tuple[str, ...], ...]
    """The words that may fill each slot."""
    deciding: tuple[int, ...]
    """The numbers of the deciding words, counted from 0."""


class FrameGroups(NamedTuple):
    """Frames in groups: the cumulative weights of the groups, and the frames of each."""

    bounds: tuple[float, ...]
    groups: tuple[tuple[Frame, ...], ...]


@dataclass(frozen=True, eq=False)
class LabelTable:
    """What documents of one label are made of."""

    deciding: FrameGroups
    filler: FrameGroups


@dataclass
class _Section:
    """The frames under one heading, as they are written, each with its place (`file:line`)."""

    role: Role
    weight: float
    frames: list[tuple[str, str]] = field(default_factory=list)


def load_tables(name: str, folder: Traversable | None = None) -> dict[str, LabelTable]:
    """Read the table of a label set, such as `topic`, and return what each of its labels needs, by label."""
    folder = folder or files("regard.data.documents")
    words: dict[str, dict[str, tuple[str, ...]]] = {"": {}}
    sections: list[_Section] = []
    for file in (FILLER, f"{name}.txt"):
        _read(folder, file, words, sections)
    labels = [label for label in words if label]
    if len(labels) < 2:
        raise ValueError(f"{name}.txt has {len(labels)} labels: give at least two of them words, under [words LABEL]")
    return {
        label: LabelTable(_groups(sections, "deciding", label, words), _groups(sections, "filler", label, words))
        for label in labels
    }


def _read(folder: Traversable, name: str, words: dict[str, dict[str, tuple[str, ...]]], to: list[_Section]) -> None:
    """Add the words and the frames of one file."""
    label: str | None = None
    section: _Section | None = None
    for where, text in read_lines(folder, name):
        line = text.strip()
        if heading := HEADING.fullmatch(line):
            kind, argument = heading[1], heading[2] or ""
            label = argument if kind == "words" else None
            if kind == "words":
                words.setdefault(argument, {})
            elif kind in ("deciding", "filler") and (argument or "1").isdigit():
                section = _Section("deciding" if kind == "deciding" else "filler", float(argument or 1))
                to.append(section)
            else:
                raise ValueError(f"{where}: a heading is [words LABEL], [deciding 2] or [filler 2]; found {line!r}")
        elif label is not None:
            slot, _, listed = line.partition(":")
            words[label][slot] = _split_words(listed, where)
        elif section is not None:
            section.frames.append((where, line))
        else:
            raise ValueError(f"{where}: this line is before any heading: put [words] or [filler] above it")


def _split_words(listed: str, where: str) -> tuple[str, ...]:
    """Return the words of a list, which must be distinct single words."""
    words = tuple(word.strip() for word in listed.split(","))
    if not all(re.fullmatch(r"\w+", word) for word in words) or len(set(words)) < len(words):
        raise ValueError(f"{where}: a slot has distinct words, separated by commas: day: Monday, Tuesday")
    return words


def _groups(sections: list[_Section], role: Role, label: str, words: Words) -> FrameGroups:
    """Return the frames of one role, for one label."""
    chosen = [section for section in sections if section.role == role and section.frames]
    if not chosen:
        raise ValueError(f"the label {label!r} has no {role} sentences: add some under [{role}]")
    return FrameGroups(
        tuple(accumulate(section.weight for section in chosen)),
        tuple(tuple(_frame(line, where, label, words) for where, line in section.frames) for section in chosen),
    )


def _frame(line: str, where: str, label: str, words: Words) -> Frame:
    """Parse a frame, and fill its slots with the words of a label."""
    deciding = tuple(number for number, word in enumerate(line.split()) if word.startswith("*"))
    text = SLOT.sub("%s", line.replace("*", ""))
    if "{" in text or "}" in text or text.count("%") != len(SLOT.findall(line)) or not text.endswith((".", "!", "?")):
        raise ValueError(
            f"{where}: a frame is a sentence with slots such as {{day}}, {{!day}}, {{?day}}; found {line!r}"
        )
    slots = tuple(_slot(mark, slot, where, label, words) for mark, slot in SLOT.findall(line))
    return Frame(text, slots, deciding)


def _slot(mark: str, slot: str, where: str, label: str, words: Words) -> tuple[str, ...]:
    """Return the words that may fill a slot."""
    match mark:
        case "":
            lists = [words[label].get(slot) or words[""].get(slot, ())]
        case "!":
            lists = [listed.get(slot, ()) for name, listed in words.items() if name not in ("", label)]
        case _:
            lists = [listed.get(slot, ()) for name, listed in words.items() if name]
    found = tuple(word for listed in lists for word in listed)
    if not found:
        raise ValueError(f"{where}: the slot {slot!r} has no words for the label {label!r}: list some under [words]")
    return found
