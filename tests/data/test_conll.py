"""Files of tagged sentences become their words and tags; an error names the file, the line and what to do."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.build import build_store
from regard.data.corpus import CHUNK, Reader
from regard.data.fields import Fields, TagsField, WordsField
from regard.data.fields.lists import join_list, split_list
from regard.recipe import ConllCorpus, ConlluCorpus, Corpus, Data, TsvCorpus, parse
from regard.text import Tokenizer

FIELDS = ("words", "tags")
CONLLU = """\
# sent_id = 1
# text = Don't see 10 000 cats
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\tMood=Ind|Number=Plur\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tsee\tsee\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\t_
4\t10 000\t10000\tNUM\tCD\tNumType=Card\t5\tnummod\t_\t_
5\tcats\tcat\tNOUN\tNNS\tNumber=Plur\t3\tobj\t_\t_
5.1\tthere\tthere\tADV\tRB\t_\t_\t_\t_\t_


# sent_id = 2
1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_
"""
WORDS = [["Do", "n't", "see", "10 000", "cats"], ["#"]]


def read(corpus: Corpus, root: Path) -> list[tuple[list[str], list[str]]]:
    return [(split_list(words), split_list(tags)) for words, tags in Reader(FIELDS, root).records(corpus)]


def fields() -> Fields:
    tokenizer = Tokenizer.learn(["a cat sees 10 000 dogs"], 300)
    return Fields({"words": WordsField(tokenizer), "tags": TagsField(("DET", "NOUN", "VERB"))})


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("upos", [["AUX", "PART", "VERB", "NUM", "NOUN"], ["SYM"]]),
        ("xpos", [["VBP", "RB", "VB", "CD", "NNS"], ["NN"]]),
        ("deprel", [["aux", "advmod", "root", "nummod", "obj"], ["root"]]),
        ("Number", [["Plur", "_", "_", "_", "Plur"], ["_"]]),
    ],
)
@pytest.mark.parametrize(("ends", "zipped"), [("\n", False), ("\r\n", False), ("\n", True)])
def test_conllu_has_words_without_ranges_empty_nodes_and_comments(
    tmp_path: Path, column: str, tags: list[list[str]], ends: str, zipped: bool
) -> None:
    data = CONLLU.replace("\n", ends).encode()
    path = tmp_path / ("x.conllu.gz" if zipped else "x.conllu")
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert read(ConlluCorpus(path=path.name, column=column), tmp_path) == list(zip(WORDS, tags, strict=True))


def test_chunks_know_the_line_on_which_each_sentence_begins(tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text(CONLLU, encoding="utf-8")
    chunks = list(Reader(FIELDS, tmp_path).chunks(ConlluCorpus(path="x.conllu")))
    lines = [(chunk.first + at, chunk.line(at)) for chunk in chunks for at in range(len(chunk))]
    assert lines == [(1, 4), (2, 13)]


@pytest.mark.parametrize(
    ("line", "number", "complaint"),
    [
        ("3\tsee\tsee\tVERB", 6, "4 tab-separated columns, but a line of CoNLL-U has 10; fix the line, or set kind"),
        ("x\tsee\t_\tVERB\t_\t_\t_\t_\t_\t_", 6, "the first column is 'x', but must be the number of a word"),
        ("4\tsee\t_\tVERB\t_\t_\t_\t_\t_\t_", 6, "word 4 follows word 2; words are numbered 1, 2, 3, and a blank line"),
        ("3\t \t_\tVERB\t_\t_\t_\t_\t_\t_", 6, "the word is blank"),
        ("3\tsee\t_\t\t_\t_\t_\t_\t_\t_", 6, "the tag is blank; write it, or `_` in its place"),
    ],
)
def test_a_malformed_line_of_conllu_is_an_error(tmp_path: Path, line: str, number: int, complaint: str) -> None:
    lines = CONLLU.splitlines()
    lines[number - 1] = line
    (tmp_path / "x.conllu").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"x\.conllu, line {number}: {complaint}"):
        read(ConlluCorpus(path="x.conllu"), tmp_path)


def test_a_file_without_words_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text("# nothing\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match="The corpus is empty"):
        read(ConlluCorpus(path="x.conllu"), tmp_path)


def test_columns_of_conll_2003_are_read_without_document_lines(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n# NN B-NP O\n"
    (tmp_path / "eng.conll").write_text(text, encoding="utf-8")
    assert read(ConllCorpus(path="eng.conll", columns=(1, 4)), tmp_path) == [
        (["EU", "rejects"], ["B-ORG", "O"]),
        (["#"], ["O"]),
    ]


def test_words_in_columns_separated_by_tabs_may_contain_spaces(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("New York\tPROPN\nsleeps\tVERB\n\n\nIt\tPRON", encoding="utf-8")
    assert read(ConllCorpus(path="x.conll"), tmp_path) == [
        (["New York", "sleeps"], ["PROPN", "VERB"]),
        (["It"], ["PRON"]),
    ]


def test_a_line_with_too_few_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("a\tDET\n\ncat NOUN\ndog\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"x\.conll, line 4: 1 column, but columns = \[1, 2\] needs 2; fix the line, or name"
    ):
        read(ConllCorpus(path="x.conll"), tmp_path)


WORD = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).map(str.strip).filter(bool)


@given(st.lists(st.lists(st.tuples(WORD, WORD), min_size=1), min_size=1))
def test_any_words_and_tags_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str, str]]]
) -> None:
    root = tmp_path_factory.mktemp("conll")
    # A first word that starts with U+FEFF would lose it as a byte-order mark, so one is written in front of it.
    text = "\n\n".join("\n".join("\t".join(pair) for pair in sentence) for sentence in sentences)
    (root / "x.conll").write_bytes(b"\xef\xbb\xbf" + text.encode())
    expected = [tuple(map(list, zip(*sentence, strict=True))) for sentence in sentences]
    assert read(ConllCorpus(path="x.conll"), root) == [pair for pair in expected if pair[0] != ["-DOCSTART-"]]


def test_sentences_beyond_a_chunk_keep_their_lines(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("a\tDET\n\n" * (CHUNK + 2), encoding="utf-8")
    chunks = list(Reader(FIELDS, tmp_path).chunks(ConllCorpus(path="x.conll")))
    assert [(chunk.first, chunk.line(0)) for chunk in chunks] == [(1, 1), (CHUNK + 1, 2 * CHUNK + 1)]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("x.tsv", "a cat\tDET NOUN\nsees a dog\tVERB DET\n", 2),
        (
            "x.jsonl",
            "".join(json.dumps({"words": ["a", w], "tags": ["DET"] * n}) + "\n" for w, n in (("b", 2), ("c", 1))),
            2,
        ),
    ],
)
def test_unequal_numbers_of_words_and_tags_are_an_error_that_names_the_line(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    recipe = parse("task = 'tagging'\n[data]\ntrain = [{ path = '" + name + "' }]", [f"data.root='{tmp_path}'"])
    with pytest.raises(ValueError, match=rf"{name}, line {line}: \d words and \d tags?; give one tag for each word"):
        build_store(recipe.data.train[0], recipe.data, fields(), cache=tmp_path / "cache", workers=1)


def test_unequal_lines_of_parallel_files_are_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "x.words").write_text("a cat\na dog\n", encoding="utf-8")
    (tmp_path / "x.tags").write_text("DET NOUN\nDET\n", encoding="utf-8")
    recipe = parse(
        "task = 'tagging'\n[data]\ntrain = [{ words = 'x.words', tags = 'x.tags' }]", [f"data.root='{tmp_path}'"]
    )
    with pytest.raises(ValueError, match=r"x\.words or .*x\.tags, line 2: 2 words and 1 tags"):
        build_store(recipe.data.train[0], recipe.data, fields(), cache=tmp_path / "cache", workers=1)


def test_an_unknown_tag_is_an_error_that_names_the_line_of_its_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("a\tDET\ncat\tNOUN\n\na\tDET\ndog\tNUON\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.conll, line 4: the label 'NUON' does not occur"):
        build_store(
            ConllCorpus(path="x.conll"),
            Data(train=(ConllCorpus(path="x.conll"),), root=str(tmp_path)),
            fields(),
            cache=tmp_path / "cache",
            workers=1,
        )


def test_the_name_of_a_file_implies_its_kind() -> None:
    recipe = parse(
        "task = 'tagging'\n[data]\ntrain = [{ path = 'a.conllu.gz', column = 'xpos' }, { path = 'a.conll' }, "
        "{ path = 'a.tsv' }, { kind = 'conll', path = 'eng.train', columns = [1, 4] }]"
    )
    assert recipe.data.train == (
        ConlluCorpus(path="a.conllu.gz", column="xpos"),
        ConllCorpus(path="a.conll"),
        TsvCorpus(path="a.tsv"),
        ConllCorpus(path="eng.train", columns=(1, 4)),
    )


@pytest.mark.parametrize(
    ("task", "corpus", "complaint"),
    [
        ("translation", "path = 'a.conllu'", "data.train.0.kind = 'conllu' has words and tags, but this task has the"),
        ("tagging", "path = 'a.conllu', column = 'lemma'", "column"),
        ("tagging", "path = 'a.conllu', tag = '<2de>'", "data.train.0.tag is for task = 'translation'; remove it"),
        ("tagging", "path = 'a.conll', columns = [1]", "columns"),
    ],
)
def test_a_corpus_that_does_not_fit_is_refused(task: str, corpus: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(f"task = '{task}'\n[data]\ntrain = [{{ {corpus} }}]")


def test_dropped_sentences_are_reported_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("a\tDET\n\n" + "cat\tNOUN\n" * 20, encoding="utf-8")
    corpus = ConllCorpus(path="x.conll")
    data = Data(train=(corpus,), root=str(tmp_path), longest=10)
    store = build_store(corpus, data, fields(), cache=tmp_path / "cache", workers=1)
    assert [example.line for example in store.report.examples["long"]] == [3]
    assert join_list(["cat"] * 20)[:3] == store.report.examples["long"][0].values["words"][:3]
