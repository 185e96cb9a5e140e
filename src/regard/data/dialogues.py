"""Read dialogues, and make records of them: the turns before a reply, and the reply.

A dialogue of n turns has n - 1 replies, each with a history of a limited number of turns. A file has a JSON object on
each line, with an array of turns, or plain text: a turn on each line, and a blank line after each dialogue. Empty turns
are left out.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.data.fields.lists import SEPARATOR, join_list
from regard.files import read_lines
from regard.recipe import DialogueCorpus

CHUNK = 10_000
"""Records that are read at once."""

Examples = tuple[list[str], list[str], list[int]]
"""Histories, replies, and the line on which each reply stands."""


class Turn(NamedTuple):
    """A turn of a dialogue."""

    text: str
    speaker: str | None
    """Who speaks; None if the file does not say."""
    line: int
    """The line of the file, counted from 1."""


def read_dialogues(path: Path, key: str = "turns") -> Iterator[list[Turn]]:
    """Yield the dialogues of a file, without empty turns; successive turns of one speaker are joined.

    Raises:
        ValueError: If the file is malformed. The message names the line.
    """
    is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".json"))
    for turns in _read_json(path, key) if is_json else _read_text(path):
        yield _join_speakers(turns)


def parse_dialogue(where: str, line: str, key: str, number: int) -> list[Turn]:
    """Return the dialogue of one line of a JSONL file, without empty turns; see `read_dialogues`.

    Args:
        where: The file and line, for messages.
        line: A JSON object.
        key: The key of the array of turns.
        number: The number of the line.
    """
    return _join_speakers(_json_turns(where, line, key, number))


def read_examples(path: Path, corpus: DialogueCorpus, turns: int, reverse: bool) -> Iterator[Examples]:
    """Yield the histories and replies of a file of dialogues, many at once.

    Args:
        path: The file.
        corpus: The settings of the corpus.
        turns: Maximum number of turns of a history.
        reverse: Predict each turn from the turn after it.
    """
    histories: list[str] = []
    replies: list[str] = []
    lines: list[int] = []
    for dialogue in read_dialogues(path, corpus.key):
        texts = [turn.text for turn in dialogue]
        for number, (history, reply) in enumerate(examples(texts, turns, reverse), start=1):
            turn = dialogue[number - 1 if reverse else number]
            if corpus.speaker and turn.speaker is not None and turn.speaker != corpus.speaker:
                continue
            histories.append(history)
            replies.append(reply)
            lines.append(turn.line)
        if len(replies) >= CHUNK:
            yield histories, replies, lines
            histories, replies, lines = [], [], []
    if replies:
        yield histories, replies, lines


def examples(dialogue: Sequence[str], turns: int, reverse: bool = False) -> Iterator[tuple[str, str]]:
    """Yield for each turn but the first its history, as one string, and itself.

    Args:
        dialogue: The turns.
        turns: Maximum number of turns of a history.
        reverse: Yield the turn after each turn but the last instead of its history.
    """
    for number in range(1, len(dialogue)):
        if reverse:
            yield join_list([dialogue[number]]), dialogue[number - 1]
        else:
            yield join_list(dialogue[max(0, number - turns) : number]), dialogue[number]


def _read_json(path: Path, key: str) -> Iterator[list[Turn]]:
    """Yield the turns of the object on each line."""
    number = 0
    for lines in read_lines(path):
        for line in lines:
            number += 1
            if line.strip():
                yield _json_turns(f"{path}, line {number}", line, key, number)


def _json_turns(where: str, line: str, key: str, number: int) -> list[Turn]:
    """Return the turns of the object on one line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}). Each line must be one JSON object.") from error
    if not isinstance(value, dict) or key not in value:
        found = (
            f"its keys are {', '.join(map(repr, list(value)[:10]))}" if isinstance(value, dict) else "it has no keys"
        )
        raise ValueError(f"{where}: no key {key!r}; {found}. Set the corpus's key to that of the array of turns.")
    turns = value[key]
    if not isinstance(turns, list):
        raise ValueError(f"{where}: the value of {key!r} must be an array of turns.")
    return [_json_turn(where, turn, place, number) for place, turn in enumerate(turns, start=1)]


def _json_turn(where: str, turn: object, place: int, number: int) -> Turn:
    """Return one turn: a string, or an object with a text and a speaker, which chat services call content and role."""
    text, speaker = turn, None
    if isinstance(turn, dict):
        text = turn.get("text", turn.get("content"))
        speaker = turn.get("speaker", turn.get("role"))
    if not isinstance(text, str) or not isinstance(speaker, str | None):
        raise ValueError(
            f"{where}: turn {place} must be a string, or an object with the strings 'text' and, if it is known, "
            "'speaker'."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: turn {place} contains \\u{ord(text[error.start]):04x}, a lone surrogate, which is no character."
        ) from error
    return Turn(text, speaker, number)


def _read_text(path: Path) -> Iterator[list[Turn]]:
    """Yield the turns between blank lines."""
    number = 0
    turns: list[Turn] = []
    for lines in read_lines(path):
        for line in lines:
            number += 1
            if line and not line.isspace():
                turns.append(Turn(line, None, number))
            elif turns:
                yield turns
                turns = []
    if turns:
        yield turns


def _join_speakers(turns: Iterable[Turn]) -> list[Turn]:
    """Leave out empty turns, and join successive turns of one speaker, so that the speakers alternate."""
    joined: list[Turn] = []
    for turn in turns:
        # Tabs separate the turns of a history, and a turn is shown on one line.
        text = " ".join(turn.text.replace(SEPARATOR, " ").split())
        if not text:
            continue
        if joined and turn.speaker is not None and turn.speaker == joined[-1].speaker:
            joined[-1] = turn._replace(text=f"{joined[-1].text} {text}", line=joined[-1].line)
        else:
            joined.append(turn._replace(text=text))
    return joined
