"""Corpora of every kind become the records that were written; an error names the file and the line."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import CHUNK, Reader
from regard.recipe import Corpus, Data, JsonlCorpus, PhrasebookCorpus, TextCorpus, TsvCorpus

Record = tuple[str, ...]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"))
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SUFFIX = st.sampled_from(["", ".gz"])
PAIR = ("source", "target")
FIELDS = {1: ("text",), 2: PAIR, 3: ("question", "answer", "label")}


def records_of(value: st.SearchStrategy[str]) -> st.SearchStrategy[list[Record]]:
    """Records of one, two or three values."""
    return st.integers(1, 3).flatmap(lambda fields: st.lists(st.tuples(*[value] * fields), min_size=1))


def pair_files(source: str, target: str) -> TextCorpus:
    return TextCorpus(files={"source": source, "target": target})


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def read(corpus: Corpus, root: Path, fields: tuple[str, ...] = PAIR, documents: str = "line") -> list[Record]:
    """The records of a corpus, whose numbers must be consecutive from 1."""
    reader = Reader(fields, root, documents=documents)
    numbers = [chunk.first + i for chunk in reader.chunks(corpus) for i in range(len(chunk))]
    records = list(reader.records(corpus))
    assert numbers == list(range(1, len(records) + 1))
    return records


@given(records=records_of(TEXT), suffix=SUFFIX)
def test_parallel_text_files_give_the_records_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], suffix: str
) -> None:
    root = tmp_path_factory.mktemp("text")
    fields = FIELDS[len(records[0])]
    for at, name in enumerate(fields):
        # A first line that starts with U+FEFF would lose it as a byte-order mark, so one is written in front of it.
        end = "\n" if at else "\r\n"
        write(root / f"{name}{suffix}", "\ufeff" + "".join(f"{record[at]}{end}" for record in records))
    # The order of the files in the recipe does not matter: their names say which field they are.
    corpus = TextCorpus(files={name: f"{name}{suffix}" for name in reversed(fields)})
    assert read(corpus, root, fields) == records


@given(records=records_of(TEXT), suffix=SUFFIX)
def test_tab_separated_columns_give_the_records_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], suffix: str
) -> None:
    records = [tuple(value.replace("\t", " ") for value in record) for record in records]
    fields = FIELDS[len(records[0])]
    root = tmp_path_factory.mktemp("tsv")
    name = f"a.tsv{suffix}"
    write(root / name, "".join("\t".join(["id", *reversed(record), "more", "and more"]) + "\n" for record in records))
    columns = tuple(range(1 + len(fields), 1, -1))
    assert read(TsvCorpus(path=name, columns=columns), root, fields) == records


@given(records=records_of(ANY_TEXT), suffix=SUFFIX, ascii_only=st.booleans())
def test_json_lines_give_the_records_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], suffix: str, ascii_only: bool
) -> None:
    root = tmp_path_factory.mktemp("jsonl")
    fields = FIELDS[len(records[0])]
    keys = tuple(f"my {name}" for name in fields)
    objects = (dict(zip(keys, record, strict=True)) | {"n": 1} for record in records)
    write(root / f"a{suffix}", "".join(json.dumps(value, ensure_ascii=ascii_only) + "\n" for value in objects))
    corpus = JsonlCorpus(path=f"a{suffix}", keys=keys)
    assert read(corpus, root, fields) == records


@pytest.mark.parametrize("fields", FIELDS.values())
def test_columns_and_keys_are_by_default_those_of_the_fields(tmp_path: Path, fields: tuple[str, ...]) -> None:
    values = tuple(f"a {name}" for name in fields)
    write(tmp_path / "a.tsv", "\t".join([*values, "more"]))
    write(tmp_path / "a.jsonl", json.dumps({"more": "x"} | dict(zip(fields, values, strict=True))))
    assert read(TsvCorpus(path="a.tsv"), tmp_path, fields) == [values]
    assert read(JsonlCorpus(path="a.jsonl"), tmp_path, fields) == [values]


class TestDocuments:
    @given(records=st.lists(TEXT, min_size=1), suffix=SUFFIX)
    def test_each_line_is_a_document_by_default(
        self, tmp_path_factory: pytest.TempPathFactory, records: list[str], suffix: str
    ) -> None:
        root = tmp_path_factory.mktemp("line")
        write(root / f"a{suffix}", "\ufeff" + "".join(f"{line}\n" for line in records))
        corpus = TextCorpus(files={"text": f"a{suffix}"})
        assert read(corpus, root, ("text",)) == [(line,) for line in records]

    @given(
        paragraphs=st.lists(st.lists(TEXT.filter(str.strip), min_size=1, max_size=4), min_size=1, max_size=6),
        blank=st.sampled_from(["\n", " \t\n", "\n\n \n"]),
        end=st.sampled_from(["", "\n", "\n\n"]),
    )
    def test_blank_lines_separate_paragraphs(
        self, tmp_path_factory: pytest.TempPathFactory, paragraphs: list[list[str]], blank: str, end: str
    ) -> None:
        root = tmp_path_factory.mktemp("paragraph")
        text = f"\n{blank}".join("\n".join(lines) for lines in paragraphs)
        write(root / "a", f"\ufeff{blank}{text}{end}")
        documents = read(TextCorpus(files={"text": "a"}), root, ("text",), "paragraph")
        assert documents == [("\n".join(lines),) for lines in paragraphs]

    def test_a_paragraph_may_span_blocks_of_the_file(self, tmp_path: Path) -> None:
        lines = [f"{number} {'long ' * 30}" for number in range(20_000)]  # three megabytes
        write(tmp_path / "a", "\n".join(lines) + "\n\nend\n")
        documents = read(TextCorpus(files={"text": "a"}), tmp_path, ("text",), "paragraph")
        assert documents == [("\n".join(lines),), ("end",)]

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_a_whole_file_is_one_document(self, tmp_path: Path, suffix: str) -> None:
        write(tmp_path / f"a{suffix}", "\ufeffone\r\n\r\n  two\nthree\n")
        corpus = TextCorpus(files={"text": f"a{suffix}"})
        assert read(corpus, tmp_path, ("text",), "file") == [("one\n\n  two\nthree\n",)]

    @pytest.mark.parametrize(("documents", "text"), [("line", ""), ("file", ""), ("paragraph", "\n \n\n")])
    def test_a_file_without_documents_is_an_error(self, tmp_path: Path, documents: str, text: str) -> None:
        write(tmp_path / "none", text)
        with pytest.raises(ValueError, match="The corpus is empty"):
            read(TextCorpus(files={"text": "none"}), tmp_path, ("text",), documents)

    def test_documents_are_for_records_of_one_text(self) -> None:
        data = Data(train=(TextCorpus(files={"text": "a"}),), documents="paragraph")
        assert Reader.of(data, ("text",)).documents == "paragraph"
        assert Reader.of(data, PAIR).documents == "line"

    def test_columns_and_keys_are_documents_whatever_the_setting(self, tmp_path: Path) -> None:
        write(tmp_path / "a.tsv", "one\n\ntwo\n")
        write(tmp_path / "a.jsonl", '{"text": "one\\n\\ntwo"}\n')
        assert read(TsvCorpus(path="a.tsv"), tmp_path, ("text",), "paragraph") == [("one",), ("",), ("two",)]
        assert read(JsonlCorpus(path="a.jsonl"), tmp_path, ("text",), "paragraph") == [("one\n\ntwo",)]


def test_chunks_are_bounded_and_lose_nothing_if_blocks_of_the_files_do_not_match(tmp_path: Path) -> None:
    size = 3 * CHUNK + 17
    write(tmp_path / "a", "".join(f"{number}\n" for number in range(size)))
    write(tmp_path / "b", "".join(f"{number} {'long ' * 30}\n" for number in range(size)))
    write(tmp_path / "c", "".join(f"{number} {'mid ' * 9}\n" for number in range(size)))
    corpus = TextCorpus(files={"question": "a", "answer": "b", "label": "c"})
    chunks = list(Reader(FIELDS[3], tmp_path).chunks(corpus))
    assert max(map(len, chunks)) <= CHUNK
    numbers = [chunk.first + i for chunk in chunks for i in range(len(chunk))]
    assert numbers == list(range(1, size + 1))
    for name in FIELDS[3]:
        assert [int(text.split()[0]) for chunk in chunks for text in chunk.columns[name]] == list(range(size))


def test_one_very_long_line_beside_many_short_ones(tmp_path: Path) -> None:
    write(tmp_path / "a", "x" * 3_000_000 + "\n" + "y\n" * 5000)
    write(tmp_path / "b", "z\n" * 5001)
    records = read(pair_files("a", "b"), tmp_path)
    assert len(records) == 5001
    assert records[0] == ("x" * 3_000_000, "z")


@pytest.mark.parametrize(("left", "right"), [("a\nb\nc\n", "1\n2\n"), ("a\nb\n", "1\n2\n3"), ("a\nb\n", "1\n2\n\n")])
def test_unequal_line_counts_name_both_files_and_both_counts(tmp_path: Path, left: str, right: str) -> None:
    write(tmp_path / "left", left)
    write(tmp_path / "right.gz", right)
    with pytest.raises(ValueError, match=r"has 3 lines but .* has 2: line 3 has no counterpart") as caught:
        read(pair_files("left", "right.gz"), tmp_path)
    assert str(tmp_path / "left") in str(caught.value)
    assert str(tmp_path / "right.gz") in str(caught.value)


def test_of_three_unequal_files_the_longest_and_the_shortest_are_named(tmp_path: Path) -> None:
    for name, lines in (("a", 3), ("b", 2), ("c", 9)):
        write(tmp_path / name, "x\n" * lines)
    corpus = TextCorpus(files={"question": "a", "answer": "b", "label": "c"})
    with pytest.raises(ValueError, match=r"c has 9 lines but .*b has 2: line 3 "):
        read(corpus, tmp_path, FIELDS[3])


def test_unequal_line_counts_are_counted_through_many_blocks(tmp_path: Path) -> None:
    write(tmp_path / "left", "only\n")
    write(tmp_path / "right", "and another line\n" * 200_000)
    with pytest.raises(ValueError, match=r"right has 200,000 lines but .*left has 1: line 2 "):
        read(pair_files("left", "right"), tmp_path)


class TestPhrasebook:
    CORPUS = PhrasebookCorpus(to="fr", pairs=50)

    def test_it_has_as_many_distinct_pairs_as_asked_for_by_seed(self, tmp_path: Path) -> None:
        pairs = list(Reader(PAIR, tmp_path, seed=3).records(self.CORPUS))
        assert len({source for source, _ in pairs}) == len(pairs) == 50
        assert list(Reader(PAIR, tmp_path, seed=3).records(self.CORPUS)) == pairs
        assert list(Reader(PAIR, tmp_path, seed=4).records(self.CORPUS)) != pairs

    def test_a_language_model_reads_the_english_side(self, tmp_path: Path) -> None:
        pairs = list(Reader(PAIR, tmp_path).records(self.CORPUS))
        texts = list(Reader(("text",), tmp_path).records(self.CORPUS))
        assert texts == [(source,) for source, _ in pairs]

    def test_it_has_no_third_field(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="generates pairs of texts, but this task has the fields question, answer"):
            list(Reader(FIELDS[3], tmp_path).records(self.CORPUS))


@pytest.mark.parametrize(
    ("corpus", "complaint"),
    [
        (pair_files("a", "b"), "names a file for source and target, but this task needs a file for text"),
        (TsvCorpus(path="a", columns=(1, 2)), r"columns = \[1, 2\] names 2 columns, but this task has the fields text"),
        (JsonlCorpus(path="a", keys=("a", "b")), r"keys = \['a', 'b'\] names 2 keys"),
    ],
)
def test_a_corpus_with_other_fields_than_the_task_is_an_error(tmp_path: Path, corpus: Corpus, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"The corpus {complaint}"):
        read(corpus, tmp_path, ("text",))


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "none", "")
    corpora: list[Corpus] = [pair_files("none", "none"), TsvCorpus(path="none"), JsonlCorpus(path="none")]
    for corpus in corpora:
        with pytest.raises(ValueError, match="none has no lines"):
            read(corpus, tmp_path)


def paths(corpus: Corpus, root: Path) -> tuple[Path, ...]:
    return Reader(PAIR, root).paths(corpus)


def test_a_missing_file_is_named_with_its_root_and_similar_names(tmp_path: Path) -> None:
    write(tmp_path / "train.en.gz", "a")
    with pytest.raises(ValueError, match=r"train\.en does not exist .*Did you mean train\.en\.gz\?") as caught:
        paths(pair_files("train.en", "train.de"), tmp_path)
    assert f"data.root is '{tmp_path}'" in str(caught.value)


def test_a_missing_file_without_a_similar_name_shows_what_exists(tmp_path: Path) -> None:
    corpus = TsvCorpus(path="pairs.tsv")
    with pytest.raises(ValueError, match="contains no files"):
        paths(corpus, tmp_path)
    write(tmp_path / "notes", "a")
    with pytest.raises(ValueError, match="contains: notes"):
        paths(corpus, tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"The last existing folder on its path is {tmp_path}"):
        paths(TsvCorpus(path="no/such/pairs.tsv"), tmp_path)


def test_a_folder_is_not_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder"):
        paths(TsvCorpus(path="."), tmp_path)


def test_an_absolute_path_ignores_the_root(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "x\ty\n")
    assert read(TsvCorpus(path=str(path)), Path("/nowhere")) == [("x", "y")]


@pytest.mark.parametrize(("row", "found"), [("", "1 tab-separated column,"), ("one\ttwo", "2 tab-separated columns,")])
def test_a_row_with_too_few_columns_is_named(tmp_path: Path, row: str, found: str) -> None:
    write(tmp_path / "a.tsv", f"a\tb\tc\nd\te\tf\tg\n{row}\n")
    with pytest.raises(ValueError, match=rf"a\.tsv, line 3: {found} but columns = \[1, 3\] needs 3"):
        read(TsvCorpus(path="a.tsv", columns=(1, 3)), tmp_path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"source": "a", ', "not JSON"),
        ("", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        ("[1, 2]", "an array, but must be an object"),
        ('"text"', "a string, but must be an object"),
        ('{"source": "a", "text": "b"}', "no key 'target'; its keys are: 'source', 'text'"),
        ("{}", "no key 'source'; its keys are: none"),
        ('{"source": "a", "target": null}', "'target' is null, but must be a string"),
        ('{"source": 7, "target": "b"}', "'source' is a number, but"),
        ('{"source": true, "target": "b"}', "'source' is a boolean, but"),
        ('{"source": {}, "target": "b"}', "'source' is an object, but"),
        ('{"source": "a", "target": "b\\ud800c"}', r"'target' contains \\ud800, a lone surrogate"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    good = '{"source": "a", "target": "\\ud83d\\ude00"}\n'
    write(tmp_path / "a.jsonl", good * 2 + line + "\n" + good)
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 3: .*{complaint}"):
        read(JsonlCorpus(path="a.jsonl"), tmp_path)


def test_line_numbers_in_errors_count_from_the_start_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "some text\tand more\n" * 123_456 + "bad\n")
    with pytest.raises(ValueError, match="line 123457: 1 tab"):
        read(TsvCorpus(path="a.tsv"), tmp_path)


@given(
    data=st.binary(),
    kind=st.sampled_from(["text", "tsv", "jsonl", "paragraph", "file"]),
    suffix=SUFFIX,
)
def test_random_bytes_give_records_of_valid_text_or_an_error_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: str, suffix: str
) -> None:
    root = tmp_path_factory.mktemp("fuzz")
    name = f"a{suffix}"
    write(root / name, data)
    write(root / "b", "text\n")
    corpora: dict[str, Corpus] = {
        "text": pair_files(name, "b"),
        "tsv": TsvCorpus(path=name),
        "jsonl": JsonlCorpus(path=name),
    }
    try:
        if kind in corpora:
            records = read(corpora[kind], root)
        else:
            records = read(TextCorpus(files={"text": name}), root, ("text",), kind)
    except ValueError as error:
        assert str(root / name) in str(error)  # noqa: PT017
    else:
        assert all(value.encode() is not None for record in records for value in record)


def test_a_real_arabic_corpus_is_read_completely(shared_data: Path) -> None:
    records = read(pair_files("train.en.gz", "train.ar.gz"), shared_data / "tatoeba-en-ar")
    with gzip.open(shared_data / "tatoeba-en-ar" / "train.ar.gz", "rt", encoding="utf-8", newline="\n") as file:
        assert [target for _, target in records] == [line.rstrip("\r\n") for line in file]
    assert any("\u0600" <= char <= "\u06ff" for char in records[0][1])
