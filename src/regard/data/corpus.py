"""Read a corpus named in a recipe as a stream of records, in chunks.

A corpus is a set of plain text files (one for each field), a file of tab-separated columns, a file with a JSON object
on each line, a file of tagged sentences or of dialogues (each also gzipped), a list or an archive of pictures, or
generated: by the built-in phrasebook, documents, dialogues, scenes or digits.
`regard.files` defines what a line is. A tab-separated file has no quoting: a tab always separates two columns. A JSON
value may hold any text, also line breaks, but no lone surrogate, which no encoding can represent.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.data.conll import read_conll, read_conllu
from regard.data.dialogues import examples, given_examples, read_examples
from regard.data.digits import digit_labels
from regard.data.documents import documents
from regard.data.fields.lists import SEPARATOR, join_list
from regard.data.images import CHUNK as PICTURES
from regard.data.images import read_images
from regard.data.phrasebook import phrases, tagged_sentences
from regard.data.scenes import descriptions
from regard.data.series import corpus_series
from regard.data.smalltalk import SPEAKERS, dialogues
from regard.files import read_lines, read_text
from regard.recipe import (
    ConllCorpus,
    ConlluCorpus,
    Corpus,
    Data,
    DialogueCorpus,
    DigitsCorpus,
    DocumentsCorpus,
    ImagesCorpus,
    JsonlCorpus,
    PhrasebookCorpus,
    ScenesCorpus,
    SeasonalCorpus,
    SeriesCorpus,
    SmallTalkCorpus,
    TextCorpus,
    TsvCorpus,
)

CHUNK = 10_000
"""Maximum number of records in a chunk."""
CACHED_PAIRS = 200_000  # phrasebook corpora up to this size are kept in memory: generating them is the slowest step
_CACHED: dict[tuple[str, str, int, int], list[tuple[list[str], list[str]]]] = {}

Columns = tuple[list[str], ...]
"""Equally long lists of raw values, one for each field."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of a corpus, by column: `columns[name][i]` is a value of record number `first + i`."""

    first: int
    """Number of the first record, counted from 1."""
    columns: dict[str, list[str]]
    """The raw values of each field."""
    lines: Sequence[int] | None = None
    """The line on which each record begins, if a record may have several lines."""

    def __len__(self) -> int:
        """Return the number of records."""
        return len(next(iter(self.columns.values())))

    def line(self, index: int) -> int:
        """Return the number of the line on which a record of this chunk begins, counted from 1."""
        return self.first + index if self.lines is None else self.lines[index]


