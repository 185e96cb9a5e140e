"""Documents, dialogues and given words become rows of parts, which are found again; labels and tags class numbers."""

from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.records import lists_from, rows_from

from regard.data.fields import (
    DocumentField,
    Fields,
    LabelsField,
    TagsField,
    TextField,
    TurnsField,
    UnequalLengthsError,
    WordsField,
    learn_fields,
    load_fields,
    split_parts,
)
from regard.data.fields.lists import join_list, on_one_line, split_list
from regard.data.fields.nested import keep_last_parts
from regard.data.rows import Rows
from regard.recipe import ME, YOU, Data, FieldKind, PhrasebookCorpus, Recipe, Text
from regard.text import END, UNK, Tokenizer, Tokenizers, TokenizerSettings

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


TURN_FIELD = TurnsField(
    Tokenizer.learn(["the cat sees a dog", "<you> <me>"], 300, TokenizerSettings(symbols=(YOU, ME)))
)
HISTORIES = st.lists(st.lists(WORD.map(on_one_line).filter(bool), min_size=1))


def expected_turns(history: list[str], field: TurnsField = TURN_FIELD) -> list[list[int]]:
    """The ids of each turn, by a plain loop."""
    symbols = [field.tokenizer.id(symbol) for symbol in (YOU, ME)]
    turns = []
    for number, turn in enumerate(history):
        ids = [UNK if token in symbols else token for token in field.tokenizer.encode(turn)] or [UNK]
        turns.append([symbols[(len(history) - 1 - number) % 2], *ids, END])
    return turns


@given(HISTORIES)
def test_each_turn_begins_with_the_symbol_of_its_speaker_and_ends_with_the_end_symbol(
    histories: list[list[str]],
) -> None:
    rows = TURN_FIELD.encode([join_list(history) for history in histories])
    expected = [expected_turns(history) for history in histories]
    assert lists_from(rows) == [[token for turn in turns for token in turn] for turns in expected]
    assert nested(rows) == [[turn[:-1] for turn in turns] for turns in expected]
    assert [TURN_FIELD.turns(ids) for ids in lists_from(rows)] == [[turn[1:-1] for turn in turns] for turns in expected]


@given(st.lists(st.lists(st.sampled_from(["the cat", "a dog", "sees"]), min_size=1)))
def test_turns_decode_to_themselves(histories: list[list[str]]) -> None:
    values = [join_list(history) for history in histories]
    assert [TURN_FIELD.decode(ids) for ids in lists_from(TURN_FIELD.encode(values))] == values


def test_a_symbol_that_is_typed_in_a_turn_is_no_symbol() -> None:
    you, me = TURN_FIELD.tokenizer.id(YOU), TURN_FIELD.tokenizer.id(ME)
    # Normalisation makes the symbol of the second spelling.
    (row,) = lists_from(TURN_FIELD.encode(["the cat <me> sees\t<you>\uff1cme\uff1e</s>"]))
    assert [row.count(symbol) for symbol in (you, me, END)] == [1, 1, 2]
    assert TURN_FIELD.tokenizer.encode("<you> \uff1cme\uff1e").count(me) == 1
    # A reply keeps it: it has no meaning there, and decodes to the same text.
    reply = TextField(TURN_FIELD.tokenizer)
    assert reply.decode(reply.encode(["the <you> cat"]).ids.tolist()) == "the <you> cat"


def test_a_history_without_text_is_one_turn_that_models_can_read() -> None:
    you = TURN_FIELD.tokenizer.id(YOU)
    assert lists_from(TURN_FIELD.encode(["", "\t \t", "▁"])) == [[you, UNK, END]] * 3
    assert TURN_FIELD.parts("\t") == [""]
    assert lists_from(TURN_FIELD.encode([])) == []


ROWS = st.lists(st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=6), max_size=5), max_size=6)


@given(ROWS, st.integers(2, 12))
def test_the_last_parts_are_kept_and_of_a_long_last_part_its_first_and_last_ids(
    rows: list[list[list[int]]], longest: int
) -> None:
    ended = [[[*part, END] for part in parts] for parts in rows]
    expected = []
    for parts in ended:
        kept: list[int] = []
        for part in reversed(parts):
            if len(part) + len(kept) > longest:
                break
            kept = [*part, *kept]
        if parts and not kept:
            last = parts[-1]
            kept = [last[0], *last[len(last) - longest + 1 :]]
        expected.append(kept)
    assert (
        lists_from(keep_last_parts(rows_from([list(chain.from_iterable(parts)) for parts in ended]), longest))
        == expected
    )


@pytest.mark.parametrize(
    ("kinds", "record", "learned_from", "multiline"),
    [
        ({"text": "text"}, ("if a:\n\treturn b\n",), ("if a:\n\treturn b\n",), True),
        ({"history": "turns", "reply": "text"}, ("hi\tyou", "a\tb"), ("hi you", "a\tb"), False),
    ],
)
def test_vocabularies_are_learned_from_the_tabs_of_texts_but_not_from_those_between_turns(
    kinds: dict[str, FieldKind], record: tuple[str, ...], learned_from: tuple[str, ...], multiline: bool
) -> None:
    text = Text(size=300, normalise="identity")
    recipe = Recipe(task="own", data=Data(train=(PhrasebookCorpus(to="de"),)), text=text)
    expected = Tokenizers.learn(
        [learned_from] * 9, fields=list(kinds), size=300, normalise="identity", multiline=multiline, seed=recipe.seed
    )
    assert learn_fields(kinds, [record] * 9, recipe, multiline).tokenizers.fingerprint == expected.fingerprint
