"""Knowledge bases: pairs of a question and a reply, read from a file.

A file has two columns, question and reply (TSV); JSON objects with the keys `question` and `reply`, one on each line;
or dialogues, of which each turn is the reply to the turn before it (see `regard.data.dialogues`).
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from regard.data.dialogues import parse_dialogue, read_dialogues
from regard.data.rows import Numbers
from regard.files import read_lines

SHOWN = 3  # skipped lines that the warning names
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")  # those that are white space become a space
_SURROGATE = re.compile(r"[\ud800-\udfff]")

_log = logging.getLogger("regard")


class QuestionReply(NamedTuple):
    """A question and the reply to it."""

    question: str
    reply: str
    line: int
    """The line of the file, counted from 1."""


@dataclass(frozen=True, eq=False)
class KnowledgeBase:
    """Pairs of a question and a reply, in the order of a file, each pair once."""

    pairs: tuple[QuestionReply, ...]

    def __post_init__(self) -> None:
        """Check that there is something to retrieve, and join equal pairs."""
        if not self.pairs:
            raise ValueError("a knowledge base needs at least one pair of a question and a reply")
        distinct: dict[tuple[str, str], QuestionReply] = {}
        for pair in self.pairs:
            distinct.setdefault((pair.question, pair.reply), pair)
        object.__setattr__(self, "pairs", tuple(distinct.values()))

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Return the knowledge base of questions and replies, whose lines are their places, counted from 1.

        Raises:
            ValueError: A question or a reply is empty or has characters that a file may not have.
        """
        return cls(tuple(_checked(question, reply, line) for line, (question, reply) in enumerate(pairs, start=1)))

    @classmethod
    def read(cls, path: str | Path, *, strict: bool = False, key: str = "turns") -> Self:
        """Read a knowledge base from a file.

        Args:
            path: The file; `.gz` files are decompressed. Its name says what it holds: `.jsonl` and `.json` JSON
                objects, `.tsv` two columns. Any other file has two columns if its first line has a tab; otherwise it
                has a turn of a dialogue on each line, and a blank line after each dialogue.
            strict: Whether a broken line is an error. Otherwise such lines are skipped, with one warning.
            key: The key of the array of turns, for dialogues in JSON.

        Raises:
            ValueError: A line is broken and `strict` is true, or no line has a question and a reply.
        """
        reader = _Reader(Path(path), strict, key)
        pairs = tuple(reader.pairs())
        if not pairs:
            first = next(iter(reader.problems.values()), "it has no lines with text")
            raise ValueError(f"{path} has no pair of a question and a reply: {first}")
        reader.warn()
        return cls(pairs)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.pairs)

    def distinct_replies(self) -> tuple[list[str], Numbers]:
        """Return each reply once, and for each pair the index of its reply among them."""
        numbers: dict[str, int] = {}
        of_pair = [numbers.setdefault(pair.reply, len(numbers)) for pair in self.pairs]
        return list(numbers), np.array(of_pair, np.int64)


class _Reader:
    """Reads the pairs of one file, and notes what is wrong with its broken lines."""

    def __init__(self, path: Path, strict: bool, key: str) -> None:
        self.path, self.strict, self.key = path, strict, key
        self.problems: dict[int, str] = {}
        """What is wrong with the lines that are skipped, by their numbers."""

    def pairs(self) -> Iterator[QuestionReply]:
        """Yield the pairs of the file."""
        name = self.path.name.removesuffix(".gz")
        if name.endswith((".jsonl", ".json")):
            return self._by_line(self._parse_json)
        if name.endswith(".tsv") or self._has_tab():
            return self._by_line(_parse_columns)
        return self._dialogues()

    def warn(self) -> None:
        """Log one warning about all lines that are skipped."""
        if self.problems:
            shown = "; ".join(list(self.problems.values())[:SHOWN])
            more = f"; and {len(self.problems) - SHOWN} more" if len(self.problems) > SHOWN else ""
            _log.warning("%s: %d broken line(s) are skipped: %s%s", self.path, len(self.problems), shown, more)

    def _has_tab(self) -> bool:
        """Return whether the first line that is not blank has a tab."""
        first = next((line for _, line, _ in self._lines() if line.strip()), "")
        return "\t" in first

    def _lines(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the number of each line, the line, and whether it has bytes that are not UTF-8."""
        number, messages = 0, list[str]()
        for lines in read_lines(self.path, on_invalid=None if self.strict else messages.append):
            for line in lines:
                number += 1
                yield number, line, bool(messages) and "\ufffd" in line
            messages.clear()

    def _by_line(self, parse: Callable[[str, int], Sequence[QuestionReply]]) -> Iterator[QuestionReply]:
        """Yield the pairs of a file in which each line is complete by itself; blank lines are left out."""
        for number, line, damaged in self._lines():
            if not line.strip():
                continue
            try:
                if damaged:
                    raise _broken(number, "it is not UTF-8")
                yield from parse(line, number)
            except ValueError as error:
                self._skip(number, error)

    def _dialogues(self) -> Iterator[QuestionReply]:
        """Yield the pairs of a file with a turn on each line."""
        for dialogue in read_dialogues(self.path, self.key):
            for question, reply in pairwise(dialogue):
                try:
                    yield _checked(question.text, reply.text, reply.line)
                except ValueError as error:
                    self._skip(reply.line, error)

    def _parse_json(self, line: str, number: int) -> list[QuestionReply]:
        """Return the pair of a JSON object, or the pairs of turns that follow each other in its dialogue."""
        value: object = None
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
        if not isinstance(value, dict) or self.key in value:  # what is not an object gets the message of dialogues
            turns = parse_dialogue(f"line {number}", line, self.key, number)
            return [_checked(question.text, reply.text, number) for question, reply in pairwise(turns)]
        texts = [value.get(key) for key in ("question", "reply")]
        strings = [text for text in texts if isinstance(text, str)]
        if len(strings) < len(texts):
            raise _broken(number, f"it needs the strings 'question' and 'reply', or the array {self.key!r} of turns")
        return [_checked(strings[0], strings[1], number)]

    def _skip(self, line: int, error: ValueError) -> None:
        if self.strict:
            raise ValueError(f"{self.path}, {error}") from error
        self.problems.setdefault(line, str(error))


def _parse_columns(line: str, number: int) -> list[QuestionReply]:
    """Return the pair of a line with two columns."""
    question, *replies = line.split("\t")
    if len(replies) != 1:
        found = f"it has {len(replies) + 1} columns" if replies else "it has no tab"
        raise _broken(number, f"{found}; write question and reply, with one tab between them")
    return [_checked(question, replies[0], number)]


def _checked(question: str, reply: str, line: int) -> QuestionReply:
    """Return a pair with a space for all white space; raise a ValueError if something is wrong with it."""
    texts = []
    for name, text in (("question", question), ("reply", reply)):
        if control := _CONTROL.search(text):
            raise _broken(line, f"its {name} contains the control character U+{ord(control[0]):04X}")
        if surrogate := _SURROGATE.search(text):
            raise _broken(line, f"its {name} contains \\u{ord(surrogate[0]):04x}, a lone surrogate")
        texts.append(" ".join(text.split()))
        if not texts[-1]:
            raise _broken(line, f"its {name} is empty")
    return QuestionReply(texts[0], texts[1], line)


def _broken(line: int, reason: str) -> ValueError:
    return ValueError(f"line {line}: {reason}")