@dataclass(frozen=True)
class Reader:
    """Reads the records of corpora, with the fields of a task."""

    fields: Sequence[str]
    """Names of the fields, in the order of columns."""
    root: Path
    """Folder that relative paths start from."""
    seed: int = 0
    """Random seed of generated corpora."""
    documents: str = "line"
    """What is one record of a plain text file: a `line`, a `paragraph` or the whole `file`."""
    turns: int = 6
    """Maximum number of turns in the history of a reply."""
    reverse: bool = False
    """Whether each turn of a dialogue is predicted from the turn after it."""

    @classmethod
    def of(cls, data: Data, fields: Sequence[str], seed: int = 0) -> "Reader":
        """Return a reader for the corpora of a recipe's `[data]` section."""
        documents = data.documents if len(fields) == 1 else "line"
        return cls(tuple(fields), Path(data.root), seed, documents, data.turns, data.reverse)

    def records(self, corpus: Corpus) -> Iterator[tuple[str, ...]]:
        """Yield the records of a corpus one by one, their values in the order of the fields."""
        for chunk in self.chunks(corpus):
            yield from zip(*chunk.columns.values(), strict=True)

    def chunks(self, corpus: Corpus) -> Iterator[Chunk]:
        """Yield the records of a corpus in chunks of at most `CHUNK` records.

        Raises:
            ValueError: If a file is missing, empty or malformed. The message names the file and the line.
        """
        paths = self.paths(corpus)
        first = 1
        for columns, lines in self._blocks(corpus, paths):
            size = len(columns[0])
            for start in range(0, size, CHUNK):
                part = [column[start : start + CHUNK] for column in columns]
                numbers = None if lines is None else lines[start : start + CHUNK]
                yield Chunk(first + start, dict(zip(self.fields, part, strict=True)), numbers)
            first += size
        if first == 1:
            names = " and ".join(map(str, paths))
            raise ValueError(f"The corpus is empty: {names} has no lines. Name a file that contains text.")

    def paths(self, corpus: Corpus) -> tuple[Path, ...]:
        """Return the existing files of a corpus; none for a generated one."""
        try:
            corpus.check_fields(self.fields)
        except ValueError as error:
            raise ValueError(f"The corpus {str(error).lstrip(' .')}.") from None
        match corpus:
            case TextCorpus():
                return tuple(_find(corpus.files[name], self.root) for name in self.fields)
            case TsvCorpus() | JsonlCorpus() | ConlluCorpus() | ConllCorpus() | DialogueCorpus() | SeriesCorpus():
                return (_find(corpus.path, self.root),)
            case ImagesCorpus():
                return tuple(_find(path, self.root) for path in corpus.paths)
            case PhrasebookCorpus() | DocumentsCorpus() | SmallTalkCorpus() | ScenesCorpus():
                return ()
            case DigitsCorpus() | SeasonalCorpus():
                return ()

    def _blocks(self, corpus: Corpus, paths: Sequence[Path]) -> Iterator[tuple[Columns, list[int] | None]]:
        """Yield equally long lists of values that together are the whole corpus, and the line of each record.

        The lines are None if each record is a line.
        """
        match corpus:
            case ConlluCorpus():
                return (((words, tags), lines) for words, tags, lines in read_conllu(paths[0], corpus.column))
            case ConllCorpus():
                return (((words, tags), lines) for words, tags, lines in read_conll(paths[0], corpus.columns))
            case DialogueCorpus():
                parts = read_examples(paths[0], corpus, self.turns, self.reverse)
                return (((histories, replies), lines) for histories, replies, lines in parts)
            case TextCorpus() | TsvCorpus() | JsonlCorpus() if "history" in self.fields:
                pairs = self._columns(corpus, paths)
                return (
                    (given_examples(histories, replies, self.turns, self.reverse), None) for histories, replies in pairs
                )
            case ImagesCorpus():
                records = read_images(corpus, paths, self.root, "captions" in self.fields)
                return (((images, texts), lines) for images, texts, lines in records)
            case SeriesCorpus() | SeasonalCorpus():
                rows = corpus_series(corpus, self.root, self.seed).records()
                return ((columns, None) for columns in _in_columns(({"series": row} for row in rows), self.fields))
            case _:
                return ((columns, None) for columns in self._columns(corpus, paths))

    def _columns(
        self,
        corpus: TextCorpus
        | TsvCorpus
        | JsonlCorpus
        | PhrasebookCorpus
        | DocumentsCorpus
        | SmallTalkCorpus
        | ScenesCorpus
        | DigitsCorpus,
        paths: Sequence[Path],
    ) -> Iterator[Columns]:
        """Yield the values of a corpus in which each record is a line, a document or generated."""
        match corpus:
            case TextCorpus():
                return _parallel_files(paths) if self.documents == "line" else _documents(paths[0], self.documents)
            case TsvCorpus():
                return _tab_separated(paths[0], corpus.columns or tuple(range(1, len(self.fields) + 1)))
            case JsonlCorpus():
                return _json_lines(paths[0], corpus.keys or tuple(self.fields))
            case DocumentsCorpus():
                generated = documents(corpus.label, corpus.split, corpus.count, self.seed)
                return _in_columns(({"text": item.text, "label": item.label} for item in generated), self.fields)
            case PhrasebookCorpus() if "tags" in self.fields:
                tagged = tagged_sentences(corpus.to, corpus.split, corpus.pairs, self.seed)
                rows = ({"words": " ".join(item.words), "tags": " ".join(item.tags)} for item in tagged)
                return _in_columns(rows, self.fields)
            case SmallTalkCorpus():
                return _in_columns(self._small_talk(corpus), self.fields)
            case ScenesCorpus():
                described = descriptions(corpus.split, corpus.count, corpus.language, self.seed)
                rows = ({"image": name, "captions": caption} for name, caption in described)
                return _in_columns(rows, self.fields, PICTURES)
            case DigitsCorpus():
                labels = digit_labels(corpus.split, corpus.count, self.seed)
                return _in_columns(({"image": name, "label": label} for name, label in labels), self.fields, PICTURES)
            case PhrasebookCorpus():
                # A language model reads the English side.
                side = {"source": 0, "text": 0, "target": 1}
                order = [side.get(name, index) for index, name in enumerate(self.fields)]
                return (tuple(pair[index] for index in order) for pair in _phrasebook(corpus, self.seed))

    def _small_talk(self, corpus: SmallTalkCorpus) -> Iterator[dict[str, str]]:
        """Yield the examples of generated dialogues in which a speaker of the corpus replies."""
        for dialogue in dialogues(corpus.split, corpus.count, self.seed):
            for number, (history, reply) in enumerate(examples(dialogue.turns, self.turns, self.reverse), start=1):
                if corpus.speaker in ("", SPEAKERS[number % 2]):
                    yield {"history": history, "reply": reply}


