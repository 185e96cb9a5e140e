"""Building a store: every kept record is in it, it is found again by its fingerprint, and rebuilt if damaged."""

import gzip
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from regard.data.build import build_store, identity
from regard.data.corpus import CHUNK, Reader
from regard.data.fields import Field, Fields, LabelField, with_tokenizers
from regard.data.rows import Rows, offsets_of
from regard.data.store import Store
from regard.recipe import Corpus, Data, JsonlCorpus, PhrasebookCorpus, TextCorpus, TsvCorpus
from regard.text import Tokenizers

PAIR = ("source", "target")


@dataclass(frozen=True)
class Letters:
    """A text field with one id for each character: its code point plus `shift`."""

    shift: int = 0
    size: int = 0x110000

    @property
    def kind(self) -> Literal["text"]:
        return "text"

    @property
    def fingerprint(self) -> str:
        return f"letters {self.shift} {self.size}"

    @property
    def dtype(self) -> "np.dtype[Any]":
        return np.dtype("<u2" if self.size <= 65_536 else "<i4")

    def __len__(self) -> int:
        return self.size

    def encode(self, values: Sequence[str]) -> Rows:
        ids = [number for value in values for number in self.ids(value)]
        return Rows(np.array(ids, np.int32), offsets_of(np.array([len(value) for value in values], np.int64)))

    def ids(self, value: str) -> list[int]:
        return [ord(char) + self.shift for char in value]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(number - self.shift) for number in ids)


def letters(*names: str, **other: Field) -> Fields:
    """Fields of letters with these names, by default source and target, and other fields."""
    return Fields({name: Letters(shift=at) for at, name in enumerate(names or PAIR)} | other)


@dataclass
class CorpusFolder:
    """A folder with a corpus, and a cache beside it."""

    root: Path
    built: int = 0
    """Number of stores that were built rather than found."""

    def write(self, records: Sequence[tuple[str, ...]], name: str = "pairs.tsv") -> TsvCorpus:
        (self.root / name).write_text("".join("\t".join(record) + "\n" for record in records), newline="")
        return TsvCorpus(path=name)

    def store(
        self,
        corpus: Corpus,
        fields: Fields | None = None,
        *,
        workers: int = 2,
        text: bool = False,
        tagged: str | None = None,
        **data: Any,
    ) -> Store:
        progress: list[int] = []
        settings = Data.model_validate({"root": str(self.root), "train": (corpus,), "longest": 100_000} | data)
        store = build_store(
            corpus,
            settings,
            fields or letters(),
            cache=self.root / "cache",
            tagged=tagged,
            keep_text=text,
            progress=progress.append,
            workers=workers,
        )
        assert progress == sorted(progress)
        assert not progress or progress[-1] == store.report.read
        self.built += bool(progress)
        return store

    @property
    def stores(self) -> Path:
        """The folder of all stores."""
        return self.root / "cache" / "store"

    def remains(self) -> list[str]:
        """Everything in the folder of stores that is not a store."""
        return [path.name for path in self.stores.iterdir() if not (path / "manifest.json").exists()]


@pytest.fixture
def folder(tmp_path: Path) -> CorpusFolder:
    return CorpusFolder(tmp_path)


