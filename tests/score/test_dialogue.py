"""Distinct n-grams and recall are those counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.dialogue import distinct, recall_at

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"])).map(" ".join)


def test_distinct_words_and_pairs_are_counted_over_all_replies() -> None:
    replies = ["I don't know.", "i know", "No!"]
    # i don ' t know . | i know | no !  -> 10 words: i don ' t know . no !
    one, two = distinct(replies, 1), distinct(replies, 2)
    assert (one.name, one.value, one.detail) == ("distinct-1", 80.0, "(8 of 10)")
    # i-don don-' '-t t-know know-. i-know no-!; no pair reaches from one reply into the next.
    assert (two.name, two.value, two.detail) == ("distinct-2", 70.0, "(7 of 10)")
    assert two.signature == "n:2|case:lc|replies:3"
    assert two.higher_is_better


@pytest.mark.parametrize("replies", [[], [""], ["", " \t"]])
def test_no_words_are_not_distinct(replies: list[str]) -> None:
    assert distinct(replies, 1).value == distinct(replies, 2).value == 0.0


@given(st.lists(WORDS, min_size=1), st.integers(1, 3))
def test_a_repeated_set_of_replies_is_half_as_distinct(replies: list[str], length: int) -> None:
    assert distinct(replies * 2, length).value == pytest.approx(distinct(replies, length).value / 2)
    assert 0 <= distinct(replies, length).value <= 100


@given(st.lists(WORDS, min_size=1), st.integers(1, 3))
def test_distinct_counts_as_a_plain_loop_does(replies: list[str], length: int) -> None:
    found, total = set(), 0
    for reply in replies:
        words = reply.split()
        total += len(words)
        for at in range(len(words)):
            if at + length <= len(words):
                found.add(" ".join(words[at : at + length]))
    assert distinct(replies, length).value == pytest.approx(100 * len(found) / total if total else 0.0)


def test_words_of_any_script_are_words() -> None:
    assert distinct(["Où est-il ?", "أين هو؟"], 1).detail == "(8 of 8)"


def test_recall_is_the_share_of_replies_among_the_best() -> None:
    score = recall_at([1, 2, 5, 6, 1], most=5, candidates=1000)
    assert (score.name, score.value, score.detail) == ("recall@5 of 1,000", 80.0, "(4 of 5)")
    assert score.signature == "k:5|candidates:1000"
    assert recall_at([1, 2, 5, 6, 1], most=1, candidates=10).value == 40.0
    assert recall_at([], most=1, candidates=10).value == 0.0


@given(st.lists(st.integers(1, 10), min_size=1))
def test_recall_grows_with_the_number_of_replies_that_count(ranks: list[int]) -> None:
    values = [recall_at(ranks, most, 10).value for most in range(1, 11)]
    assert values == sorted(values)
    assert values[-1] == 100.0
