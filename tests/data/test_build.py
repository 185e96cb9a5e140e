"""Building a store: what goes in comes out, by fingerprint, whoever works on it and whatever was damaged."""

import gzip
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.data.build import build_store, identity
from regard.data.corpus import CHUNK, read_pairs
from regard.data.store import Store
from regard.recipe import Corpus, Data, JsonlCorpus, PhrasebookCorpus, TextCorpus, TsvCorpus
from regard.text import Tokenizers


@dataclass(frozen=True)
class Letters:
    """A tokenizer of one id a character: its code point plus `shift`. `<2de>` is a symbol."""

    shift: int = 0
    size: int = 0x110000

    @property
    def fingerprint(self) -> str:
        return f"letters {self.shift} {self.size}"

    def __len__(self) -> int:
        return self.size

    def id(self, piece: str) -> int:
        return {"<2de>": 4}.get(piece, 1)

    def encode(self, line: str) -> list[int]:
        return [ord(char) + self.shift for char in line]

    def encode_batch(
        self, lines: Sequence[str], threads: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        ids = [number for line in lines for number in self.encode(line)]
        return np.array(ids, np.int32), np.cumsum([0, *map(len, lines)])


@dataclass(frozen=True)
class TwoLetters:
    """A tokenizer a side."""

    source: Letters = field(default_factory=Letters)
    target: Letters = field(default_factory=lambda: Letters(shift=1))


@dataclass
class Place:
    """A folder with a corpus, and a cache beside it."""

    root: Path
    built: int = 0
    """Times that a store was built rather than found."""

    def write(self, pairs: Sequence[tuple[str, str]], name: str = "pairs.tsv") -> TsvCorpus:
        (self.root / name).write_text("".join(f"{source}\t{target}\n" for source, target in pairs), newline="")
        return TsvCorpus(path=name)

    def store(
        self, corpus: Corpus, tokenizers: Any = None, *, workers: int = 2, text: bool = False, **data: Any
    ) -> Store:
        heard: list[int] = []
        settings = Data(root=str(self.root), train=(corpus,), **({"longest": 100_000} | data))
        store = build_store(
            corpus,
            settings,
            tokenizers or TwoLetters(),
            cache=self.root / "cache",
            keep_text=text,
            progress=heard.append,
            workers=workers,
        )
        assert heard == sorted(heard)
        assert not heard or heard[-1] == store.report.read
        self.built += bool(heard)
        return store

    def left(self) -> list[str]:
        """What is in the folder of stores that is no store."""
        return [
            path.name for path in (self.root / "cache" / "store").iterdir() if not (path / "manifest.json").exists()
        ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def contents(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


def sequences(store: Store) -> list[tuple[list[int], list[int]]]:
    """The pairs of a store, one by one."""
    sides = []
    for side in (store.source, store.target):
        bounds = side.offsets.tolist()
        sides.append([side.ids[start:end].tolist() for start, end in pairwise(bounds)])
    return list(zip(*sides, strict=True))


VARIED = [(f"source {i % 700}", f"target {i % 300} {'x' * (i % 11)}") for i in range(2 * CHUNK + 77)]


def test_a_store_holds_the_ids_of_every_kept_pair_in_order(place: Place) -> None:
    letters = TwoLetters()
    store = place.store(place.write(VARIED))
    kept = list(dict.fromkeys(VARIED))
    assert sequences(store) == [(letters.source.encode(s), letters.target.encode(t)) for s, t in kept]
    assert len(store) == len(kept) == store.report.kept
    assert store.report.read == len(VARIED)
    assert store.report.dropped["duplicate"] == len(VARIED) - len(kept)
    assert place.left() == []


def test_examples_of_duplicates_are_the_first_of_them(place: Place) -> None:
    report = place.store(place.write([("a", "b"), ("c", "d"), ("a", "b"), ("a", "d"), ("c", "d"), ("a", "b")])).report
    assert [(each.line, each.source) for each in report.examples["duplicate"]] == [(3, "a"), (5, "c"), (6, "a")]


@pytest.mark.parametrize("text", [False, True])
def test_the_bytes_do_not_depend_on_the_number_of_workers(place: Place, text: bool) -> None:
    corpus = place.write(VARIED)
    one = contents(place.store(corpus, workers=1, text=text))
    for path in (place.root / "cache" / "store").iterdir():
        path.rename(place.root / path.name)
    assert contents(place.store(corpus, workers=4, text=text)) == one
    assert place.built == 2


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.int32)])
def test_ids_take_two_bytes_where_the_vocabulary_fits(place: Place, size: int, dtype: type) -> None:
    tokenizers = TwoLetters(Letters(size=size), Letters(size=10))
    store = place.store(place.write([("a\uffff", "b")]), tokenizers)
    assert store.source.ids.dtype == dtype
    assert store.target.ids.dtype == np.dtype(np.uint16)
    assert store.gather(np.array([0]))[0].tolist() == [ord("a"), 0xFFFF]


