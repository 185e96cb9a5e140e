"""Attention judged as an explanation, with classifiers whose reasons are known."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.rationale import (
    ORDERS,
    PERCENTAGES,
    Rationale,
    erase,
    erase_words,
    erasure,
    hit_rates,
    sentence_flips,
)

TEXT = "We left early. The soup was good, and warm. It rained a lot."
GOLD = ["good"]


def rationale(attended: str, text: str = TEXT, gold: Sequence[str] = GOLD) -> Rationale:
    """Return a text whose attention is on one word and its sentence."""
    words, at = [], 0
    for word in text.split():
        begin = text.index(word, at)
        words.append((begin, begin + len(word)))
        at = begin + len(word)
    sentences, at = [], 0
    for sentence in text.split(". "):
        end = at + len(sentence.rstrip(".")) + 1
        sentences.append((at, end))
        at = end + 1
    word_weights = [0.9 if text[begin:end].strip(".,") == attended else 0.01 for begin, end in words]
    sentence_weights = [
        sum(weight for (start, _), weight in zip(words, word_weights, strict=True) if begin <= start < end)
        for begin, end in sentences
    ]
    spans = [(text.index(word), text.index(word) + len(word)) for word in gold]
    return Rationale(text, words, word_weights, sentences, sentence_weights, spans)


def likes_good(texts: Sequence[str]) -> list[dict[str, float]]:
    """Classify by the word `good` alone."""
    return [
        {"positive": 0.9, "negative": 0.1} if "good" in text else {"positive": 0.2, "negative": 0.8} for text in texts
    ]


def test_attention_on_the_deciding_word_is_a_hit_and_elsewhere_is_none() -> None:
    rates = hit_rates([rationale("good"), rationale("soup"), rationale("rained"), rationale("left")])
    assert (rates.sentence, rates.word) == (0.5, 0.25)
    assert rates.random_sentence == pytest.approx(1 / 3)
    assert rates.random_word == pytest.approx(1 / 13)
    assert rates.documents == 4


def test_a_word_with_punctuation_counts_as_the_gold_word_without() -> None:
    assert rationale("good").gold_word_numbers == {6}
    assert TEXT[slice(*rationale("good").words[6])] == "good,"
    assert rationale("good").gold_sentence_numbers == {1}


def test_erased_words_leave_whole_sentences_that_end_in_their_mark() -> None:
    of = rationale("good")
    assert erase(of, set()) == TEXT
    assert erase(of, {2}) == "We left.\n\nThe soup was good, and warm.\n\nIt rained a lot."
    assert erase(of, {0, 1, 2, 6}) == "The soup was and warm.\n\nIt rained a lot."
    assert erase(of, {7, 8}) == "We left early.\n\nThe soup was good.\n\nIt rained a lot."
    assert erase(of, set(range(13))) == ""


def test_a_last_word_that_is_only_a_mark_is_erased_like_any_other() -> None:
    of = Rationale("Good soup !", [(0, 4), (5, 9), (10, 11)], [0.2, 0.3, 0.5], [(0, 11)], [1.0], ())
    assert erase(of, {1}) == "Good !"
    assert erase(of, {2}) == "Good soup"
    assert erase(of, {0, 1}) == "!"


@given(st.sets(st.integers(0, 12)))
def test_every_word_that_remains_is_found_again(erased: set[int]) -> None:
    of = rationale("good")
    rest = erase_words(of, erased)
    assert set(rest.words) == set(range(len(of.words))) - erased
    for number, (start, end) in rest.words.items():
        assert rest.text[start:end].rstrip(",.") == TEXT[slice(*of.words[number])].rstrip(",.")


def test_a_model_that_needs_one_word_shows_it_in_every_order() -> None:
    curves = {curve.order: curve for curve in erasure([rationale("good")], likes_good)}
    assert set(curves) == set(ORDERS)
    for order in ("attention", "gold"):
        assert curves[order].comprehensiveness == pytest.approx([0.7] * len(PERCENTAGES))
        assert curves[order].sufficiency == pytest.approx([0.0] * len(PERCENTAGES))
        assert curves[order].mean_comprehensiveness == pytest.approx(0.7)


def test_attention_on_another_word_is_neither_comprehensive_nor_sufficient() -> None:
    (curve, _, gold) = erasure([rationale("rained")], likes_good, percentages=(1,))
    assert curve.comprehensiveness == pytest.approx([0.0])
    assert curve.sufficiency == pytest.approx([0.7])
    assert gold.comprehensiveness == pytest.approx([0.7])


def test_comprehensiveness_and_sufficiency_equal_their_definition() -> None:
    texts = [rationale("good"), rationale("rained"), rationale("soup")]

    def classify(batch: Sequence[str]) -> list[dict[str, float]]:
        # A probability that depends on every word, so that each text and percentage has a value of its own.
        scores = [math.tanh(len(text) / 50) for text in batch]
        return [{"positive": score, "negative": 1 - score} for score in scores]

    for curve in erasure(texts, classify, percentages=(10, 50)):
        for at, percentage in enumerate((10, 50)):
            dropped, kept = 0.0, 0.0
            for text in texts:
                order = text.order(curve.order)
                first = set(order[: math.ceil(13 * percentage / 100)])
                full, without, alone = (
                    entry["positive"]
                    for entry in classify([text.text, erase(text, first), erase(text, set(order) - first)])
                )
                dropped += (full - without) / 3
                kept += (full - alone) / 3
            assert curve.comprehensiveness[at] == pytest.approx(dropped)
            assert curve.sufficiency[at] == pytest.approx(kept)


def test_the_predicted_label_is_erased_even_if_it_is_wrong() -> None:
    (curve, _, _) = erasure(
        [rationale("good")], lambda texts: [{"a": 0.4, "b": 0.6 - 0.1 * len(t.split()) / 13} for t in texts]
    )
    assert max(map(abs, curve.comprehensiveness)) < 0.1


def test_erasing_the_sentence_that_decides_flips_the_label() -> None:
    texts = [rationale("good"), rationale("rained")]
    flips = sentence_flips(texts, likes_good)
    assert flips.attention == 0.5
    assert flips.gold == 1.0
    assert 0.0 <= flips.random <= 1.0


def test_the_random_order_depends_on_the_seed_only() -> None:
    of = rationale("good")
    assert of.order("random", 1) == of.order("random", 1)
    assert of.order("random", 1) != of.order("random", 2)
    assert sorted(of.order("gold")) == list(range(13))
    assert of.order("gold")[0] == 6


def test_what_cannot_be_judged_is_an_error() -> None:
    with pytest.raises(ValueError, match="no text to judge"):
        hit_rates([])
    with pytest.raises(ValueError, match="no order 'length'"):
        rationale("good").order("length")
    with pytest.raises(ValueError, match="one weight for each of its words; got 1 for 2"):
        Rationale("a b", [(0, 1), (2, 3)], [1.0], [(0, 3)], [1.0], [])
