"""A corpus named in a recipe to its sentence pairs, as a stream of chunks.

Two plain text files, tab-separated columns, a JSON object a line (each also gzipped), or the built-in phrasebook.
`regard.files` says what a line is. A tab-separated file has no quoting: a tab always parts two columns. A JSON
value may hold any text, a newline too, but no half of a surrogate pair, which is no text in any encoding.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regard.data.phrasebook import phrases
from regard.files import read_lines
from regard.recipe import Corpus, JsonlCorpus, PhrasebookCorpus, TextCorpus, TsvCorpus

CHUNK = 10_000
"""Pairs a chunk holds at most."""
REMEMBERED = 200_000  # pairs of a phrasebook that are worth the memory: drawing them takes longer than anything else
_REMEMBERED: dict[tuple[str, str, int, int], list[tuple[list[str], list[str]]]] = {}


class Pair(NamedTuple):
    """One source text, its target text, and the number of their line, counted from 1."""

    source: str
    target: str
    line: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive pairs: `source[i]` and `target[i]` stand on line `first + i`."""

    first: int
    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.source)


def read_pairs(corpus: Corpus, root: Path, seed: int = 0) -> Iterator[Pair]:
    """The pairs of a corpus, one by one."""
    for chunk in read_chunks(corpus, root, seed):
        for number, (source, target) in enumerate(zip(chunk.source, chunk.target, strict=True), start=chunk.first):
            yield Pair(source, target, number)


def read_chunks(corpus: Corpus, root: Path, seed: int = 0) -> Iterator[Chunk]:
    """The pairs of a corpus in chunks; `root` is where relative paths start, `seed` what the phrasebook draws by."""
    files = corpus_files(corpus, root)
    first = 1
    for source, target in _columns(corpus, files, seed):
        for start in range(0, len(source), CHUNK):
            yield Chunk(first + start, source[start : start + CHUNK], target[start : start + CHUNK])
        first += len(source)
    if first == 1:
        names = " and ".join(map(str, files))
        raise ValueError(f"The corpus is empty: {names} has no lines. Name a file with text in it.")


def corpus_files(corpus: Corpus, root: Path) -> tuple[Path, ...]:
    """The files a corpus is read from, each of them there; none for the phrasebook."""
    match corpus:
        case TextCorpus():
            return _find(corpus.source, root), _find(corpus.target, root)
        case TsvCorpus() | JsonlCorpus():
            return (_find(corpus.path, root),)
        case PhrasebookCorpus():
            return ()


def _columns(corpus: Corpus, files: Sequence[Path], seed: int) -> Iterator[tuple[list[str], list[str]]]:
    """Equally long lists of source and target, end to end the whole corpus."""
    match corpus:
        case TextCorpus():
            return _two_files(files[0], files[1])
        case TsvCorpus():
            return _tab_separated(files[0], corpus.columns)
        case JsonlCorpus():
            return _json_lines(files[0], corpus.keys)
        case PhrasebookCorpus():
            return _drawn(corpus, seed)


