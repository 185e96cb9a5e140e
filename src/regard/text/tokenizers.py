"""The tokenizers of a model, one for each text field, and the folder they are saved in."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from regard.files import read_inside, write_atomically
from regard.run_files import TOKENIZER
from regard.text.learn import LONGEST, SAMPLE, reservoir
from regard.text.prepare import split_lines
from regard.text.settings import TokenizerSettings
from regard.text.tokenizer import Tokenizer

PAIR = ("source", "target")
"""The text fields of a translation task, in order."""

_VERSION = 1
_INDEX = "tokenizer.json"
_JOINT = "joint"
_LONGEST_INDEX, _LONGEST_MODEL = 1 << 24, 1 << 28  # bytes


class Tokenizers(Mapping[str, Tokenizer]):
    """An immutable mapping from field name to `Tokenizer`.

    With a joint vocabulary all fields have the same `Tokenizer` object.

    Example:
        >>> tokenizers = Tokenizers.learn([("I can go", "Ich kann gehen")], size=300)
        >>> tokenizers["source"].encode("I can")
    """

    def __init__(self, tokenizers: Mapping[str, Tokenizer]) -> None:
        """Copy the mapping; the order of the fields is kept."""
        if not tokenizers:
            raise ValueError("a model needs at least one tokenizer, and none was given: name a field and its tokenizer")
        if _JOINT in tokenizers:
            raise ValueError(f"a field cannot be called {_JOINT!r}, the name of a shared vocabulary: choose another")
        self._tokenizers = dict(tokenizers)

    def __getitem__(self, field: str) -> Tokenizer:
        """Return the tokenizer of a field."""
        return self._tokenizers[field]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the fields."""
        return iter(self._tokenizers)

    def __len__(self) -> int:
        """Return the number of fields."""
        return len(self._tokenizers)

    def __hash__(self) -> int:
        """Return a hash that agrees with equality."""
        return hash(tuple(self._tokenizers.items()))

    def __repr__(self) -> str:
        """Return the fields with their tokenizers."""
        return f"Tokenizers({self._tokenizers!r})"

    @property
    def joint(self) -> bool:
        """Whether all fields share one vocabulary; true for a single field."""
        return len(set(map(id, self.values()))) == 1

    @property
    def fingerprint(self) -> str:
        """A hash of all models: equal fingerprints mean equal ids in every field."""
        return "-".join(tokenizer.fingerprint for tokenizer in self.values())

    @classmethod
    def learn(
        cls,
        records: Iterable[Sequence[str]],
        fields: Sequence[str] = PAIR,
        *,
        kind: str = "bpe",
        size: int = 8000,
        joint: bool = True,
        normalise: str = "nfkc",
        lowercase: bool = False,
        bytes: bool = True,  # noqa: A002
        symbols: tuple[str, ...] = (),
        multiline: bool = False,
        seed: int = 0,
    ) -> "Tokenizers":
        """Learn the vocabularies from a stream of records, which is read once.

        Args:
            records: For each record, the texts of its fields in the order of `fields`.
            fields: The names of the fields.
            kind: `bpe`, `unigram`, `word` or `char`.
            size: The size of each vocabulary, reserved ids included.
            joint: Whether all fields share one vocabulary.
            normalise: `nfkc` or `identity`.
            lowercase: Whether to lower-case the text first.
            bytes: Whether to spell characters that have no piece in UTF-8 bytes.
            symbols: Pieces that are never split, such as `<2de>`.
            multiline: Whether the texts are documents with line breaks, which are then tokens. All lines are learned
                from; without it, only the first 2,000 characters of a text are.
            seed: The seed of the sample of a large corpus.
        """
        settings = TokenizerSettings(kind, normalise, lowercase, bytes, symbols, multiline)
        rows = _lines(records) if multiline else (tuple(text[:LONGEST] for text in record) for record in records)
        sample = reservoir(rows, SAMPLE // len(fields), seed)
        if joint:
            return cls(dict.fromkeys(fields, Tokenizer.learn(chain.from_iterable(sample), size, settings, seed)))
        columns = ((record[index] for record in sample) for index in range(len(fields)))
        learned = (Tokenizer.learn(column, size, settings, seed) for column in columns)
        return cls(dict(zip(fields, learned, strict=True)))

    def extended(self, symbols: Iterable[str], fields: Iterable[str] = ("source",)) -> "Tokenizers":
        """Return tokenizers with more symbols in the vocabularies of some fields.

        A joint vocabulary stays joint: the symbols are added for all its fields.
        """
        symbols, extended = tuple(symbols), dict(self._tokenizers)
        for field in fields:
            tokenizer = self[field].extended(symbols)
            shared = [name for name in self if self.joint or name == field]
            extended.update(dict.fromkeys(shared, tokenizer))
        return Tokenizers(extended)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write one `.model` file for each vocabulary, and `tokenizer.json`, which names them.

        The file of a vocabulary that several fields share is `joint.model`; all others have the name of their field.
        """
        shared = self.joint and len(self) > 1
        named = {_JOINT: next(iter(self.values()))} if shared else self._tokenizers
        for name, tokenizer in named.items():
            tokenizer.save(Path(folder) / f"{name}.model")
        index = {"version": _VERSION, **{name: _entry(name, tokenizer) for name, tokenizer in named.items()}}
        text = json.dumps(index, ensure_ascii=False, indent=2) + "\n"
        write_atomically(Path(folder) / _INDEX, text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str], fields: Sequence[str] = PAIR) -> "Tokenizers":
        """Read the tokenizers of some fields.

        Args:
            path: A folder written by `save`, a run folder that holds one as `tokenizer/`, or a SentencePiece `.model`
                file, which then serves all fields.
            fields: The names of the fields.
        """
        path = Path(path)
        if path.is_file():
            return cls(dict.fromkeys(fields, Tokenizer.load(path)))
        for name in (_INDEX, f"{TOKENIZER}/{_INDEX}"):
            if (path / name).exists():
                index = _read_index(path, name, fields)
                if _JOINT in index:
                    return cls(dict.fromkeys(fields, _read_model(path, name, index[_JOINT])))
                return cls({field: _read_model(path, name, index[field]) for field in fields})
        problem = "it does not exist" if not path.exists() else f"it has no {_INDEX} and no {TOKENIZER}/{_INDEX}"
        raise ValueError(f"no tokenizer at {path}: {problem}; name a run, a tokenizer folder or a .model file")


def _lines(documents: Iterable[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the first lines of all fields of a record, then the second lines, and so on; a missing line is empty."""
    for record in documents:
        yield from zip_longest(*(split_lines(text, LONGEST) for text in record), fillvalue="")


def _entry(name: str, tokenizer: Tokenizer) -> dict[str, Any]:
    settings = asdict(tokenizer.settings)
    if not tokenizer.settings.multiline:
        del settings["multiline"]  # Version 1 of the index had no such key.
    return {
        "model": f"{name}.model",
        "size": len(tokenizer),
        "fingerprint": tokenizer.fingerprint,
        **settings,
    }


def _read_index(root: Path, name: str, fields: Sequence[str]) -> dict[str, Any]:
    """Read the index at a path inside a folder, and check that it has what `save` writes."""
    file = root / name
    try:
        index = json.loads(read_inside(root, name, _LONGEST_INDEX))
        version = index.get("version")
        entries = {name: entry for name, entry in index.items() if name != "version"}
        complete = bool(entries) and all(
            isinstance(entry[key], str) for entry in entries.values() for key in ("model", "fingerprint")
        )
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error!r}); restore it from a copy, or learn it again") from error
    if version != _VERSION:
        raise ValueError(
            f"{file} has version {version!r}, and this version of regard reads version {_VERSION}: "
            "use the version that wrote it, or learn it again"
        )
    if not complete:
        raise ValueError(f"{file} is damaged: it names no model; restore it from a copy, or learn it again")
    missing = [field for field in fields if field not in entries and _JOINT not in entries]
    if missing:
        raise ValueError(
            f"{file} has tokenizers for {', '.join(entries)}, and none for {', '.join(missing)}: "
            "name the run of a model with these fields, or learn it again"
        )
    return entries


def _read_model(root: Path, index: str, entry: dict[str, Any]) -> Tokenizer:
    """Read the model that an entry of the index names; it must be a file beside the index."""
    name = entry["model"]
    file = (root / index).with_name(name) if Path(name).name == name else None
    if file is None:
        raise ValueError(
            f"{root / index} names the model {name!r}, which is no file name; a model is in the folder of its index"
        )
    try:
        data = read_inside(root, str(file.relative_to(root)), _LONGEST_MODEL)
    except FileNotFoundError:
        raise ValueError(f"{file} is missing; restore it from a copy, or learn it again") from None
    tokenizer = Tokenizer.parse(data, file)
    if tokenizer.fingerprint != entry["fingerprint"]:
        raise ValueError(
            f"{file} is not the model that {root / index} was written with (damaged or replaced): "
            "restore both from a copy, or learn them again"
        )
    return tokenizer
