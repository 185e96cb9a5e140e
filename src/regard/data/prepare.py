"""Prepare the data of a recipe: learn its vocabularies and build a store for each corpus.

Both are cached under a hash of what they are made of, so a second run of the same recipe finds them. The folder of a
run gets its own copy of the vocabularies, because a model cannot be used without them.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard.data.batch import Collator
from regard.data.blocks import Blocks
from regard.data.build import build_store, identity
from regard.data.cache import atomic_folder, build_lock, cache_folder
from regard.data.corpus import Reader
from regard.data.fields import (
    CUT_KINDS,
    TEXT_KINDS,
    Field,
    Fields,
    ImageField,
    SeriesField,
    TextField,
    learn_fields,
    load_fields,
    text_lengths,
)
from regard.data.rows import Lengths
from regard.data.store import Store
from regard.data.windows import corpus_windows, learn_series
from regard.files import write_atomically
from regard.recipe import (
    SERIES_CORPORA,
    Corpus,
    DialogueCorpus,
    FieldKind,
    Filter,
    ImageSettings,
    Recipe,
    SmallTalkCorpus,
    dump,
)
from regard.run_files import RECIPE

_log = logging.getLogger("regard")

_LIMITED = TEXT_KINDS - CUT_KINDS  # the kinds of fields that the filter `long` applies to

ProgressCallback = Callable[[str, int], None]
"""Called with the name of a stage and the number of records done."""


class DataTask(Collator, Protocol):
    """The part of a task that is needed to prepare its data."""

    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        """The fields of a record and their kinds, in order."""

    @property
    def multiline(self) -> bool:
        """Whether texts are documents, whose line breaks are tokens."""

    @property
    def filters(self) -> Collection[Filter]:
        """The filters that apply to training records."""

    @property
    def cut_at(self) -> int | None:
        """Maximum number of tokens of a text, to which longer ones are cut at their end; None cuts none."""

    @property
    def tagged(self) -> str | None:
        """The field that the tag of a corpus is put before."""


@dataclass(frozen=True)
class EvaluationData:
    """A validation or test corpus, with its text."""

    corpus: Corpus
    store: Store | Blocks
    limit: int | None
    """Maximum number of tokens of a text, if it has one."""
    too_long: tuple[int, ...]
    """Numbers of the records that were left out because a text has more tokens."""

    def notices(self, name: str) -> list[str]:
        """Return a message about the records that were left out, if there are any."""
        if not self.too_long:
            return []
        total = len(self.too_long) + len(self.store)
        lines = ", ".join(map(str, self.too_long[:5])) + ", …" * (len(self.too_long) > 5)
        unit = "record" if isinstance(self.corpus, DialogueCorpus | SmallTalkCorpus) else "line"
        return [
            f"{name}: {len(self.too_long)} of {total} records have more than data.longest = {self.limit} tokens and "
            f"are left out ({unit} {lines})"
        ]


@dataclass(frozen=True)
class Prepared:
    """The data of a recipe, ready for training."""

    run: Path
    """The folder of the run, with `recipe.toml` and `tokenizer/` in it."""
    fields: Fields
    corpora: tuple[Corpus, ...]
    """The training corpora, in the order of the recipe."""
    stores: tuple[Store | Blocks, ...]
    """The store of each."""
    valid: "EvaluationData | None" = None
    """The validation data."""
    test: "EvaluationData | None" = None
    """The test data."""
    cut_at: int | None = None
    """Maximum number of tokens of a text, to which longer ones are cut at their end; None cuts none."""

    def notices(self) -> list[str]:
        """Return messages about texts that are cut, and about validation records that are left out."""
        stores = [(f"data.train.{number}", store) for number, store in enumerate(self.stores)]
        stores += [(name, data.store) for name, data in self._evaluations() if data is not None]
        cut = [message for name, store in stores for message in self._cut_notices(name, store)]
        return cut if self.valid is None else cut + self.valid.notices("data.valid")

    def _evaluations(self) -> tuple[tuple[str, "EvaluationData | None"], ...]:
        return ("data.valid", self.valid), ("data.test", self.test)

    def _cut_notices(self, name: str, store: Store | Blocks) -> list[str]:
        """Return a message about the texts of a store that are cut, if there are any."""
        if self.cut_at is None:
            return []
        texts = [_stored_lengths(store, name, field) for name, field in self.fields.items() if field.kind in TEXT_KINDS]
        if not texts:
            return []
        count = int((np.maximum.reduce(texts) > self.cut_at).sum())
        if not count:
            return []
        return [
            f"{name}: {count:,} of {len(store):,} texts have more than data.longest = {self.cut_at} tokens; their ends "
            "are cut off"
        ]

    def summary(self) -> dict[str, Any]:
        """Return a description as JSON."""
        return {
            "run": str(self.run),
            "vocabulary": {
                **{name: {"kind": _kind(field), "size": len(field)} for name, field in self.fields.items()},
                "joint": self._is_joint,
            },
            "corpora": [
                {
                    "corpus": corpus.model_dump(),
                    "examples": len(store),
                    "tokens": {name: store.tokens(name) for name in self.fields},
                    "longest": dict(store.longest),
                    "filters": store.report.model_dump(),
                    "store": str(store.folder),
                }
                for corpus, store in zip(self.corpora, self.stores, strict=True)
            ],
            **{
                name: {
                    "corpus": data.corpus.model_dump(),
                    "examples": len(data.store),
                    "tokens": {name: data.store.tokens(name) for name in self.fields},
                    "longest": dict(data.store.longest),
                    "too_long": data.too_long,
                }
                for name, data in (("valid", self.valid), ("test", self.test))
                if data is not None
            },
        }

    def __str__(self) -> str:
        """Return a description for people."""
        parts = [f"vocabulary  {self._vocabularies()}, in {self.run / 'tokenizer'}"]
        for number, (corpus, store) in enumerate(zip(self.corpora, self.stores, strict=True)):
            tokens = "; ".join(
                f"{store.tokens(name):,} {name} tokens, {store.tokens(name) / len(store):.1f} per example, "
                f"up to {store.longest[name]}"
                for name, field in self.fields.items()
                if isinstance(field, TextField)
            )
            cut = self._cut_notices(f"data.train.{number}", store)
            parts.append("\n".join([corpus_name(corpus), tokens, str(store.report), *cut]))
        for name, data in self._evaluations():
            if data is not None:
                examples = f"{name}: {corpus_name(data.corpus)}\n{len(data.store):,} examples"
                parts.append("\n".join([examples, *data.notices(name), *self._cut_notices(name, data.store)]))
        return "\n\n".join(parts)

    def _vocabularies(self) -> str:
        """Describe the vocabularies."""
        fields = dict(self.fields)
        texts = [field for field in fields.values() if isinstance(field, TextField)]
        if self._is_joint and len(texts) > 1:
            return f"{_kind(texts[0])}, {len(texts[0]):,} pieces, joint"
        return "; ".join(f"{name}: {_kind(field)}, {_size(field)}" for name, field in fields.items())

    @property
    def _is_joint(self) -> bool:
        """Whether all texts share one vocabulary."""
        has_texts = any(isinstance(field, TextField) for field in self.fields.values())
        return has_texts and self.fields.tokenizers.joint


def prepare(
    recipe: Recipe,
    task: DataTask,
    run: Path,
    progress: ProgressCallback | None = None,
    workers: int | None = None,
    fields: Fields | None = None,
) -> Prepared:
    """Learn the vocabularies of a recipe and store its corpora; cached results are reused.

    Args:
        recipe: The recipe.
        task: The task it trains.
        run: The folder of the run; nothing is written to it (`write_run_files` does that).
        progress: Called as records are processed.
        workers: Number of encoding threads; default: one per core.
        fields: Fields with vocabularies to use instead of learning new ones. If these are all text fields, the
            classes of label fields are learned.
    """
    progress = progress or (lambda stage, records: None)
    if fields is None or fields.keys() != task.kinds.keys():
        fields = _vocabularies(recipe, task, cache_folder(), progress, fields)
    stores = tuple(_store(recipe, task, number, fields, progress, workers) for number in range(len(recipe.data.train)))
    valid, test = (
        None if corpus is None else _evaluation_data(recipe, task, corpus, fields, limited=corpus is recipe.data.valid)
        for corpus in (recipe.data.valid, recipe.data.test)
    )
    return Prepared(run, fields, recipe.data.train, stores, valid, test, task.cut_at)


def write_run_files(recipe: Recipe, prepared: Prepared) -> None:
    """Write recipe and vocabularies into the folder of the run."""
    prepared.fields.save(prepared.run)
    write_atomically(prepared.run / RECIPE, dump(recipe).encode())


def _evaluation_data(recipe: Recipe, task: DataTask, corpus: Corpus, fields: Fields, limited: bool) -> EvaluationData:
    """Return a validation or test corpus with its text.

    Of validation data, records are left out that the filter `long` would drop: one of them could need more memory than
    all of training, at every validation. Of test data every record is scored.
    """
    data = recipe.data
    store = build_store(
        corpus,
        data,
        fields,
        cache=cache_folder(),
        drop=(),
        tagged=task.tagged,
        keep_text=True,
        seed=recipe.seed,
    )
    if data.block is not None:
        return EvaluationData(corpus, Blocks(store, data.block), None, ())
    if isinstance(corpus, SERIES_CORPORA):
        return EvaluationData(corpus, corpus_windows(recipe, corpus, store), None, ())
    if not limited or "long" not in task.filters:
        return EvaluationData(corpus, store, None, ())
    texts = [_stored_lengths(store, name, field) for name, field in fields.items() if field.kind in _LIMITED]
    if not texts:
        return EvaluationData(corpus, store, None, ())
    fits = np.maximum.reduce(texts) <= data.longest
    if not fits.any():
        raise ValueError(
            f"Every record of data.valid has more than data.longest = {data.longest} tokens. Raise data.longest, or "
            "name other validation data."
        )
    too_long = tuple(int(index) + 1 for index in np.flatnonzero(~fits))
    return EvaluationData(corpus, store.select(np.flatnonzero(fits)) if too_long else store, data.longest, too_long)


def _stored_lengths(store: Store | Blocks, name: str, field: Field) -> Lengths:
    """Return the number of tokens of each text of a field, as the filters count them."""
    if field.kind != "texts" or isinstance(store, Blocks):
        return store.lengths[name]
    return text_lengths(field.kind, store.column(name))


def corpus_name(corpus: Corpus) -> str:
    """Return the name of a corpus for people."""
    return " and ".join(corpus.paths) or f"the {corpus.kind}"


def _store(
    recipe: Recipe, task: DataTask, number: int, fields: Fields, progress: ProgressCallback, workers: int | None
) -> Store | Blocks:
    """Return the store of one training corpus; its text is kept if subwords are sampled from it."""
    corpus, data = recipe.data.train[number], recipe.data
    stage = f"storing {corpus_name(corpus)}"
    store = build_store(
        corpus,
        data,
        fields,
        cache=cache_folder(),
        drop=task.filters,
        tagged=task.tagged,
        keep_text=recipe.text.sampling > 0,
        seed=recipe.seed,
        progress=lambda records: progress(stage, records),
        workers=workers,
    )
    if isinstance(corpus, SERIES_CORPORA):
        return corpus_windows(recipe, corpus, store)
    return store if data.block is None else Blocks(store, data.block, data.stride)


def _vocabularies(
    recipe: Recipe, task: DataTask, cache: Path, progress: ProgressCallback, texts: Fields | None
) -> Fields:
    """Return the vocabularies of the training data, from the cache or newly learned and cached; `texts` are given."""
    reader = Reader.of(recipe.data, tuple(task.kinds), recipe.seed)
    parts = {
        "task": recipe.task,
        "kinds": dict(task.kinds),
        "multiline": task.multiline,
        "text": recipe.text.model_dump(exclude={"sampling"}),
        "corpora": [identity(corpus, reader, cache) for corpus in recipe.data.train],
        "seed": recipe.seed,
        "parts": [corpus.part for corpus in recipe.data.train if isinstance(corpus, SERIES_CORPORA)],
        **({} if texts is None else {"tokenizers": texts.tokenizers.fingerprint}),
    }
    name = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
    folder = cache / "vocabulary" / name
    with build_lock(folder):
        if fields := _cached_vocabularies(folder, task, recipe.image):
            return fields
        shutil.rmtree(folder, ignore_errors=True)
        tokenizers = None if texts is None else texts.tokenizers
        if "series" in task.kinds.values():
            learned = Fields({name: learn_series(recipe) for name in task.kinds})
        else:
            learned = learn_fields(task.kinds, _records(recipe, reader, progress), recipe, task.multiline, tokenizers)
        with atomic_folder(folder) as scratch:
            learned.save(scratch)
        return load_fields(folder, task.kinds, recipe.image)


def _cached_vocabularies(folder: Path, task: DataTask, images: ImageSettings) -> Fields | None:
    """Return the vocabularies in a folder of the cache; None if there are none or, with a warning, they are damaged."""
    if not folder.exists():
        return None
    try:
        return load_fields(folder, task.kinds, images)
    except ValueError as error:
        _log.warning("%s. The vocabulary is learned again.", error)
        return None


def _records(recipe: Recipe, reader: Reader, progress: ProgressCallback) -> Iterator[tuple[str, ...]]:
    """Yield the records of all training corpora, one corpus after the other."""
    done = 0
    for corpus in recipe.data.train:
        for chunk in reader.chunks(corpus):
            yield from zip(*chunk.columns.values(), strict=True)
            done += len(chunk)
            progress("learning the vocabulary", done)


def _kind(field: Field) -> str:
    """Return the kind of a vocabulary for people: bpe, char, …, or label."""
    return field.tokenizer.settings.kind if isinstance(field, TextField) else field.kind


def _size(field: Field) -> str:
    """Return the size of a vocabulary or of pictures for people."""
    if isinstance(field, ImageField):
        channels, height, width = field.shape
        return f"{height} x {width}, {'colour' if channels == 3 else 'grey'}"
    return f"{len(field):,} columns" if isinstance(field, SeriesField) else f"{len(field):,} entries"
