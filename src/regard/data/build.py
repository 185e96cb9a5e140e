"""Build the store of a corpus: read, encode and filter on all cores, write once, find again by its fingerprint.

The fingerprint hashes everything that the bytes of a store depend on: the contents of the files (not their names or
dates), columns, tag, filters, vocabularies, and the version of the format.

With the duplicate filter on, the corpus is read twice: first to find duplicates, which also finds every malformed line
before the long part begins, then to encode it. Encoding runs in threads, because SentencePiece releases Python's global
interpreter lock: two threads encode 1.8 times as much as one.
"""

import hashlib
import json
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import atomic_folder, build_lock, file_digest, files_digest
from regard.data.corpus import Chunk, Reader
from regard.data.dedupe import find_duplicates
from regard.data.fields import (
    CUT_KINDS,
    TEXT_KINDS,
    Field,
    Fields,
    TextField,
    UnequalLengthsError,
    UnreadableImageError,
    text_lengths,
)
from regard.data.fields.label import UnknownLabelError
from regard.data.filters import KEPT, FilterReport, RecordFilter
from regard.data.images import image_files
from regard.data.rows import Rows
from regard.data.store import MANIFEST, VERSION, EncodedColumn, FieldWriter, Manifest, Store
from regard.files import write_atomically
from regard.recipe import (
    IMAGE_CORPORA,
    SERIES_CORPORA,
    Corpus,
    Data,
    DigitsCorpus,
    DocumentsCorpus,
    Filter,
    ImagesCorpus,
    PhrasebookCorpus,
    ScenesCorpus,
    SeasonalCorpus,
    SmallTalkCorpus,
)

_log = logging.getLogger("regard")
_GENERATORS: dict[type[Corpus], tuple[str, ...]] = {
    PhrasebookCorpus: ("regard.data.phrasebook",),
    DocumentsCorpus: ("regard.data.documents",),
    SmallTalkCorpus: ("regard.data.smalltalk",),
    ScenesCorpus: ("regard.data.scenes", "regard.data.phrasebook"),
    DigitsCorpus: ("regard.data.digits",),
    SeasonalCorpus: ("regard.data.seasonal",),
}
"""The packages that generate corpora; a change of their files changes the records."""


