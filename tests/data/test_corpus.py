"""Corpora of every kind become the pairs that were written; broken ones say what is wrong and where."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import CHUNK, Pair, corpus_files, read_chunks, read_pairs
from regard.recipe import Corpus, JsonlCorpus, PhrasebookCorpus, TextCorpus, TsvCorpus

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"))
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1)
SUFFIX = st.sampled_from(["", ".gz"])


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def numbered(pairs: Sequence[tuple[str, str]]) -> list[Pair]:
    return [Pair(source, target, line) for line, (source, target) in enumerate(pairs, start=1)]


@given(pairs=PAIRS, suffix=SUFFIX)
def test_two_files_give_the_pairs_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], suffix: str
) -> None:
    root = tmp_path_factory.mktemp("text")
    # A first line that starts with U+FEFF would lose it as a byte-order mark, so one is written in front of it.
    write(root / f"a{suffix}", "\ufeff" + "".join(f"{source}\n" for source, _ in pairs))
    write(root / f"b{suffix}", "\ufeff" + "".join(f"{target}\r\n" for _, target in pairs))
    corpus = TextCorpus(source=f"a{suffix}", target=f"b{suffix}")
    assert list(read_pairs(corpus, root)) == numbered(pairs)


@given(pairs=PAIRS, suffix=SUFFIX)
def test_tab_separated_columns_give_the_pairs_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], suffix: str
) -> None:
    pairs = [(source.replace("\t", " "), target.replace("\t", " ")) for source, target in pairs]
    root = tmp_path_factory.mktemp("tsv")
    write(root / f"a.tsv{suffix}", "".join(f"id\t{target}\t{source}\tmore\tand more\n" for source, target in pairs))
    corpus = TsvCorpus(path=f"a.tsv{suffix}", columns=(3, 2))
    assert list(read_pairs(corpus, root)) == numbered(pairs)


@given(
    pairs=st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]))] * 2), min_size=1),
    suffix=SUFFIX,
    ascii_only=st.booleans(),
)
def test_json_lines_give_the_pairs_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], suffix: str, ascii_only: bool
) -> None:
    root = tmp_path_factory.mktemp("jsonl")
    objects = ({"en": source, "de": target, "n": 1} for source, target in pairs)
    write(root / f"a{suffix}", "".join(json.dumps(each, ensure_ascii=ascii_only) + "\n" for each in objects))
    corpus = JsonlCorpus(path=f"a{suffix}", keys=("en", "de"))
    assert list(read_pairs(corpus, root)) == numbered(pairs)


def test_chunks_are_bounded_and_lose_nothing_where_blocks_of_the_files_do_not_match(tmp_path: Path) -> None:
    size = 3 * CHUNK + 17
    write(tmp_path / "a", "".join(f"{i}\n" for i in range(size)))
    write(tmp_path / "b", "".join(f"{i} {'long ' * 30}\n" for i in range(size)))
    chunks = list(read_chunks(TextCorpus(source="a", target="b"), tmp_path))
    assert max(map(len, chunks)) <= CHUNK
    numbers = [chunk.first + i for chunk in chunks for i in range(len(chunk))]
    assert numbers == list(range(1, size + 1))
    assert [int(s) for chunk in chunks for s in chunk.source] == list(range(size))
    assert [int(t.split()[0]) for chunk in chunks for t in chunk.target] == list(range(size))


def test_one_very_long_line_beside_many_short_ones(tmp_path: Path) -> None:
    write(tmp_path / "a", "x" * 3_000_000 + "\n" + "y\n" * 5000)
    write(tmp_path / "b", "z\n" * 5001)
    pairs = list(read_pairs(TextCorpus(source="a", target="b"), tmp_path))
    assert len(pairs) == 5001
    assert pairs[0].source == "x" * 3_000_000


@pytest.mark.parametrize(("left", "right"), [("a\nb\nc\n", "1\n2\n"), ("a\nb\n", "1\n2\n3"), ("a\nb\n", "1\n2\n\n")])
def test_unequal_line_counts_name_both_files_and_both_counts(tmp_path: Path, left: str, right: str) -> None:
    write(tmp_path / "left", left)
    write(tmp_path / "right.gz", right)
    with pytest.raises(ValueError, match=r"has 3 lines but .* has 2: line 3 has no partner") as caught:
        list(read_pairs(TextCorpus(source="left", target="right.gz"), tmp_path))
    assert str(tmp_path / "left") in str(caught.value)
    assert str(tmp_path / "right.gz") in str(caught.value)


def test_unequal_line_counts_are_counted_through_many_blocks(tmp_path: Path) -> None:
    write(tmp_path / "left", "only\n")
    write(tmp_path / "right", "and another line\n" * 200_000)
    with pytest.raises(ValueError, match=r"right has 200,000 lines but .*left has 1: line 2 "):
        list(read_pairs(TextCorpus(source="left", target="right"), tmp_path))


def test_the_phrasebook_gives_as_many_distinct_pairs_as_asked_for_by_seed(tmp_path: Path) -> None:
    corpus = PhrasebookCorpus(to="fr", pairs=50)
    pairs = list(read_pairs(corpus, tmp_path, seed=3))
    assert [pair.line for pair in pairs] == list(range(1, 51))
    assert len({pair.source for pair in pairs}) == 50
    assert list(read_pairs(corpus, tmp_path, seed=3)) == pairs
    assert list(read_pairs(corpus, tmp_path, seed=4)) != pairs


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "none", "")
    for corpus in (TextCorpus(source="none", target="none"), TsvCorpus(path="none"), JsonlCorpus(path="none")):
        with pytest.raises(ValueError, match="none has no lines"):
            list(read_pairs(corpus, tmp_path))


def test_a_missing_file_is_named_with_its_root_and_near_names(tmp_path: Path) -> None:
    write(tmp_path / "train.en.gz", "a")
    with pytest.raises(ValueError, match=r"train\.en does not exist .*Did you mean train\.en\.gz\?") as caught:
        corpus_files(TextCorpus(source="train.en", target="train.de"), tmp_path)
    assert f"data.root is '{tmp_path}'" in str(caught.value)


def test_a_missing_file_with_no_near_name_shows_what_is_there(tmp_path: Path) -> None:
    corpus = TsvCorpus(path="pairs.tsv")
    with pytest.raises(ValueError, match="holds no files"):
        corpus_files(corpus, tmp_path)
    write(tmp_path / "notes", "a")
    with pytest.raises(ValueError, match="holds: notes"):
        corpus_files(corpus, tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"The way to it ends at {tmp_path}"):
        corpus_files(TsvCorpus(path="no/such/pairs.tsv"), tmp_path)


def test_a_folder_is_not_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder"):
        corpus_files(TsvCorpus(path="."), tmp_path)


def test_an_absolute_path_ignores_the_root(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "x\ty\n")
    assert list(read_pairs(TsvCorpus(path=str(path)), Path("/nowhere"))) == [Pair("x", "y", 1)]


@pytest.mark.parametrize(("row", "found"), [("", "1 tab-separated column,"), ("one\ttwo", "2 tab-separated columns,")])
def test_a_row_with_too_few_columns_is_named(tmp_path: Path, row: str, found: str) -> None:
    write(tmp_path / "a.tsv", f"a\tb\tc\nd\te\tf\tg\n{row}\n")
    with pytest.raises(ValueError, match=rf"a\.tsv, line 3: {found} but columns = \[1, 3\] needs 3"):
        list(read_pairs(TsvCorpus(path="a.tsv", columns=(1, 3)), tmp_path))


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
        ('{"source": "a", "target": "b\\ud800c"}', r"'target' holds \\ud800, half of a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    good = '{"source": "a", "target": "\\ud83d\\ude00"}\n'
    write(tmp_path / "a.jsonl", good * 2 + line + "\n" + good)
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 3: .*{complaint}"):
        list(read_pairs(JsonlCorpus(path="a.jsonl"), tmp_path))


def test_line_numbers_in_errors_count_from_the_start_of_the_file_not_the_block(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "some text\tand more\n" * 123_456 + "bad\n")
    with pytest.raises(ValueError, match="line 123457: 1 tab"):
        list(read_pairs(TsvCorpus(path="a.tsv"), tmp_path))


@given(data=st.binary(), kind=st.sampled_from(["text", "tsv", "jsonl"]), suffix=SUFFIX)
def test_random_bytes_give_pairs_of_real_text_or_an_error_with_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: str, suffix: str
) -> None:
    root = tmp_path_factory.mktemp("fuzz")
    write(root / f"a{suffix}", data)
    write(root / "b", "text\n")
    corpora: dict[str, Corpus] = {
        "text": TextCorpus(source=f"a{suffix}", target="b"),
        "tsv": TsvCorpus(path=f"a{suffix}"),
        "jsonl": JsonlCorpus(path=f"a{suffix}"),
    }
    found = pairs_or_complaint(corpora[kind], root)
    if isinstance(found, str):
        assert str(root / f"a{suffix}") in found
    else:
        assert all((pair.source + pair.target).encode() is not None for pair in found)


def pairs_or_complaint(corpus: Corpus, root: Path) -> list[Pair] | str:
    try:
        return list(read_pairs(corpus, root))
    except ValueError as error:
        return str(error)


def test_a_real_arabic_corpus_is_read_whole(shared_data: Path) -> None:
    corpus = TextCorpus(source="train.en.gz", target="train.ar.gz")
    pairs = list(read_pairs(corpus, shared_data / "tatoeba-en-ar"))
    with gzip.open(shared_data / "tatoeba-en-ar" / "train.ar.gz", "rt", encoding="utf-8", newline="\n") as file:
        assert [pair.target for pair in pairs] == [line.rstrip("\r\n") for line in file]
    assert any("\u0600" <= char <= "\u06ff" for char in pairs[0].target)