def test_a_tag_stands_before_each_source(place: Place) -> None:
    corpus = place.write([("ab", "c"), ("", "d")]).model_copy(update={"tag": "<2de>"})
    store = place.store(corpus, drop=(), text=True)
    assert store.tag == 4
    assert [source for source, _ in sequences(store)] == [[4, ord("a"), ord("b")], [4]]
    assert store.text(np.array([0, 1])) == (["ab", ""], ["c", "d"])
    assert store.longest == (3, 1)


def test_a_tag_that_no_vocabulary_knows_is_an_error(place: Place) -> None:
    corpus = place.write([("a", "b")]).model_copy(update={"tag": "<2xx>"})
    with pytest.raises(ValueError, match=r"'<2xx>' is not in the source vocabulary.*text\.symbols"):
        place.store(corpus)


def test_text_is_kept_as_it_stood_where_asked_for(place: Place) -> None:
    pairs = [("ein \u2028 Satz ", "a sentence"), ("x", "x"), ("\0 تجربة", "🙂")]
    store = place.store(place.write(pairs), text=True)
    assert store.text(np.array([1, 0])) == (["\0 تجربة", "ein \u2028 Satz "], ["🙂", "a sentence"])


def test_without_filters_every_pair_stays(place: Place) -> None:
    pairs = [("", ""), ("a", ""), ("a", "a"), ("a", "a"), ("a", "b" * 999)]
    store = place.store(place.write(pairs), drop=(), longest=5)
    assert [len(store), *store.longest] == [5, 1, 999]
    assert store.report.dropped == {}


def test_a_corpus_of_empty_pairs_makes_a_store(place: Place) -> None:
    store = place.store(place.write([("", "")] * 3), drop=(), text=True)
    assert [ids.tolist() for ids in store.gather(np.arange(3))] == [[], [0] * 4, [], [0] * 4]
    assert store.text(np.arange(2)) == (["", ""], ["", ""])


def test_a_megabyte_line_is_dropped_or_kept_whole(place: Place) -> None:
    corpus = place.write([("a" * 1_000_000, "b" * 1_000_000), ("a", "b")])
    assert place.store(corpus, longest=10).longest == (1, 1)
    assert place.store(corpus, drop=()).longest == (1_000_000, 1_000_000)


def test_when_every_pair_is_dropped_the_counts_are_told(place: Place) -> None:
    with pytest.raises(ValueError, match=r"dropped all 3 pairs of .*pairs\.tsv \(empty 2, copy 1\)"):
        place.store(place.write([("", "a"), ("a", ""), ("a", "a")]))
    assert place.left() == []
    assert not list((place.root / "cache" / "store").iterdir())


@pytest.mark.parametrize("drop", [("duplicate",), ()])
def test_a_broken_corpus_leaves_nothing_in_the_cache(place: Place, drop: tuple[str, ...]) -> None:
    corpus = place.write(VARIED)
    with (place.root / corpus.path).open("a") as file:
        file.write("no tab\n")
    with pytest.raises(ValueError, match=f"line {len(VARIED) + 1}: 1 tab-separated column"):
        place.store(corpus, drop=drop)
    assert not list((place.root / "cache" / "store").iterdir())


