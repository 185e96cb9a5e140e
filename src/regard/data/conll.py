"""Read files of tagged sentences with one word on each line: CoNLL-U, and columns as in CoNLL-2003.

A blank line ends a sentence. Words and tags of a sentence are joined by tabs, as `regard.data.fields.lists` splits
them, so a word may contain spaces.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from regard.data.fields.lists import join_list
from regard.files import read_lines

TaggedBlock = tuple[list[str], list[str], list[int]]
"""The words and the tags of sentences, and the line on which each sentence begins."""
TaggedWord = tuple[str, str]

_CONLLU_COLUMNS = {"upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
_NUMBER = re.compile(r"(\d+)(?:([-.])\d+)?")
_DOCUMENT = "-DOCSTART-"  # the line before each document of CoNLL-2003


def read_conllu(path: Path, column: str = "upos") -> Iterator[TaggedBlock]:
    """Read the CoNLL-U format of Universal Dependencies (https://universaldependencies.org/format.html).

    The syntactic words are read; ranges of multiword tokens (`1-2`), empty nodes (`1.1`) and comments are skipped.

    Args:
        path: The file.
        column: What the tags are: `upos`, `xpos`, `deprel`, or the name of a feature, which is `_` where a word lacks
            it.

    Raises:
        ValueError: A line is malformed. The message names the file and the line.
    """
    return _read_sentences(path, partial(_conllu_word, column))


def read_conll(path: Path, columns: Sequence[int] = (1, 2)) -> Iterator[TaggedBlock]:
    """Read lines of columns, separated by tabs or, in a line without tabs, by white space.

    Args:
        path: The file.
        columns: Columns of word and tag, counted from 1.

    Raises:
        ValueError: A line has too few columns. The message names the file and the line.
    """
    return _read_sentences(path, partial(_column_word, columns))


def _read_sentences(path: Path, parse: Callable[[str, int], TaggedWord | None]) -> Iterator[TaggedBlock]:
    """Yield the sentences of a file, block by block.

    Args:
        path: The file.
        parse: Returns word and tag of a line, or None if it has none; it gets the number of words before it, too.
    """
    sentence: list[TaggedWord] = []
    before = begin = 0
    for block in read_lines(path):
        words, tags, lines = [], [], []
        for number, line in enumerate(block, start=before + 1):
            if line and not line.isspace():
                try:
                    word = parse(line, len(sentence))
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}") from None
                if word is not None:
                    begin = begin if sentence else number
                    sentence.append(word)
            elif sentence:
                words.append(join_list([word for word, _ in sentence]))
                tags.append(join_list([tag for _, tag in sentence]))
                lines.append(begin)
                sentence = []
        before += len(block)
        if words:
            yield words, tags, lines
    if sentence:  # the last blank line is missing
        yield [join_list([word for word, _ in sentence])], [join_list([tag for _, tag in sentence])], [begin]


def _conllu_word(column: str, line: str, before: int) -> TaggedWord | None:
    """Return word and tag of a line of CoNLL-U."""
    if line.startswith("#"):
        return None
    cells = line.split("\t")
    if len(cells) != 10:
        raise ValueError(
            f"{len(cells)} tab-separated columns, but a line of CoNLL-U has 10; fix the line, or set "
            "kind = 'conll' for a file of other columns"
        )
    number = _NUMBER.fullmatch(cells[0])
    if number is None:
        raise ValueError(f"the first column is {cells[0]!r}, but must be the number of a word, such as 1, 1-2 or 1.1")
    if number[2]:
        return None
    if int(number[1]) != before + 1:
        raise ValueError(
            f"word {number[1]} follows word {before}; words are numbered 1, 2, 3, and a blank line ends a sentence"
        )
    if column in _CONLLU_COLUMNS:
        return _checked(cells[1], cells[_CONLLU_COLUMNS[column]])
    features = dict(feature.partition("=")[::2] for feature in cells[_CONLLU_COLUMNS["feats"]].split("|"))
    return _checked(cells[1], features.get(column, "_"))


def _column_word(columns: Sequence[int], line: str, before: int) -> TaggedWord | None:
    """Return word and tag of a line of columns."""
    cells = line.split("\t") if "\t" in line else line.split()
    if not before and cells[0] == _DOCUMENT:
        return None
    if len(cells) < max(columns):
        raise ValueError(
            f"{len(cells)} column{'s' * (len(cells) > 1)}, but columns = {list(columns)} needs {max(columns)}; fix the "
            "line, or name other columns"
        )
    word, tag = (cells[column - 1] for column in columns)
    return _checked(word, tag)


def _checked(word: str, tag: str) -> TaggedWord:
    """Return word and tag; raise a ValueError if one of them is blank."""
    if not word.strip() or not tag.strip():
        raise ValueError(f"the {'tag' if word.strip() else 'word'} is blank; write it, or `_` in its place")
    return word, tag