def _parallel_files(paths: Sequence[Path]) -> Iterator[Columns]:
    """Yield line i of every file together, as far as the blocks read from all files reach."""
    readers = [read_lines(path) for path in paths]
    pending: list[list[str]] = [[] for _ in paths]
    aligned = 0
    while True:
        pending = [lines or next(reader, []) for lines, reader in zip(pending, readers, strict=True)]
        size = min(map(len, pending))
        if not size:
            break
        yield tuple(lines[:size] for lines in pending)
        aligned += size
        pending = [lines[size:] for lines in pending]
    if any(pending):
        longer = max(range(len(paths)), key=lambda index: len(pending[index]))
        shorter = min(range(len(paths)), key=lambda index: len(pending[index]))
        lines = aligned + len(pending[longer]) + sum(map(len, readers[longer]))
        raise ValueError(
            f"{paths[longer]} has {lines:,} lines but {paths[shorter]} has {aligned:,}: line {aligned + 1:,} has no "
            "counterpart. Line i of all files must belong together; find the line that is missing or split in two."
        )


def _documents(path: Path, kind: str) -> Iterator[Columns]:
    """Yield the paragraphs of a text file, separated by blank lines, or the whole file as one document."""
    if kind == "file":
        text = read_text(path)
        if text:
            yield ([text],)
        return
    paragraph: list[str] = []
    for lines in read_lines(path):
        documents = []
        for line in lines:
            if line and not line.isspace():
                paragraph.append(line)
            elif paragraph:
                documents.append("\n".join(paragraph))
                paragraph = []
        if documents:
            yield (documents,)
    if paragraph:
        yield (["\n".join(paragraph)],)


def _tab_separated(path: Path, columns: Sequence[int]) -> Iterator[Columns]:
    """Yield the given columns, counted from 1, of each row."""
    last_column = max(columns)
    before = 0
    for lines in read_lines(path):
        rows = [line.split("\t", last_column) for line in lines]
        for number, row in enumerate(rows, start=before + 1):
            if len(row) < last_column:
                raise ValueError(
                    f"{path}, line {number}: {len(row)} tab-separated column{'s' * (len(row) > 1)}, "
                    f"but columns = {list(columns)} needs {last_column}. Fix or delete the line, or name other columns."
                )
        before += len(rows)
        yield tuple([row[column - 1] for row in rows] for column in columns)