def build_store(
    corpus: Corpus,
    data: Data,
    fields: Fields,
    *,
    cache: Path,
    drop: Collection[Filter] | None = None,
    tagged: str | None = None,
    keep_text: bool = False,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> Store:
    """Return the store of a corpus, from the cache or newly built and cached.

    Args:
        corpus: The corpus.
        data: The recipe's `[data]` section, for filters and paths.
        fields: The fields of a record, which encode its values.
        cache: The cache folder.
        drop: Filters to apply instead of those of `data`.
        tagged: The field that the corpus's tag is put before.
        keep_text: Whether to keep the raw text beside the ids.
        seed: Random seed of generated corpora.
        progress: Called with the number of records done; with 0 while duplicates are searched for.
        workers: Number of encoding threads; default: one per core. The store does not depend on it.
    """
    if any(field.kind == "image" for field in fields.values()) and not isinstance(corpus, IMAGE_CORPORA):
        raise ValueError(f"A corpus of kind '{corpus.kind}' has no pictures. Use one of kind images, scenes or digits.")
    builder = _Builder(
        corpus=corpus,
        reader=Reader.of(data, tuple(fields), seed),
        fields=fields,
        record_filter=RecordFilter.of(data, drop),
        tags=_tag_ids(corpus, fields, tagged),
        keep_text=keep_text,
        progress=progress or (lambda done: None),
        workers=workers or os.cpu_count() or 1,
    )
    fingerprint = builder.fingerprint(cache)
    folder = cache / "store" / fingerprint
    if store := _open(folder):
        return store
    with build_lock(folder):
        # Another process may have built this store while we waited for the lock.
        if store := _open(folder, warn=True):
            return store
        shutil.rmtree(folder, ignore_errors=True)
        with atomic_folder(folder) as scratch:
            builder.write(scratch)
            if builder.fingerprint(cache) != fingerprint:
                raise builder.changed()
    return Store.open(folder)


def identity(corpus: Corpus, reader: Reader, cache: Path) -> dict[str, Any]:
    """Return what the records of a corpus depend on, as JSON: equal identities, equal records and tags."""
    contents = [file_digest(path, cache) for path in reader.paths(corpus)]
    if packages := _GENERATORS.get(type(corpus)):
        contents = [*map(_package_digest, packages), str(reader.seed)]
    settings = corpus.model_dump(exclude={"weight", "files", "path"})
    if isinstance(corpus, ImagesCorpus):  # the store keeps the names of pictures, which depend on where they are
        settings |= {"path": corpus.path, "root": str(reader.root)}
        if not corpus.is_packed:
            pictures = image_files(reader.paths(corpus)[0], reader.root, "captions" in reader.fields)
            contents.append(files_digest(pictures, cache))
    if isinstance(corpus, SERIES_CORPORA):  # parts of one series share a store
        del settings["part"]
    if "history" in reader.fields:
        settings |= {"turns": reader.turns, "reverse": reader.reverse}
    return settings | {"contents": contents, "fields": list(reader.fields), "documents": reader.documents}


def _open(folder: Path, *, warn: bool = False) -> Store | None:
    """Open and verify the store in a folder, if there is one; optionally warn about a damaged one."""
    if not folder.exists():
        return None
    try:
        store = Store.open(folder)
        store.verify()
        return store
    except ValueError as error:
        if warn:
            _log.warning("%s The store is rebuilt.", error)
        return None


def _tag_ids(corpus: Corpus, fields: Fields, tagged: str | None) -> dict[str, int]:
    """Return the id of the corpus's tag for the field that it is put before."""
    if not corpus.tag or tagged is None:
        return {}
    field = fields[tagged]
    assert isinstance(field, TextField)
    number = field.tokenizer.id(corpus.tag)
    if number == field.tokenizer.id("<unk>"):
        raise ValueError(f"The tag {corpus.tag!r} is not in the {tagged} vocabulary. Add it to text.symbols.")
    return {tagged: number}


@dataclass(frozen=True, slots=True)
class _EncodedChunk:
    """The kept records of a chunk, and the report on all of them."""

    columns: Mapping[str, EncodedColumn]
    report: FilterReport


@dataclass(frozen=True)
class _Builder:
    """Everything that a store is built from."""

    corpus: Corpus
    reader: Reader
    fields: Fields
    record_filter: RecordFilter
    tags: dict[str, int]
    keep_text: bool
    progress: Callable[[int], None]
    workers: int

    def name(self) -> str:
        """Return the name of the corpus for messages."""
        return " or ".join(map(str, self.reader.paths(self.corpus))) or f"The corpus of kind {self.corpus.kind!r}"

    def changed(self) -> ValueError:
        """Return the error for a corpus that another process writes to."""
        return ValueError(f"{self.name()} changed while it was read. Run the command again when it is complete.")

    def fingerprint(self, cache: Path) -> str:
        """Return a hash of everything that the bytes of the store depend on."""
        active = self.record_filter
        parts = {
            "version": VERSION,
            "corpus": identity(self.corpus, self.reader, cache),
            "drop": sorted(active.drop),
            "longest": active.longest if "long" in active.drop else None,
            "ratio": active.ratio if "ratio" in active.drop else None,
            "fields": {name: field.fingerprint for name, field in self.fields.items()},
            "tags": self.tags,
            "text": self.keep_text,
        }
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def write(self, folder: Path) -> None:
        """Write the store into an empty folder, its manifest last."""
        duplicate = self._duplicates(folder / "hashes")
        report = FilterReport()
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(FieldWriter(folder, name, field.dtype, self.keep_text))
                for name, field in self.fields.items()
            }
            with closing(self._encoded(duplicate)) as chunks:  # closing it ends its threads, whatever happens here
                for encoded in chunks:
                    for name, writer in writers.items():
                        writer.append(encoded.columns[name])
                    report += encoded.report
                    self.progress(report.read)
            if not report.kept:
                raise ValueError(_all_dropped(self.name(), report))
            manifest = Manifest(
                version=VERSION,
                records=report.kept,
                tags=self.tags,
                fields={name: writer.finish() for name, writer in writers.items()},
                report=report,
            )
        write_atomically(folder / MANIFEST, manifest.sealed(folder).model_dump_json().encode())

    def _duplicates(self, scratch: Path) -> NDArray[np.bool_] | None:
        """Return which records repeat an earlier one, if that filter is on; generated ones never do."""
        if "duplicate" not in self.record_filter.drop or type(self.corpus) in _GENERATORS:
            return None
        return find_duplicates(self.reader.chunks(self.corpus), scratch, tick=lambda: self.progress(0))

    def _encoded(self, duplicate: NDArray[np.bool_] | None) -> Generator[_EncodedChunk, None, None]:
        """Yield the encoded chunks of the corpus in order; threads encode a few of them ahead."""
        pending: deque[Future[_EncodedChunk]] = deque()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="encode") as pool:
            try:
                for chunk in self.reader.chunks(self.corpus):
                    pending.append(pool.submit(self._encode, chunk, self._of_chunk(duplicate, chunk)))
                    if len(pending) > self.workers + 1:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _encode(self, chunk: Chunk, duplicate: NDArray[np.bool_] | None) -> _EncodedChunk:
        """Encode all fields of a chunk and drop the records that a filter rejects."""
        try:
            encoded = self.fields.encode(chunk.columns)
        except (UnknownLabelError, UnequalLengthsError, UnreadableImageError) as error:
            raise ValueError(f"{self.name()}, line {chunk.line(error.index)}: {error}") from None
        texts = {name: rows for name, rows in encoded.items() if self.fields[name].kind in TEXT_KINDS}
        lengths = {name: text_lengths(self.fields[name].kind, rows) for name, rows in texts.items()}
        cut = [name for name in lengths if self.fields[name].kind in CUT_KINDS]
        verdicts = self.record_filter.apply(chunk, lengths, duplicate=duplicate, tagged=self.tags, cut=cut)
        kept = verdicts == KEPT
        columns = {
            name: self._column(name, field, chunk.columns[name], encoded[name], kept)
            for name, field in self.fields.items()
        }
        return _EncodedChunk(columns, self.record_filter.report(chunk, verdicts))

    def _column(self, name: str, field: Field, values: list[str], rows: Rows, kept: NDArray[np.bool_]) -> EncodedColumn:
        """Return the ids, and the text if it is to be kept, of the records that are kept; with the field's tag."""
        rows = rows if kept.all() else rows.take(np.flatnonzero(kept))
        ids, lengths = rows.ids.astype(field.dtype, copy=False), rows.lengths
        if name in self.tags:
            ids, lengths = np.insert(ids, np.cumsum(lengths) - lengths, self.tags[name]), lengths + 1
        if not self.keep_text:
            return EncodedColumn(ids, lengths, None, None)
        data = [values[index].encode() for index in np.flatnonzero(kept)]
        return EncodedColumn(ids, lengths, b"".join(data), np.fromiter(map(len, data), np.int64, len(data)))

    def _of_chunk(self, duplicate: NDArray[np.bool_] | None, chunk: Chunk) -> NDArray[np.bool_] | None:
        """Return the part of the duplicate mask for a chunk."""
        if duplicate is None:
            return None
        part = duplicate[chunk.first - 1 : chunk.first - 1 + len(chunk)]
        if len(part) != len(chunk):
            raise self.changed()
        return part


@lru_cache
def _package_digest(package: str) -> str:
    """Return a hash of the files of a package that generates a corpus, and of the module that all of them share."""
    digest = hashlib.blake2b(digest_size=20)
    for file in (files("regard.data") / "generation.py", *sorted(files(package).iterdir(), key=lambda file: file.name)):
        if file.is_file():
            data = file.read_bytes()
            digest.update(f"{file.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _all_dropped(name: str, report: FilterReport) -> str:
    """Return the error message for a corpus of which nothing is left."""
    counts = ", ".join(f"{name} {count:,}" for name, count in report.dropped.items() if count)
    return (
        f"The filters dropped all {report.read:,} records of {name} ({counts}). "
        "Is it the right file? Otherwise raise data.longest or data.ratio, or remove filters from data.drop."
    )