def contents(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


def records_in(store: Store) -> list[tuple[list[int], ...]]:
    """The ids of every record, by field."""
    columns = (
        [field.ids[start:end].tolist() for start, end in pairwise(field.offsets.tolist())]
        for field in store.fields.values()
    )
    return list(zip(*columns, strict=True))


def texts_in(store: Store) -> list[tuple[str, ...]]:
    """The raw values of every record, by field."""
    return list(zip(*store.text(np.arange(len(store))).values(), strict=True))


VARIED = [(f"source {i % 700}", f"target {i % 300} {'x' * (i % 11)}") for i in range(2 * CHUNK + 77)]


def test_a_store_has_the_ids_of_every_kept_record_in_order(folder: CorpusFolder) -> None:
    store = folder.store(folder.write(VARIED))
    kept = list(dict.fromkeys(VARIED))
    assert records_in(store) == [(Letters().ids(source), Letters(shift=1).ids(target)) for source, target in kept]
    assert len(store) == len(kept) == store.report.kept
    assert store.report.read == len(VARIED)
    assert store.report.dropped["duplicate"] == len(VARIED) - len(kept)
    assert folder.remains() == []


@pytest.mark.parametrize("names", [("text",), ("question", "context", "answer")])
def test_a_record_may_have_one_field_or_three(folder: CorpusFolder, names: tuple[str, ...]) -> None:
    records = [tuple(f"{name} {number % 900}" for name in names) for number in range(CHUNK + 7)]
    store = folder.store(folder.write(records), letters(*names), text=True)
    kept = list(dict.fromkeys(records))
    assert list(store.fields) == list(names)
    assert texts_in(store) == kept
    assert records_in(store) == [
        tuple(Letters(shift=at).ids(value) for at, value in enumerate(record)) for record in kept
    ]
    assert {path.name for path in store.folder.iterdir()} == {"manifest.json"} | {
        f"{name}.{suffix}" for name in names for suffix in ("ids", "offsets", "lengths", "text", "text-offsets")
    }


class TestLabels:
    RECORDS = (("good film", "pos"), ("bad film", "neg"), ("", "neg"), ("good film", "neg"), ("good film", "pos"))
    FIELDS = letters("text", label=LabelField(("neg", "pos")))

    def test_a_store_has_one_class_number_for_each_record(self, folder: CorpusFolder) -> None:
        store = folder.store(folder.write(self.RECORDS), self.FIELDS, text=True)
        assert store.report.dropped == {"empty": 1, "long": 0, "ratio": 0, "copy": 0, "duplicate": 1}
        assert records_in(store) == [
            (Letters().ids("good film"), [1]),
            (Letters().ids("bad film"), [0]),
            (Letters().ids("good film"), [0]),
        ]
        assert texts_in(store) == [self.RECORDS[number] for number in (0, 1, 3)]
        assert (store.longest["label"], store.tokens("label")) == (1, 3)

    def test_a_label_equal_to_its_text_is_no_copy(self, folder: CorpusFolder) -> None:
        store = folder.store(folder.write([("pos", "pos")]), self.FIELDS)
        assert len(store) == 1

    def test_an_unknown_label_is_named_with_its_line(self, folder: CorpusFolder) -> None:
        corpus = folder.write([*self.RECORDS, ("fine", "poss")])
        with pytest.raises(ValueError, match=r"pairs\.tsv, line 6: the label 'poss' does not occur .*'pos'"):
            folder.store(corpus, self.FIELDS)
        assert not list(folder.stores.iterdir())

    def test_other_classes_make_another_store(self, folder: CorpusFolder) -> None:
        corpus = folder.write(self.RECORDS)
        first = folder.store(corpus, self.FIELDS)
        other = letters("text", label=LabelField(("neg", "neutral", "pos")))
        assert folder.store(corpus, other).folder != first.folder


def test_examples_of_duplicates_are_the_first_of_them(folder: CorpusFolder) -> None:
    corpus = folder.write([("a", "b"), ("c", "d"), ("a", "b"), ("a", "d"), ("c", "d"), ("a", "b")])
    examples = folder.store(corpus).report.examples["duplicate"]
    assert [(example.line, example.values["source"]) for example in examples] == [(3, "a"), (5, "c"), (6, "a")]


@pytest.mark.parametrize("text", [False, True])
def test_the_bytes_do_not_depend_on_the_number_of_workers(folder: CorpusFolder, text: bool) -> None:
    corpus = folder.write(VARIED)
    one = contents(folder.store(corpus, workers=1, text=text))
    for path in folder.stores.iterdir():
        path.rename(folder.root / path.name)
    assert contents(folder.store(corpus, workers=4, text=text)) == one
    assert folder.built == 2


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.int32)])
def test_ids_take_two_bytes_if_the_vocabulary_allows(folder: CorpusFolder, size: int, dtype: type) -> None:
    fields = Fields({"source": Letters(size=size), "target": Letters(size=10)})
    store = folder.store(folder.write([("a\uffff", "b")]), fields)
    assert store.fields["source"].ids.dtype == dtype
    assert store.fields["target"].ids.dtype == np.dtype(np.uint16)
    assert store.gather(np.array([0]))["source"].ids.tolist() == [ord("a"), 0xFFFF]


