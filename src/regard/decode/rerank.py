"""Choosing among hypotheses that are already there: by other scores, or by how much they agree with each other."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from regard.decode.hypothesis import Hypothesis

Candidate = TypeVar("Candidate", bound=Hashable)


def rerank(hypotheses: Sequence[Hypothesis], score: Callable[[Hypothesis], float]) -> list[Hypothesis]:
    """The hypotheses by another score, the best first, each with that score; equal ones keep their order."""
    scored = [replace(each, score=score(each)) for each in hypotheses]
    return sorted(scored, key=lambda each: -each.score)


def minimum_bayes_risk(
    candidates: Sequence[Candidate],
    utility: Callable[[Candidate, Candidate], float],
    references: Sequence[Candidate] | None = None,
) -> list[tuple[Candidate, float]]:
    """Distinct candidates with their expected utility, the best first (Eikema & Aziz 2020).

    `utility(candidate, reference)` is a score such as chrF. The expectation is the mean over the references, for which
    the candidates themselves serve unless others are given: samples, of which frequent ones count as often as they were
    drawn. Each pair is asked about once.
    """
    if not candidates:
        return []
    weights = Counter(candidates if references is None else references)
    whole = sum(weights.values())
    expected = [
        (candidate, sum(utility(candidate, each) * weight for each, weight in weights.items()) / whole)
        for candidate in dict.fromkeys(candidates)
    ]
    return sorted(expected, key=lambda pair: -pair[1])