def _json_lines(path: Path, keys: Sequence[str]) -> Iterator[Columns]:
    """Yield the texts under the given keys of each line's object."""
    before = 0
    for lines in read_lines(path):
        records = [_json_record(path, before + number, line, keys) for number, line in enumerate(lines, start=1)]
        before += len(lines)
        yield tuple([record[index] for record in records] for index in range(len(keys)))


def _json_record(path: Path, number: int, line: str, keys: Sequence[str]) -> list[str]:
    """Return the texts of one line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error}). Each line must be one JSON object.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}, line {number}: the JSON value is {_json_type(value)}, but must be an object.")
    return [_json_text(path, number, value, key) for key in keys]


def _json_text(path: Path, number: int, value: dict[str, object], key: str) -> str:
    """Return the text under one key."""
    if key not in value:
        keys = ", ".join(map(repr, list(value)[:10])) or "none"
        raise ValueError(f"{path}, line {number}: no key {key!r}; its keys are: {keys}. Set the corpus's keys.")
    text = value[key]
    if isinstance(text, list) and all(isinstance(entry, str) and SEPARATOR not in entry for entry in text):
        text = join_list(text)
    if not isinstance(text, str):
        raise ValueError(
            f"{path}, line {number}: the value of {key!r} is {_json_type(text)}, but must be a string or, for words, "
            "tags, labels and turns, an array of strings without tabs."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path}, line {number}: the value of {key!r} contains \\u{ord(text[error.start]):04x}, a lone surrogate, "
            "which is not a character. Write the whole surrogate pair, or U+FFFD in its place."
        ) from error
    return text


def _phrasebook(corpus: PhrasebookCorpus, seed: int) -> Iterator[tuple[list[str], list[str]]]:
    """Generate sentence pairs; the last corpus is cached, because a recipe's data are read twice."""
    key = (corpus.to, corpus.split, corpus.pairs, seed)
    if key in _CACHED:
        yield from _CACHED[key]
        return
    generated = phrases(*key)
    parts = []
    while part := list(islice(generated, CHUNK)):
        columns = [phrase.source for phrase in part], [phrase.target for phrase in part]
        if corpus.pairs <= CACHED_PAIRS:
            parts.append(columns)
        yield columns
    if corpus.pairs <= CACHED_PAIRS:
        _CACHED.clear()
        _CACHED[key] = parts


def _in_columns(records: Iterator[dict[str, str]], fields: Sequence[str], chunk: int = CHUNK) -> Iterator[Columns]:
    """Yield generated records in columns, `chunk` records at a time."""
    while part := list(islice(records, chunk)):
        yield tuple([record[name] for record in part] for name in fields)


def _json_type(value: object) -> str:
    """Return what JSON calls the type of a value."""
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
    """Return the path of a file, or raise an error that says what is there instead."""
    path = root.expanduser() / Path(name).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path} is a folder, but a corpus is read from a file. Name a file in it.")
    if path.exists():
        raise ValueError(f"{path} is not a regular file. It is read more than once, so save it to a file first.")
    where = "" if Path(name).is_absolute() else f" (data.root is {str(root)!r}, that is {root.expanduser().resolve()})"
    raise ValueError(f"{path} does not exist{where}. {_nearby(path)}")


def _nearby(path: Path) -> str:
    """Describe what exists near a missing path."""
    folder = path.parent
    if not folder.is_dir():
        while not folder.exists():
            folder = folder.parent
        return f"The last existing folder on its path is {folder}."
    names = sorted(entry.name for entry in islice(folder.iterdir(), 10_000) if entry.is_file())
    similar = difflib.get_close_matches(path.name, names, n=3)
    if similar:
        return f"Did you mean {' or '.join(similar)}?"
    return f"Its folder contains: {', '.join(names[:5])}." if names else "Its folder contains no files."