class TestTags:
    TOKENIZERS = Tokenizers.learn([("abc", "dc")], kind="char", size=300, symbols=("<2de>",))
    FIELDS = with_tokenizers(TOKENIZERS)

    @pytest.mark.parametrize("tagged", PAIR)
    def test_a_tag_is_put_before_each_text_of_its_field(self, folder: CorpusFolder, tagged: str) -> None:
        corpus = folder.write([("ab", "c"), ("", "d")]).model_copy(update={"tag": "<2de>"})
        store = folder.store(corpus, self.FIELDS, tagged=tagged, drop=(), text=True)
        tokenizer = self.TOKENIZERS[tagged]
        tag = tokenizer.id("<2de>")
        assert store.tags == {tagged: tag}
        rows = store.gather(np.arange(2))
        texts = store.text(np.arange(2))[tagged]
        assert [rows[name].ids[0] == tag for name in PAIR] == [name == tagged for name in PAIR]
        assert rows[tagged].ids.tolist() == [id_ for text in texts for id_ in [tag, *tokenizer.encode(text)]]
        assert texts_in(store) == [("ab", "c"), ("", "d")]
        assert store.longest[tagged] == 1 + max(
            len(tokenizer.encode(text)) for text in store.text(np.arange(2))[tagged]
        )

    def test_a_task_without_tagged_field_has_another_store(self, folder: CorpusFolder) -> None:
        corpus = folder.write([("ab", "c")]).model_copy(update={"tag": "<2de>"})
        stores = [folder.store(corpus, self.FIELDS, tagged=tagged) for tagged in (None, *PAIR)]
        assert [store.tags.keys() for store in stores] == [set(), {"source"}, {"target"}]

    def test_a_tag_that_is_not_in_the_vocabulary_is_an_error(self, folder: CorpusFolder) -> None:
        corpus = folder.write([("a", "b")]).model_copy(update={"tag": "<2xx>"})
        with pytest.raises(ValueError, match=r"'<2xx>' is not in the source vocabulary.*text\.symbols"):
            folder.store(corpus, self.FIELDS, tagged="source")


def test_text_is_kept_unchanged(folder: CorpusFolder) -> None:
    records = [("ein \u2028 Satz ", "a sentence"), ("x", "x"), ("\0 تجربة", "🙂")]
    store = folder.store(folder.write(records), text=True)
    assert store.text(np.array([1, 0])) == {
        "source": ["\0 تجربة", "ein \u2028 Satz "],
        "target": ["🙂", "a sentence"],
    }


def test_without_filters_every_record_is_kept(folder: CorpusFolder) -> None:
    records = [("", ""), ("a", ""), ("a", "a"), ("a", "a"), ("a", "b" * 999)]
    store = folder.store(folder.write(records), drop=(), longest=5)
    assert (len(store), store.longest) == (5, {"source": 1, "target": 999})
    assert store.report.dropped == {}


def test_a_corpus_of_empty_records_makes_a_store(folder: CorpusFolder) -> None:
    store = folder.store(folder.write([("", "")] * 3), drop=(), text=True)
    assert records_in(store) == [([], [])] * 3
    for rows in store.gather(np.arange(3)).values():
        assert (rows.ids.tolist(), rows.offsets.tolist()) == ([], [0] * 4)
    assert texts_in(store) == [("", "")] * 3