def _two_files(source: Path, target: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Line i of one file with line i of the other, as far as the blocks read of both reach."""
    lefts, rights = read_lines(source), read_lines(target)
    left: list[str] = []
    right: list[str] = []
    paired = 0
    while True:
        left = left or next(lefts, [])
        right = right or next(rights, [])
        if not left or not right:
            break
        size = min(len(left), len(right))
        yield left[:size], right[:size]
        paired += size
        left, right = left[size:], right[size:]
    if left or right:
        longer, shorter = (source, target) if left else (target, source)
        lines = paired + len(left or right) + sum(map(len, lefts if left else rights))
        raise ValueError(
            f"{longer} has {lines:,} lines but {shorter} has {paired:,}: line {paired + 1:,} has no partner. "
            "Line i of one must translate line i of the other; find the line that is missing or split in two."
        )


def _tab_separated(path: Path, columns: tuple[int, int]) -> Iterator[tuple[list[str], list[str]]]:
    """Two columns, counted from 1, of each row."""
    left, right = columns[0] - 1, columns[1] - 1
    needed = max(columns)
    before = 0
    for lines in read_lines(path):
        rows = [line.split("\t", needed) for line in lines]
        for number, row in enumerate(rows, start=before + 1):
            if len(row) < needed:
                raise ValueError(
                    f"{path}, line {number}: {len(row)} tab-separated column{'s' * (len(row) > 1)}, "
                    f"but columns = [{columns[0]}, {columns[1]}] needs {needed}. "
                    "Mend or delete the line, or name other columns."
                )
        before += len(rows)
        yield [row[left] for row in rows], [row[right] for row in rows]


def _json_lines(path: Path, keys: tuple[str, str]) -> Iterator[tuple[list[str], list[str]]]:
    """The texts under two keys of each line's object."""
    before = 0
    for lines in read_lines(path):
        pairs = [_json_pair(path, before + number, line, keys) for number, line in enumerate(lines, start=1)]
        before += len(lines)
        yield [source for source, _ in pairs], [target for _, target in pairs]


def _json_pair(path: Path, number: int, line: str, keys: tuple[str, str]) -> tuple[str, str]:
    """The two texts of one line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error}). Each line must be one JSON object.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}, line {number}: the JSON value is {_kind(value)}, but must be an object.")
    return _json_text(path, number, value, keys[0]), _json_text(path, number, value, keys[1])


def _json_text(path: Path, number: int, value: dict[str, object], key: str) -> str:
    """The text under one key."""
    if key not in value:
        found = ", ".join(map(repr, list(value)[:10])) or "none"
        raise ValueError(f"{path}, line {number}: no key {key!r}; its keys are: {found}. Set the corpus's keys.")
    text = value[key]
    if not isinstance(text, str):
        raise ValueError(f"{path}, line {number}: the value of {key!r} is {_kind(text)}, but must be a string.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path}, line {number}: the value of {key!r} holds \\u{ord(text[error.start]):04x}, half of a surrogate "
            "pair, which is no character. Write the whole pair, or U+FFFD in its place."
        ) from error
    return text


def _drawn(corpus: PhrasebookCorpus, seed: int) -> Iterator[tuple[list[str], list[str]]]:
    """Pairs drawn from the phrasebook; those drawn last are remembered, since a recipe's text is read twice."""
    key = (corpus.to, corpus.split, corpus.pairs, seed)
    if key in _REMEMBERED:
        yield from _REMEMBERED[key]
        return
    drawn = phrases(*key)
    parts = []
    while part := list(islice(drawn, CHUNK)):
        columns = [phrase.source for phrase in part], [phrase.target for phrase in part]
        if corpus.pairs <= REMEMBERED:
            parts.append(columns)
        yield columns
    if corpus.pairs <= REMEMBERED:
        _REMEMBERED.clear()
        _REMEMBERED[key] = parts


def _kind(value: object) -> str:
    """What JSON calls a value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _find(name: str, root: Path) -> Path:
    """The file of that name, or an error that says what is there instead."""
    path = root.expanduser() / Path(name).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path} is a folder, but a corpus is read from a file. Name a file in it.")
    if path.exists():
        raise ValueError(f"{path} is not a regular file. It is read more than once, so save it to a file first.")
    where = "" if Path(name).is_absolute() else f" (data.root is {str(root)!r}, that is {root.expanduser().resolve()})"
    raise ValueError(f"{path} does not exist{where}. {_instead(path)}")


def _instead(path: Path) -> str:
    """What is to be found near a path that is not there."""
    folder = path.parent
    if not folder.is_dir():
        while not folder.exists():
            folder = folder.parent
        return f"The way to it ends at {folder}."
    names = sorted(each.name for each in islice(folder.iterdir(), 10_000) if each.is_file())
    near = difflib.get_close_matches(path.name, names, n=3)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Its folder holds: {', '.join(names[:5])}." if names else "Its folder holds no files."
