"""Accuracy, baseline and spans of tags agree with values computed by hand and with the definitions of conlleval."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.tagging import (
    MostFrequentTags,
    PrecisionRecall,
    are_bio_tags,
    count_spans,
    find_spans,
    tagging_report,
)

WORDS = [["the", "can", "can", "rust"], ["Oslo"]]
GOLD = [["DET", "NOUN", "AUX", "VERB"], ["PROPN"]]
PREDICTED = [["DET", "NOUN", "NOUN", "VERB"], ["NOUN"]]
BIO = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "E-X", "S-X", "S-Y"]))


def test_accuracy_counts_words_and_errors_name_both_tags() -> None:
    report = tagging_report(WORDS, PREDICTED, GOLD)
    assert (report.words, report.correct) == (5, 3)
    assert report.accuracy.value == 60
    assert report.errors == [("AUX", "NOUN", 1), ("PROPN", "NOUN", 1)]
    assert [score.name for score in report.scores] == ["accuracy"]


def test_precision_and_recall_of_each_tag() -> None:
    by_tag = tagging_report(WORDS, PREDICTED, GOLD).by_tag
    assert list(by_tag) == ["AUX", "DET", "NOUN", "PROPN", "VERB"]
    noun = by_tag["NOUN"]
    assert noun == PrecisionRecall(predicted=3, gold=1, correct=1)
    assert (noun.precision, noun.recall, noun.f1) == (1 / 3, 1, 0.5)
    assert (by_tag["AUX"].precision, by_tag["AUX"].recall, by_tag["AUX"].f1) == (0, 0, 0)


def test_the_baseline_has_the_most_frequent_tag_of_each_word_and_of_all_for_unseen_words() -> None:
    training = MostFrequentTags.count(
        [(["can", "can", "can", "rust", "the"], ["AUX", "NOUN", "AUX", "VERB", "DET"]), (["rust"], ["NOUN"])]
    )
    assert training.tag(["can", "rust", "Oslo"]) == ["AUX", "NOUN", "AUX"]
    report = tagging_report(WORDS, PREDICTED, GOLD, training)
    assert report.baseline == 2 / 5  # the first, and the second of the two words "can"
    assert report.unseen == PrecisionRecall(predicted=1, gold=1, correct=0)
    assert [(score.name, score.value) for score in report.scores] == [("accuracy", 60), ("unseen", 0)]
    assert "most frequent tag: 40.00" in str(report.accuracy)


def test_unequal_numbers_of_tags_are_an_error() -> None:
    with pytest.raises(ValueError, match="sentence 2 has 1 words, 0 predicted tags and 1 correct tags"):
        tagging_report(WORDS, [PREDICTED[0], []], GOLD)
    with pytest.raises(ValueError, match="no words to count"):
        MostFrequentTags.count([])


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-PER I-PER O B-LOC", [(0, 1, "PER"), (3, 3, "LOC")]),
        ("O O", []),
        ("I-PER I-PER O", [(0, 1, "PER")]),  # I- without B- begins a span
        ("B-PER I-LOC", [(0, 0, "PER"), (1, 1, "LOC")]),  # and so does a change of type
        ("B-PER I-LOC I-LOC", [(0, 0, "PER"), (1, 2, "LOC")]),
        ("B-PER B-PER", [(0, 0, "PER"), (1, 1, "PER")]),
        ("B-PER O I-PER", [(0, 0, "PER"), (2, 2, "PER")]),  # O ends a span, also between words of one type
        ("O I-PER B-PER I-PER", [(1, 1, "PER"), (2, 3, "PER")]),
        ("S-LOC B-PER I-PER E-PER E-PER", [(0, 0, "LOC"), (1, 3, "PER"), (4, 4, "PER")]),
        ("B-A-B I-A-B", [(0, 1, "A-B")]),
    ],
)
def test_spans_are_those_of_conlleval(tags: str, spans: list[tuple[int, int, str]]) -> None:
    assert list(find_spans(tags.split())) == spans


def reference_spans(tags: list[str]) -> list[tuple[int, int, str]]:
    """The two tests of conlleval, one for the end and one for the start of a chunk, written out."""
    spans, begin = [], 0
    before, kind_before = "O", ""
    for at, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        ends = (
            before in ("E", "S")
            or (before in ("B", "I") and prefix in ("B", "S", "O"))
            or (before != "O" and kind_before != kind)
        )
        starts = (
            prefix in ("B", "S")
            or (before in ("E", "S", "O") and prefix in ("E", "I"))
            or (prefix != "O" and kind_before != kind)
        )
        if ends and before != "O":
            spans.append((begin, at - 1, kind_before))
        if starts:
            begin = at
        before, kind_before = prefix, kind
    return spans


@given(BIO)
def test_spans_agree_with_the_rules_of_conlleval(tags: list[str]) -> None:
    assert list(find_spans(tags)) == reference_spans(tags)


def test_a_span_is_correct_with_both_ends_and_its_type() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG", "O", "B-ORG"]]
    assert count_spans(predicted, gold) == {
        "LOC": PrecisionRecall(0, 1, 0),
        "ORG": PrecisionRecall(2, 1, 1),
        "PER": PrecisionRecall(1, 1, 1),
    }
    report = tagging_report([["w"] * 6], predicted, gold)
    assert report.span_total == PrecisionRecall(3, 3, 2)
    assert report.scores[-1].value == pytest.approx(200 / 3)


@given(st.lists(BIO))
def test_tags_compared_with_themselves_are_all_correct(tags: list[list[str]]) -> None:
    report = tagging_report(tags, tags, tags)
    assert report.correct == report.words
    assert not report.errors
    if report.span_total is not None:
        assert report.span_total.f1 == 1


def test_only_bio_tags_have_spans() -> None:
    assert are_bio_tags(["O", "B-PER", "I-PER"])
    assert not are_bio_tags(["O", "O"])
    assert not are_bio_tags(["NOUN", "B-PER"])
    assert tagging_report(WORDS, PREDICTED, GOLD).spans is None