def test_an_interrupted_build_leaves_nothing_in_the_cache(place: Place) -> None:
    corpus = place.write(VARIED)

    def interrupt(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(
            corpus,
            Data(root=str(place.root), train=(corpus,)),
            TwoLetters(),
            cache=place.root / "cache",
            progress=interrupt,
        )
    assert not list((place.root / "cache" / "store").iterdir())


def test_a_store_is_found_again_and_not_built_again(place: Place) -> None:
    corpus = place.write([("a", "b")])
    first = place.store(corpus)
    assert place.store(corpus).folder == first.folder
    assert place.built == 1


Change = Callable[[Place, TsvCorpus], Store]
PAIR = [("aa", "bbb"), ("aa", "bbb"), ("c", "ddddddd")]


def touched(place: Place, corpus: TsvCorpus) -> Store:
    os.utime(place.root / corpus.path, (1, 1))
    return place.store(corpus)


def rewritten(place: Place, corpus: TsvCorpus) -> Store:
    place.write(PAIR)
    return place.store(corpus)


@pytest.mark.parametrize(
    "change",
    [
        touched,
        rewritten,
        lambda place, corpus: place.store(place.write(PAIR, "other name.tsv")),
        lambda place, corpus: place.store(corpus.model_copy(update={"weight": 3.0})),
        lambda place, corpus: place.store(corpus, drop=("duplicate", "copy", "ratio", "long", "empty")),
        lambda place, corpus: place.store(corpus, workers=1),
        lambda place, corpus: place.store(corpus, order="length"),
        lambda place, corpus: place.store(corpus.model_copy(update={"path": str(place.root / corpus.path)})),
    ],
)
def test_what_does_not_matter_does_not_build_again(place: Place, change: Change) -> None:
    corpus = place.write(PAIR)
    before = place.store(corpus)
    assert change(place, corpus).folder == before.folder
    assert place.built == 1


def edited(place: Place, corpus: TsvCorpus) -> Store:
    """Same size, same date, other contents."""
    path = place.root / corpus.path
    stat = path.stat()
    path.write_text(path.read_text().replace("aa", "ee"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return place.store(corpus)


@pytest.mark.parametrize(
    "change",
    [
        edited,
        lambda place, corpus: place.store(place.write(PAIR[::-1])),
        lambda place, corpus: place.store(corpus, drop=("empty",)),
        lambda place, corpus: place.store(corpus, longest=6),
        lambda place, corpus: place.store(corpus, ratio=2.0),
        lambda place, corpus: place.store(corpus, text=True),
        lambda place, corpus: place.store(corpus.model_copy(update={"tag": "<2de>"})),
        lambda place, corpus: place.store(corpus.model_copy(update={"columns": (2, 1)})),
        lambda place, corpus: place.store(corpus, TwoLetters(source=Letters(shift=5))),
        lambda place, corpus: place.store(corpus, TwoLetters(target=Letters(shift=5))),
    ],
)
def test_what_matters_builds_another_store(place: Place, change: Change) -> None:
    corpus = place.write(PAIR)
    before = place.store(corpus)
    assert change(place, corpus).folder != before.folder
    assert place.built == 2


def test_a_setting_of_a_filter_that_is_off_does_not_build_again(place: Place) -> None:
    corpus = place.write(PAIR)
    before = place.store(corpus, drop=("empty",), longest=10, ratio=2.0)
    assert place.store(corpus, drop=("empty",), longest=20, ratio=3.0).folder == before.folder


@pytest.mark.parametrize("name", ["manifest.json", "source.ids", "target.offsets", "target.lengths"])
def test_a_damaged_store_is_built_anew_with_a_warning(
    place: Place, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = place.write(VARIED)
    store = place.store(corpus)
    whole = contents(store)
    path = store.folder / name
    path.write_bytes(path.read_bytes()[:-5])
    with caplog.at_level(logging.WARNING, "regard"):
        assert contents(place.store(corpus)) == whole
    assert place.built == 2
    [warning] = caplog.messages
    assert str(path) in warning
    assert "built anew" in warning


def test_what_a_dead_builder_left_is_swept_away(place: Place) -> None:
    corpus = place.write(PAIR)
    store = place.store(corpus)
    for name in (store.folder.name, "0123"):
        (store.folder.parent / f"{name}.building-abcd").mkdir()
        (store.folder.parent / f"{name}.building-abcd" / "source.ids").write_bytes(b"half")
    (store.folder / "manifest.json").unlink()
    place.store(corpus)
    assert place.left() == []


def test_every_kind_of_file_makes_the_same_store(place: Place) -> None:
    pairs = list(dict.fromkeys(VARIED))
    tsv = sequences(place.store(place.write(pairs)))
    for name, column in (("a.gz", 0), ("b.gz", 1)):
        with gzip.open(place.root / name, "wt", encoding="utf-8") as file:
            file.writelines(f"{pair[column]}\n" for pair in pairs)
    (place.root / "c.jsonl").write_text("".join(f'{{"source": "{s}", "target": "{t}"}}\n' for s, t in pairs))
    assert sequences(place.store(TextCorpus(source="a.gz", target="b.gz"))) == tsv
    assert sequences(place.store(JsonlCorpus(path="c.jsonl"))) == tsv
    assert place.built == 3


def test_the_phrasebook_is_stored_by_what_it_draws(tmp_path: Path) -> None:
    def drawn(pairs: int, seed: int) -> Store:
        corpus = PhrasebookCorpus(to="de", pairs=pairs)
        return build_store(corpus, Data(train=(corpus,)), TwoLetters(), cache=tmp_path, seed=seed, keep_text=True)

    store = drawn(pairs=60, seed=1)
    phrases = [
        (phrase.source, phrase.target) for phrase in read_pairs(PhrasebookCorpus(to="de", pairs=60), tmp_path, 1)
    ]
    assert list(zip(*store.text(np.arange(len(store))), strict=True)) == phrases
    assert len(store) == 60
    assert drawn(pairs=60, seed=1).folder == store.folder
    assert drawn(pairs=59, seed=1).folder != store.folder
    assert drawn(pairs=60, seed=2).folder != store.folder


def test_the_seed_means_nothing_to_a_corpus_of_files(place: Place) -> None:
    corpus = place.write(PAIR)
    cache = place.root / "cache"
    assert identity(corpus, place.root, 1, cache) == identity(corpus, place.root, 2, cache)


def test_a_real_corpus_with_a_real_tokenizer(tmp_path: Path, shared_data: Path) -> None:
    corpus = TextCorpus(source="dev.en.gz", target="dev.ar.gz")
    root = shared_data / "tatoeba-en-ar"
    pairs = [(pair.source, pair.target) for pair in read_pairs(corpus, root)]
    tokenizers = Tokenizers.learn(pairs, size=1000)
    data = Data(root=str(root), train=(corpus,))
    store = build_store(corpus, data, tokenizers, cache=tmp_path, keep_text=True, workers=2)
    kept = list(zip(*store.text(np.arange(len(store))), strict=True))
    assert store.report.kept == len(kept) > 0.9 * len(pairs)
    assert sequences(store) == [(tokenizers.source.encode(s), tokenizers.target.encode(t)) for s, t in kept]
