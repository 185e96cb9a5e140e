"""A corpus to a store: read, encoded and filtered on all cores, written once, found again by its fingerprint.

The fingerprint is made of everything a store's bytes depend on: the contents of the corpus's files (not their names or
dates), which columns, tag and filters are asked for, the tokenizers, and the version of the format.

With the duplicate filter on, the corpus is read twice: first to find the duplicates, which also finds every fault of
the files before the long part begins, then to encode it. Encoding runs in threads, since SentencePiece works outside
Python's lock: two threads encode 1.8 times as much as one.
"""

import hashlib
import json
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import building, contents_digest, lock_of, locked, room_in, sweep
from regard.data.corpus import Chunk, corpus_files, read_chunks
from regard.data.dedupe import find_duplicates
from regard.data.encode import ChunkEncoder, Encoded, Encoder, Encoders, ids_dtype
from regard.data.filters import FilterReport, Sieve
from regard.data.store import VERSION, Manifest, Store
from regard.data.writer import SideWriter
from regard.files import write_whole
from regard.recipe import Corpus, Data, PhrasebookCorpus

_log = logging.getLogger("regard")


def build_store(
    corpus: Corpus,
    data: Data,
    tokenizers: Encoders,
    *,
    cache: Path,
    keep_text: bool = False,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> Store:
    """The store of a corpus: the one in the cache, or else a new one that is kept there.

    `progress` is told how many pairs are done; it hears 0 again and again while duplicates are looked for. `seed` is
    what a phrasebook draws by. `workers` threads encode, by default one a core; the store does not depend on them.
    """
    job = _Job(
        corpus=corpus,
        root=Path(data.root),
        seed=seed,
        encode=ChunkEncoder(tokenizers, Sieve.of(data), _tag_id(corpus, tokenizers.source), keep_text),
        progress=progress or (lambda done: None),
        workers=workers or os.cpu_count() or 1,
    )
    fingerprint = job.fingerprint(cache)
    folder = cache / "store" / fingerprint
    if store := _found(folder):
        return store
    with room_in(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        with locked(lock_of(folder)):
            # Whoever held the lock before us may have built just this.
            if store := _found(folder, warn=True):
                return store
            shutil.rmtree(folder, ignore_errors=True)
            with building(folder) as scratch:
                job.write(scratch)
                if job.fingerprint(cache) != fingerprint:
                    raise ValueError(f"{job.names()} changed while being read. Run it again once nobody writes there.")
    return Store.open(folder)


def identity(corpus: Corpus, root: Path, seed: int, cache: Path) -> dict[str, Any]:
    """What the pairs of a corpus depend on, as JSON holds it: equal identities, equal pairs and tags."""
    contents = [contents_digest(path, cache) for path in corpus_files(corpus, root)]
    if isinstance(corpus, PhrasebookCorpus):
        contents = [_package_digest("regard.data.phrasebook"), str(seed)]
    return corpus.model_dump(exclude={"weight", "source", "target", "path"}) | {"contents": contents}


def _found(folder: Path, *, warn: bool = False) -> Store | None:
    """The store in a folder, if there is a whole one; a damaged one may be worth a warning."""
    if not folder.exists():
        return None
    try:
        return Store.open(folder)
    except ValueError as error:
        if warn:
            _log.warning("%s The store is built anew.", error)
        return None


def _tag_id(corpus: Corpus, tokenizer: Encoder) -> int | None:
    """The id of a corpus's tag; none if it has no tag."""
    if not corpus.tag:
        return None
    number = tokenizer.id(corpus.tag)
    if number == tokenizer.id("<unk>"):
        raise ValueError(f"The tag {corpus.tag!r} is not in the source vocabulary. Add it to text.symbols.")
    return number


@dataclass(frozen=True)
class _Job:
    """All that a store is built from."""

    corpus: Corpus
    root: Path
    seed: int
    encode: ChunkEncoder
    progress: Callable[[int], None]
    workers: int

    def names(self) -> str:
        """The corpus as it is called in messages."""
        return " or ".join(map(str, corpus_files(self.corpus, self.root))) or "The phrasebook"

    def fingerprint(self, cache: Path) -> str:
        """A hash of everything that the store's bytes depend on."""
        sieve, tokenizers = self.encode.sieve, self.encode.tokenizers
        parts = {
            "version": VERSION,
            "corpus": identity(self.corpus, self.root, self.seed, cache),
            "drop": sorted(sieve.drop),
            "longest": sieve.longest if "long" in sieve.drop else None,
            "ratio": sieve.ratio if "ratio" in sieve.drop else None,
            "tokenizers": [tokenizers.source.fingerprint, tokenizers.target.fingerprint],
            "text": self.encode.keep_text,
        }
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def write(self, folder: Path) -> None:
        """Write the store into an empty folder, its manifest last."""
        duplicate = self._duplicates(folder / "hashes")
        tokenizers, keep_text = self.encode.tokenizers, self.encode.keep_text
        report = FilterReport()
        with (
            SideWriter(folder, "source", ids_dtype(tokenizers.source), keep_text) as source,
            SideWriter(folder, "target", ids_dtype(tokenizers.target), keep_text) as target,
        ):
            with closing(self._encoded(duplicate)) as chunks:  # closed, its threads end, whatever happens here
                for encoded in chunks:
                    source.append(encoded.source)
                    target.append(encoded.target)
                    report += encoded.report
                    self.progress(report.read)
            if not report.kept:
                raise ValueError(_all_dropped(self.names(), report))
            manifest = Manifest(
                version=VERSION,
                pairs=report.kept,
                tag=self.encode.tag,
                source=source.finish(),
                target=target.finish(),
                report=report,
            )
        write_whole(folder / "manifest.json", manifest.model_dump_json().encode())

    def _duplicates(self, scratch: Path) -> NDArray[np.bool_] | None:
        """Which pairs repeat an earlier one, if that filter is on; none of a phrasebook's do."""
        if "duplicate" not in self.encode.sieve.drop or isinstance(self.corpus, PhrasebookCorpus):
            return None
        chunks = read_chunks(self.corpus, self.root, self.seed)
        return find_duplicates(chunks, scratch, tick=lambda: self.progress(0))

    def _encoded(self, duplicate: NDArray[np.bool_] | None) -> Generator[Encoded, None, None]:
        """The chunks of the corpus, encoded by several threads and in order, few of them in memory at a time."""
        waiting: deque[Future[Encoded]] = deque()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="encode") as pool:
            try:
                for chunk in read_chunks(self.corpus, self.root, self.seed):
                    waiting.append(pool.submit(self.encode, chunk, self._of_chunk(duplicate, chunk)))
                    if len(waiting) > self.workers + 1:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _of_chunk(self, duplicate: NDArray[np.bool_] | None, chunk: Chunk) -> NDArray[np.bool_] | None:
        """The part of the mask that tells of a chunk."""
        if duplicate is None:
            return None
        part = duplicate[chunk.first - 1 : chunk.first - 1 + len(chunk)]
        if len(part) != len(chunk):
            raise ValueError(f"{self.names()} changed while being read. Run it again once nobody writes there.")
        return part


@lru_cache
def _package_digest(package: str) -> str:
    """A hash of the files a package consists of."""
    digest = hashlib.blake2b(digest_size=20)
    for file in sorted(files(package).iterdir(), key=lambda file: file.name):
        if file.is_file():
            data = file.read_bytes()
            digest.update(f"{file.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _all_dropped(names: str, report: FilterReport) -> str:
    """What to say when nothing is left."""
    counts = ", ".join(f"{name} {count:,}" for name, count in report.dropped.items() if count)
    return (
        f"The filters dropped all {report.read:,} pairs of {names} ({counts}). "
        "Is it the right file? Else loosen data.longest or data.ratio, or take filters off data.drop."
    )