def test_a_megabyte_line_is_dropped_or_kept_whole(folder: CorpusFolder) -> None:
    corpus = folder.write([("a" * 1_000_000, "b" * 1_000_000), ("a", "b")])
    assert folder.store(corpus, longest=10).longest == {"source": 1, "target": 1}
    assert folder.store(corpus, drop=()).longest == {"source": 1_000_000, "target": 1_000_000}


def test_if_every_record_is_dropped_the_error_has_the_counts(folder: CorpusFolder) -> None:
    with pytest.raises(ValueError, match=r"dropped all 3 records of .*pairs\.tsv \(empty 2, copy 1\)"):
        folder.store(folder.write([("", "a"), ("a", ""), ("a", "a")]))
    assert not list(folder.stores.iterdir())


@pytest.mark.parametrize("drop", [("duplicate",), ()])
def test_a_broken_corpus_leaves_nothing_in_the_cache(folder: CorpusFolder, drop: tuple[str, ...]) -> None:
    corpus = folder.write(VARIED)
    with (folder.root / corpus.path).open("a") as file:
        file.write("no tab\n")
    with pytest.raises(ValueError, match=f"line {len(VARIED) + 1}: 1 tab-separated column"):
        folder.store(corpus, drop=drop)
    assert not list(folder.stores.iterdir())


