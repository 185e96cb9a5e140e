"""CIDEr-D: values computed by hand, and laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.cider import CiderD, bleu_of_order, caption_scores, caption_words, cider

CORPUS = [["a cat sits", "the cat"], ["a dog runs"], ["a bird"]]
WORDS = st.lists(st.sampled_from(["a", "red", "cat", "sits", "runs"]), min_size=1, max_size=7).map(" ".join)


def test_cider_equals_the_value_computed_by_hand() -> None:
    # Document frequencies of three pictures: a 3 (weight 0), cat 1 and sits 1 (log 3), "a cat" and "cat sits" 1.
    # Caption "a cat" against "a cat sits": unigrams {cat: log 3} and {cat: log 3, sits: log 3}: cosine 1 / √2;
    # bigrams {a cat} and {a cat, cat sits}: 1 / √2; no trigram and no 4-gram of the caption. The length differs by 1.
    value = CiderD(CORPUS).score("a cat", ["a cat sits"])
    assert value == pytest.approx(100 * 10 * math.exp(-1 / 72) * (2 / math.sqrt(2)) / 4)


def test_counts_above_those_of_the_reference_are_clipped() -> None:
    # "cat cat" has the unigram weight 2 log 3, clipped to log 3: log 3 · log 3 / (2 log 3 · log 3) = 1 / 2. The bigram
    # "cat cat" occurs in no reference, and its weight log 3 stands alone.
    value = CiderD([["cat"], ["dog"], ["bird"]]).score("cat cat", ["cat"])
    assert value == pytest.approx(1000 * math.exp(-1 / 72) * 0.5 / 4)


def test_the_value_is_the_mean_over_references() -> None:
    metric = CiderD(CORPUS)
    one, other = (metric.score("a cat sits", [reference]) for reference in CORPUS[0])
    assert metric.score("a cat sits", CORPUS[0]) == pytest.approx((one + other) / 2)


def test_a_long_caption_equal_to_its_only_reference_has_the_largest_value() -> None:
    references = [["a red cat sits here"], ["one dog runs over there"]]
    assert cider(["a red cat sits here", "one dog runs over there"], references).value == pytest.approx(1000)


def test_words_that_all_pictures_have_in_their_references_count_nothing() -> None:
    assert CiderD([["a"], ["a"]]).score("a", ["a"]) == 0


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_no_caption_is_better_than_a_copy_of_a_reference_of_each_picture(caption: str, references: list[str]) -> None:
    metric = CiderD([references, ["a dog"], ["the bird flies"]])
    value = metric.score(caption, references)
    assert 0 <= value <= 1000 + 1e-9
    assert value == pytest.approx(metric.score(caption, references[::-1]))


def test_case_and_punctuation_do_not_count() -> None:
    assert caption_words("A dog, on the (red) sofa.") == ["a", "dog", "on", "the", "red", "sofa"]
    metric = CiderD(CORPUS)
    assert metric.score("A cat sits!", ["a cat sits"]) == metric.score("a cat sits", ["a cat sits"])


def test_bleu_counts_pictures_with_fewer_references() -> None:
    captions, references = ["a b c d", "e f g h"], [["a b c d", "x"], ["e f g h"]]
    for order in (1, 4):
        assert bleu_of_order(captions, references, order).value == pytest.approx(100)
    # One unigram of two is right in each caption, and no bigram.
    assert bleu_of_order(["a x", "e y"], [["a b"], ["e f"]], 1).value == pytest.approx(50)


def test_the_scores_of_captions_begin_with_those_that_choose_weights() -> None:
    names = [score.name for score in caption_scores(["a b"], [["a b", "c"]])]
    assert names == ["CIDEr-D", "BLEU-4", "BLEU-1", "BLEU-2", "BLEU-3", "exact match", "distinct-1", "distinct-2"]
