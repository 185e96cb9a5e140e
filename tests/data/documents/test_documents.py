"""Generated documents: what decides their labels, splits, and the corpus of a recipe."""

import hashlib
import itertools
import re
from pathlib import Path

import pytest

from regard.data.build import identity
from regard.data.corpus import Reader
from regard.data.documents import LABEL_SETS, SPLITS, Document, documents, labels, word_spans
from regard.data.documents.tables import FILLER, load_tables
from regard.recipe import DocumentsCorpus
from regard.text.sentences import split_sentences

NEGATION = ("not", "never", "hardly")


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Document]]:
    return {label: list(documents(label, "train", 2000)) for label in LABEL_SETS}


def deciding_texts(document: Document) -> list[str]:
    return [document.text[begin:end] for begin, end in document.deciding_words]


@pytest.mark.parametrize("label", LABEL_SETS)
def test_a_document_has_three_to_twelve_sentences_most_of_them_filler(
    drawn: dict[str, list[Document]], label: str
) -> None:
    lengths = {len(document.sentences) for document in drawn[label]}
    assert lengths == set(range(3, 13))
    assert {len(document.deciding_sentences) for document in drawn[label]} == {1, 2, 3}
    for document in drawn[label]:
        assert 2 * len(document.deciding_sentences) <= len(document.sentences)


@pytest.mark.parametrize("label", LABEL_SETS)
def test_the_sentence_splitter_finds_the_sentences(drawn: dict[str, list[Document]], label: str) -> None:
    for document in drawn[label]:
        assert split_sentences(document.text) == document.sentence_spans


@pytest.mark.parametrize("label", LABEL_SETS)
def test_a_word_of_a_sentence_is_one_word_between_spaces(drawn: dict[str, list[Document]], label: str) -> None:
    for sentence in {sentence for document in drawn[label] for sentence in document.sentences}:
        assert len(word_spans(sentence)) == len(sentence.split())


def test_the_deciding_words_of_a_topic_occur_with_no_other_topic(drawn: dict[str, list[Document]]) -> None:
    topics: dict[str, set[str]] = {}
    for document in drawn["topic"]:
        assert len(deciding_texts(document)) >= 2
        for word in deciding_texts(document):
            topics.setdefault(word, set()).add(document.label)
    assert all(len(names) == 1 for names in topics.values())
    assert set().union(*topics.values()) == set(labels("topic"))
    for document in drawn["topic"]:
        others = set(document.text.replace(".", "").replace(",", "").split()) - set(deciding_texts(document))
        assert not others & set(topics)


@pytest.mark.parametrize("label", LABEL_SETS)
def test_without_its_words_a_sentence_does_not_tell_the_label(label: str) -> None:
    tables = list(load_tables(label).values())
    for role in ("deciding", "filler"):
        frames = [[frame.text for group in getattr(table, role).groups for frame in group] for table in tables]
        assert all(texts == frames[0] for texts in frames)


def test_negation_and_but_decide_the_sentiment(drawn: dict[str, list[Document]]) -> None:
    polar = {
        word: name
        for name, table in load_tables("sentiment").items()
        for group in table.deciding.groups[:1]
        for word in group[0].slots[-1]
    }
    for document in drawn["sentiment"]:
        for number in document.deciding_sentences:
            # The second half counts, and a negation before the word turns it around.
            half = re.split(r", but ", document.sentences[number])[-1].rstrip(".").split()
            (word,) = [word for word in half if word in polar]
            negated = any(name in half for name in NEGATION)
            assert (polar[word] == document.label) != negated
            decides = {word, *(name for name in NEGATION if name in half)}
            decides |= {"but"} if ", but " in document.sentences[number] else set()
            places = word_spans(document.sentences[number])
            marked = {document.sentences[number][slice(*places[word])] for word in document.deciding[number]}
            assert marked == decides


def test_filler_praises_and_blames_independently_of_the_label(drawn: dict[str, list[Document]]) -> None:
    (positive, negative) = (set(table.deciding.groups[0][0].slots[-1]) for table in load_tables("sentiment").values())
    counts = {name: [0, 0] for name in labels("sentiment")}
    for document in drawn["sentiment"]:
        for sentence, decides in zip(document.sentences, document.deciding, strict=True):
            if not decides:
                words = set(re.findall(r"\w+", sentence))
                counts[document.label][0] += len(words & positive)
                counts[document.label][1] += len(words & negative)
    for praise, blame in counts.values():
        assert praise + blame > 2000
        assert abs(praise - blame) < 0.1 * (praise + blame)