def test_an_interrupted_build_leaves_nothing_in_the_cache(folder: CorpusFolder) -> None:
    corpus = folder.write(VARIED)

    def interrupt(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    data = Data(root=str(folder.root), train=(corpus,))
    with pytest.raises(KeyboardInterrupt):
        build_store(corpus, data, letters(), cache=folder.root / "cache", progress=interrupt)
    assert not list(folder.stores.iterdir())


def test_a_store_is_found_again_and_not_rebuilt(folder: CorpusFolder) -> None:
    corpus = folder.write([("a", "b")])
    first = folder.store(corpus)
    assert folder.store(corpus).folder == first.folder
    assert folder.built == 1


Change = Callable[[CorpusFolder, TsvCorpus], Store]
RECORDS = [("aa", "bbb"), ("aa", "bbb"), ("c", "ddddddd")]


def touched(folder: CorpusFolder, corpus: TsvCorpus) -> Store:
    os.utime(folder.root / corpus.path, (1, 1))
    return folder.store(corpus)


def rewritten(folder: CorpusFolder, corpus: TsvCorpus) -> Store:
    folder.write(RECORDS)
    return folder.store(corpus)


@pytest.mark.parametrize(
    "change",
    [
        touched,
        rewritten,
        lambda folder, corpus: folder.store(folder.write(RECORDS, "other name.tsv")),
        lambda folder, corpus: folder.store(corpus.model_copy(update={"weight": 3.0})),
        lambda folder, corpus: folder.store(corpus, drop=("duplicate", "copy", "ratio", "long", "empty")),
        lambda folder, corpus: folder.store(corpus, workers=1),
        lambda folder, corpus: folder.store(corpus, order="length"),
        lambda folder, corpus: folder.store(corpus, documents="paragraph"),  # is for records of one text
        lambda folder, corpus: folder.store(corpus, block=9),
        lambda folder, corpus: folder.store(corpus.model_copy(update={"path": str(folder.root / corpus.path)})),
    ],
)
def test_what_does_not_change_the_store_does_not_rebuild_it(folder: CorpusFolder, change: Change) -> None:
    corpus = folder.write(RECORDS)
    before = folder.store(corpus)
    assert change(folder, corpus).folder == before.folder
    assert folder.built == 1


def edited(folder: CorpusFolder, corpus: TsvCorpus) -> Store:
    """Change the contents, but neither size nor date."""
    path = folder.root / corpus.path
    stat = path.stat()
    path.write_text(path.read_text().replace("aa", "ee"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return folder.store(corpus)


@pytest.mark.parametrize(
    "change",
    [
        edited,
        lambda folder, corpus: folder.store(folder.write(RECORDS[::-1])),
        lambda folder, corpus: folder.store(corpus, drop=("empty",)),
        lambda folder, corpus: folder.store(corpus, longest=6),
        lambda folder, corpus: folder.store(corpus, ratio=2.0),
        lambda folder, corpus: folder.store(corpus, text=True),
        lambda folder, corpus: folder.store(corpus.model_copy(update={"columns": (2, 1)})),
        lambda folder, corpus: folder.store(corpus, letters(source=Letters(shift=5))),
        lambda folder, corpus: folder.store(corpus, letters(target=Letters(shift=5))),
        lambda folder, corpus: folder.store(corpus, letters("question", "answer")),
        lambda folder, corpus: folder.store(corpus, letters("source")),
    ],
)
def test_what_changes_the_store_builds_another(folder: CorpusFolder, change: Change) -> None:
    corpus = folder.write(RECORDS)
    before = folder.store(corpus)
    assert change(folder, corpus).folder != before.folder
    assert folder.built == 2


def test_the_unit_of_a_document_changes_the_store(folder: CorpusFolder) -> None:
    (folder.root / "a").write_text("one\ntwo\n\nthree\n")
    corpus = TextCorpus(files={"text": "a"})
    texts = {}
    for documents in ("line", "paragraph", "file"):
        store = folder.store(corpus, letters("text"), text=True, documents=documents)
        texts[documents] = [text for (text,) in texts_in(store)]
    assert texts == {
        "line": ["one", "two", "three"],
        "paragraph": ["one\ntwo", "three"],
        "file": ["one\ntwo\n\nthree\n"],
    }
    assert folder.built == 3


def test_a_setting_of_a_filter_that_is_off_does_not_rebuild(folder: CorpusFolder) -> None:
    corpus = folder.write(RECORDS)
    before = folder.store(corpus, drop=("empty",), longest=10, ratio=2.0)
    assert folder.store(corpus, drop=("empty",), longest=20, ratio=3.0).folder == before.folder


@pytest.mark.parametrize("name", ["manifest.json", "source.ids", "target.offsets", "target.lengths"])
def test_a_damaged_store_is_rebuilt_with_a_warning(
    folder: CorpusFolder, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = folder.write(VARIED)
    store = folder.store(corpus)
    whole = contents(store)
    path = store.folder / name
    path.write_bytes(path.read_bytes()[:-5])
    with caplog.at_level(logging.WARNING, "regard"):
        assert contents(folder.store(corpus)) == whole
    assert folder.built == 2
    [warning] = caplog.messages
    assert str(path) in warning
    assert "rebuilt" in warning


@pytest.mark.parametrize("name", ["manifest.json", "source.ids", "target.offsets", "target.lengths", "source.text"])
@pytest.mark.parametrize("at", [0.0, 0.5, 0.99])
def test_a_store_with_a_changed_byte_is_rebuilt(folder: CorpusFolder, name: str, at: float) -> None:
    corpus = folder.write(VARIED)
    store = folder.store(corpus, text=True)
    whole = contents(store)
    path = store.folder / name
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1
    path.write_bytes(data)
    assert contents(folder.store(corpus, text=True)) == whole
    assert folder.built == 2


def test_a_store_of_an_earlier_build_without_checksums_is_used(folder: CorpusFolder) -> None:
    corpus = folder.write(VARIED)
    path = folder.store(corpus).folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["checksums"]
    path.write_text(json.dumps(manifest))
    assert folder.store(corpus).folder == path.parent
    assert folder.built == 1


def test_a_store_of_version_1_is_not_misread(folder: CorpusFolder, caplog: pytest.LogCaptureFixture) -> None:
    corpus = folder.write(RECORDS)
    store = folder.store(corpus)
    whole = contents(store)
    # As version 1 wrote it: a manifest with a part for each side. Its fingerprint was another; this is the worst case.
    manifest = json.loads(whole["manifest.json"])
    old = {
        "version": 1,
        "pairs": manifest["records"],
        "tag": None,
        **{name: manifest["fields"][name] for name in PAIR},
        "report": manifest["report"],
    }
    (store.folder / "manifest.json").write_text(json.dumps(old))
    with caplog.at_level(logging.WARNING, "regard"):
        assert contents(folder.store(corpus)) == whole
    assert "of another version" in caplog.text


def test_the_remains_of_a_killed_build_are_removed(folder: CorpusFolder) -> None:
    corpus = folder.write(RECORDS)
    store = folder.store(corpus)
    for name in (store.folder.name, "0123"):
        (store.folder.parent / f"{name}.building-abcd").mkdir()
        (store.folder.parent / f"{name}.building-abcd" / "source.ids").write_bytes(b"half")
    (store.folder / "manifest.json").unlink()
    folder.store(corpus)
    assert folder.remains() == []


def test_every_kind_of_file_makes_the_same_store(folder: CorpusFolder) -> None:
    records = list(dict.fromkeys(VARIED))
    tsv = records_in(folder.store(folder.write(records)))
    for name, column in (("a.gz", 0), ("b.gz", 1)):
        with gzip.open(folder.root / name, "wt", encoding="utf-8") as file:
            file.writelines(f"{record[column]}\n" for record in records)
    lines = [json.dumps(dict(zip(PAIR, record, strict=True))) + "\n" for record in records]
    (folder.root / "c.jsonl").write_text("".join(lines))
    assert records_in(folder.store(TextCorpus(files={"source": "a.gz", "target": "b.gz"}))) == tsv
    assert records_in(folder.store(JsonlCorpus(path="c.jsonl"))) == tsv
    assert folder.built == 3


def test_the_store_of_a_phrasebook_depends_on_its_settings_and_the_seed(tmp_path: Path) -> None:
    def generated(pairs: int, seed: int) -> Store:
        corpus = PhrasebookCorpus(to="de", pairs=pairs)
        return build_store(corpus, Data(train=(corpus,)), letters(), cache=tmp_path, seed=seed, keep_text=True)

    store = generated(pairs=60, seed=1)
    assert texts_in(store) == list(Reader(PAIR, tmp_path, seed=1).records(PhrasebookCorpus(to="de", pairs=60)))
    assert len(store) == 60
    assert generated(pairs=60, seed=1).folder == store.folder
    assert generated(pairs=59, seed=1).folder != store.folder
    assert generated(pairs=60, seed=2).folder != store.folder


def test_files_do_not_depend_on_the_seed(folder: CorpusFolder) -> None:
    corpus = folder.write(RECORDS)
    identities = [identity(corpus, Reader(PAIR, folder.root, seed), folder.root / "cache") for seed in (1, 2)]
    assert identities[0] == identities[1]


def test_a_real_corpus_with_a_real_tokenizer(tmp_path: Path, shared_data: Path) -> None:
    corpus = TextCorpus(files={"source": "dev.en.gz", "target": "dev.ar.gz"})
    root = shared_data / "tatoeba-en-ar"
    pairs = list(Reader(PAIR, root).records(corpus))
    tokenizers = Tokenizers.learn(pairs, size=1000)
    data = Data(root=str(root), train=(corpus,))
    store = build_store(corpus, data, with_tokenizers(tokenizers), cache=tmp_path, keep_text=True, workers=2)
    kept = texts_in(store)
    assert store.report.kept == len(kept) > 0.9 * len(pairs)
    assert records_in(store) == [(tokenizers["source"].encode(s), tokenizers["target"].encode(t)) for s, t in kept]
