"""Recall among candidates: which are drawn, the rank of the right one, and the score."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.score.dialogue import draw_candidates, rank_of_first, recall_at


def test_recall_is_the_percentage_of_ranks_up_to_k() -> None:
    score = recall_at([1, 3, 5, 6, 1000], 5, 1000)
    assert score.name == "recall@5 of 1,000"
    assert score.value == 60.0
    assert score.signature == "k:5|candidates:1000"
    assert score.detail == "(3 of 5)"
    assert recall_at([], 1, 10).value == 0.0


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 5), st.data())
def test_candidates_are_the_right_reply_and_distinct_others(
    replies: int, count: int, seed: int, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, replies - 1))
    drawn = draw_candidates(right, replies, count, seed)
    assert drawn[0] == right
    assert len(drawn) == len(set(drawn.tolist())) == min(count, replies)
    assert 0 <= drawn.min() <= drawn.max() < replies
    assert drawn.tolist() == draw_candidates(right, replies, count, seed).tolist()


def test_every_other_reply_is_drawn_equally_often() -> None:
    drawn = np.concatenate([draw_candidates(2, 6, 3, seed)[1:] for seed in range(3000)])
    counts = np.bincount(drawn, minlength=6)
    assert counts[2] == 0
    assert np.abs(np.delete(counts, 2) - 1200).max() < 150  # five standard deviations


def test_a_candidate_as_similar_as_the_right_one_is_ranked_before_it() -> None:
    assert rank_of_first(np.array([0.5, 0.1, 0.2])) == 1
    assert rank_of_first(np.array([0.5, 0.5, 0.9, 0.1])) == 3
    assert rank_of_first(np.zeros(7)) == 7
    assert rank_of_first(np.full(7, np.nan)) == 7