@pytest.mark.parametrize("label", LABEL_SETS)
def test_no_deciding_sentence_is_in_two_splits(label: str) -> None:
    deciding = [
        {
            document.sentences[number]
            for document in documents(label, split, 1000)
            for number in document.deciding_sentences
        }
        for split in SPLITS
    ]
    for one, other in itertools.combinations(deciding, 2):
        assert not one & other


@pytest.mark.parametrize("label", LABEL_SETS)
def test_every_deciding_word_of_the_test_split_occurs_in_the_training_split(
    drawn: dict[str, list[Document]], label: str
) -> None:
    trained = {word for document in drawn[label] for word in deciding_texts(document)}
    assert {word for document in documents(label, "test", 300) for word in deciding_texts(document)} <= trained


def test_a_seed_gives_the_same_documents_everywhere_and_another_seed_gives_others() -> None:
    texts = [document.text for document in documents("sentiment", "train", 50, seed=3)]
    assert texts == [document.text for document in documents("sentiment", "train", 50, seed=3)]
    assert not set(texts) & {document.text for document in documents("sentiment", "train", 50, seed=4)}
    assert len(set(texts)) == 50
    # Random.random and BLAKE2 are the same on every machine.
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert digest.startswith("fed01eacdb47fe67")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mood", "train", 1), "no set of labels 'mood'"),
        (("topic", "novel", 1), "no split 'novel'"),
        (("topic", "train", -1), "ask for 0 or more"),
    ],
)
def test_a_wrong_name_is_an_error_that_lists_the_right_ones(arguments: tuple[str, str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        documents(*arguments)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("A line.\n", r"own\.txt:1: this line is before any heading"),
        ("[frames]\n", r"own\.txt:1: a heading is \[words LABEL\]"),
        ("[words a]\nx: one, one\n", r"own\.txt:2: a slot has distinct words"),
        ("[words a]\nx: one\n", r"own\.txt has 1 labels"),
        ("[words a]\nx: one\n[words b]\nx: two\n", "no deciding sentences"),
        ("[words a]\nx: one\n[words b]\nx: two\n[deciding]\nThe {y}.\n", r"own\.txt:6: the slot 'y' has no words"),
        ("[words a]\nx: one\n[words b]\nx: two\n[deciding]\nThe {x\n", r"own\.txt:6: a frame is a sentence with slots"),
    ],
)
def test_a_wrong_table_is_an_error_with_file_and_line(tmp_path: Path, table: str, message: str) -> None:
    (tmp_path / FILLER).write_text("[filler]\nIt rained.\n", encoding="utf-8")
    (tmp_path / "own.txt").write_text(table, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_tables("own", tmp_path)


def test_a_recipe_reads_texts_and_labels() -> None:
    corpus = DocumentsCorpus(label="topic", count=20, split="valid")
    records = list(Reader(("text", "label"), Path(), seed=1).records(corpus))
    assert records == [(document.text, document.label) for document in documents("topic", "valid", 20, seed=1)]
    texts = list(Reader(("text",), Path(), seed=1).records(corpus))
    assert texts == [(text,) for text, _ in records]


def test_a_task_with_other_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="generates a text and a label, but this task has the fields words, tags"):
        Reader(("words", "tags"), Path()).paths(DocumentsCorpus(label="topic"))


def test_the_identity_of_generated_documents_depends_on_seed_and_settings(tmp_path: Path) -> None:
    def of(seed: int, corpus: DocumentsCorpus) -> dict[str, object]:
        return identity(corpus, Reader(("text", "label"), Path(), seed), tmp_path)

    topic = DocumentsCorpus(label="topic", count=20)
    assert of(1, topic) == of(1, topic)
    assert of(1, topic) != of(2, topic)
    assert of(1, topic) != of(1, DocumentsCorpus(label="sentiment", count=20))
    assert of(1, topic) != of(1, DocumentsCorpus(label="topic", count=21))
