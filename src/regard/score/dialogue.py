"""Metrics of replies: the share of distinct n-grams, and how highly the right reply is ranked."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.score.metric import Score

_WORD = re.compile(r"\w+|[^\w\s]")


def distinct(replies: Sequence[str], length: int) -> Score:
    """Return distinct-n: the percentage of distinct n-grams of words, relative to all words (Li et al. 2016, §5.2).

    Words are lower-cased, and each punctuation mark is a word. The value falls with the number of replies, so that only
    sets of about the same size can be compared.

    Args:
        replies: The replies.
        length: 1 for single words, 2 for pairs of words.
    """
    words = [_WORD.findall(reply.lower()) for reply in replies]
    total = sum(map(len, words))
    found = {tuple(row[at : at + length]) for row in words for at in range(len(row) - length + 1)}
    value = 100 * len(found) / max(total, 1)
    return Score(
        f"distinct-{length}", value, f"n:{length}|case:lc|replies:{len(replies)}", f"({len(found)} of {total})"
    )


def recall_at(ranks: Sequence[int], most: int, candidates: int) -> Score:
    """Return the percentage of histories whose right reply is among the best `most` of so many candidates.

    Args:
        ranks: The rank of each right reply, counted from 1.
        most: The number of replies that count, k in recall@k.
        candidates: The number of replies to choose from, the right one included.
    """
    hits = sum(rank <= most for rank in ranks)
    name = f"recall@{most} of {candidates:,}"
    return Score(
        name, 100 * hits / max(len(ranks), 1), f"k:{most}|candidates:{candidates}", f"({hits} of {len(ranks)})"
    )


def draw_candidates(right: int, replies: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of `count` replies to choose from: the right one, then distinct others, drawn at random.

    Args:
        right: The number of the right reply.
        replies: The number of all distinct replies; if there are fewer than `count`, all of them are candidates.
        count: The number of candidates.
        seed: Seed of the choice.
    """
    others = np.random.default_rng(seed).choice(replies - 1, min(count, replies) - 1, replace=False)
    return np.concatenate([[right], others + (others >= right)])


def rank_of_first(similarity: NDArray[np.floating]) -> int:
    """Return the rank of the first candidate by similarity, counted from 1; those that are as similar are before it."""
    return len(similarity) - int((similarity < similarity[0]).sum())  # the last one, if it is not a number
