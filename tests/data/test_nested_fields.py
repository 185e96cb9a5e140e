"""Documents and given words become rows of parts, and labels and tags several class numbers; parts are found again."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import lists_from

from regard.data.fields import (
    DocumentField,
    Fields,
    LabelsField,
    TagsField,
    TextField,
    UnequalLengthsError,
    WordsField,
    learn_fields,
    load_fields,
    split_parts,
)
from regard.data.fields.lists import join_list, split_list
from regard.data.rows import Rows
from regard.recipe import Data, FieldKind, PhrasebookCorpus, Recipe, Text
from regard.text import END, UNK, Tokenizer

TOKENIZER = Tokenizer.learn(["the cat sees a dog", "the dogs see New York", "it's raining"], 300)
WORDS, DOCUMENT = WordsField(TOKENIZER), DocumentField(TOKENIZER)
TAGS = TagsField(("ADJ", "NOUN", "VERB"))
WORD = st.text(min_size=1).map(lambda text: text.replace("\t", "x").strip()).filter(bool)
SENTENCES = st.lists(st.lists(WORD))
KINDS: dict[str, FieldKind] = {"words": "words", "tags": "tags"}


def nested(rows: Rows) -> list[list[list[int]]]:
    """The tokens of each part of each row, by `split_parts`."""
    tokens, sizes = split_parts(rows)
    assert len(tokens) == len(sizes) == len(rows)
    parts = []
    for ids, lengths in zip(lists_from(tokens), lists_from(sizes), strict=True):
        ends = np.cumsum([0, *lengths]).tolist()
        assert ends[-1] == len(ids)
        parts.append([ids[begin:end] for begin, end in pairwise(ends)])
    return parts


@given(st.lists(WORD))
def test_a_list_is_split_into_the_entries_that_were_joined(entries: list[str]) -> None:
    assert split_list(join_list(entries)) == entries


@given(SENTENCES)
def test_each_given_word_has_its_own_tokens(sentences: list[list[str]]) -> None:
    expected = [[TOKENIZER.encode(word) or [UNK] for word in words] for words in sentences]
    assert nested(WORDS.encode([join_list(words) for words in sentences])) == expected


@given(st.lists(st.text()))
def test_each_sentence_of_a_document_has_its_own_tokens(texts: list[str]) -> None:
    expected = [[TOKENIZER.encode(part) or [UNK] for part in DOCUMENT.parts(text)] for text in texts]
    assert nested(DOCUMENT.encode(texts)) == expected


@given(SENTENCES)
def test_a_row_is_its_parts_each_followed_by_the_end_symbol(sentences: list[list[str]]) -> None:
    rows = WORDS.encode([join_list(words) for words in sentences])
    assert lists_from(rows) == [[token for part in parts for token in [*part, END]] for parts in nested(rows)]


def test_words_are_separated_by_white_space_or_else_by_tabs() -> None:
    assert WORDS.parts("  the  cat\u2003sees ") == ["the", "cat", "sees"]
    assert WORDS.parts("New York\tsees\t a dog ") == ["New York", "sees", "a dog"]
    assert WORDS.parts("New York\t") == ["New York"]


def test_a_part_that_normalisation_removes_is_one_unknown_token() -> None:
    assert TOKENIZER.encode("▁") == []
    assert nested(WORDS.encode(["cat ▁ dog", "▁", "▁ ▁"])) == [
        [TOKENIZER.encode("cat"), [UNK], TOKENIZER.encode("dog")],
        [[UNK]],
        [[UNK], [UNK]],
    ]


def test_the_end_symbol_typed_as_a_word_is_no_end() -> None:
    (parts,) = nested(WORDS.encode(["a </s> b"]))
    assert len(parts) == 3
    assert WORDS.decode(WORDS.encode(["a </s> b"]).ids.tolist()) == "a </s> b"


def test_blank_values_have_no_parts() -> None:
    assert nested(WORDS.encode(["", " \t ", "cat", ""])) == [[], [], [TOKENIZER.encode("cat")], []]
    assert nested(DOCUMENT.encode(["", "\n\n"])) == [[], []]
    assert nested(WORDS.encode([])) == []


def test_a_document_of_two_thousand_sentences_keeps_them_all() -> None:
    (parts,) = nested(DOCUMENT.encode([" ".join(f"It is {number}." for number in range(2000))]))
    assert [TOKENIZER.decode(part) for part in parts[:2]] == ["It is 0.", "It is 1."]
    assert len(parts) == 2000


@given(st.lists(st.lists(st.sampled_from(["the", "cat", "sees", "dogs"]))))
def test_words_decode_to_themselves(sentences: list[list[str]]) -> None:
    values = [" ".join(words) for words in sentences]
    assert [WORDS.decode(ids) for ids in lists_from(WORDS.encode(values))] == values


def test_fields_of_one_tokenizer_that_split_differently_have_different_fingerprints() -> None:
    fields = (TextField(TOKENIZER), DOCUMENT, WORDS)
    assert len({field.fingerprint for field in fields}) == 3
    assert [field.kind for field in fields] == ["text", "document", "words"]


@given(st.lists(st.lists(st.sampled_from(TAGS.classes))))
def test_tags_become_class_numbers_in_order_and_back(sentences: list[list[str]]) -> None:
    rows = TAGS.encode([join_list(tags) for tags in sentences])
    assert lists_from(rows) == [[TAGS.classes.index(tag) for tag in tags] for tags in sentences]
    assert [TAGS.decode(ids) for ids in lists_from(rows)] == [" ".join(tags) for tags in sentences]


@given(st.lists(st.sets(st.sampled_from(["a", "b", "c d"]))))
def test_labels_become_distinct_class_numbers_and_back(values: list[set[str]]) -> None:
    field = LabelsField(("a", "b", "c d"))
    rows = field.encode([", ".join([*labels, *labels]) for labels in values])
    assert lists_from(rows) == [sorted(map(field.classes.index, labels)) for labels in values]
    assert [field.decode(ids) for ids in lists_from(rows)] == [",".join(sorted(labels)) for labels in values]


def test_an_unknown_tag_is_an_error_that_names_its_record() -> None:
    with pytest.raises(
        ValueError, match="the label 'NUON' does not occur in the training data; did you mean 'NOUN'"
    ) as caught:
        TAGS.encode(["NOUN VERB", "VERB", "VERB NUON"])
    assert caught.value.index == 2  # type: ignore[attr-defined]


def test_a_record_with_more_words_than_tags_is_an_error_that_names_it() -> None:
    fields = Fields({"words": WORDS, "tags": TAGS})
    encoded = fields.encode({"words": ["a cat", "dogs"], "tags": ["ADJ NOUN", "NOUN"]})
    assert lists_from(encoded["tags"]) == [[0, 1], [1]]
    with pytest.raises(UnequalLengthsError, match="3 words and 2 tags; give one tag for each word") as caught:
        fields.encode({"words": ["a cat", "a b c"], "tags": ["ADJ NOUN", "ADJ NOUN"]})
    assert caught.value.index == 1


def test_fields_of_words_and_tags_are_learned_saved_and_loaded(tmp_path: Path) -> None:
    recipe = Recipe(task="own", data=Data(train=(PhrasebookCorpus(to="de"),)), text=Text(size=300))
    records = [("the cat sees", "DET NOUN VERB"), ("New York\t", "PROPN\t")] * 20
    learned = learn_fields(KINDS, records, recipe)
    assert isinstance(learned["tags"], TagsField)
    assert learned["tags"].classes == ("DET", "NOUN", "PROPN", "VERB")
    learned.save(tmp_path)
    loaded = load_fields(tmp_path, KINDS)
    assert loaded.fingerprint == learned.fingerprint
    assert isinstance(loaded["words"], WordsField)
    assert loaded.encode({"words": ["New York\t"], "tags": ["PROPN"]})["tags"].ids.tolist() == [2]
