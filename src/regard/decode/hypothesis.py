"""The result of a search, and how to choose among several results."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True)
class Hypothesis:
    """A complete sequence of tokens and its score."""

    tokens: tuple[int, ...]
    """Ids, without begin and end symbol."""
    score: float
    """What hypotheses are ranked by: the log-probability with length and coverage penalty."""
    logprob: float
    """Log-probability of the sequence and its end symbol."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token and of the end symbol: one more than there are tokens."""
    truncated: bool = False
    """Whether it ended because it reached the maximum length."""


def rerank(hypotheses: Sequence[Hypothesis], score: Callable[[Hypothesis], float]) -> list[Hypothesis]:
    """Return the hypotheses with another score, best first; hypotheses with equal scores keep their order."""
    scored = [replace(hypothesis, score=score(hypothesis)) for hypothesis in hypotheses]
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)


def minimum_bayes_risk(
    candidates: Sequence[Candidate],
    utility: Callable[[Candidate, Candidate], float],
    references: Sequence[Candidate] | None = None,
) -> list[tuple[Candidate, float]]:
    """Return the distinct candidates with their expected utility, best first (Eikema & Aziz 2020).

    Args:
        candidates: Texts or sequences of ids, usually samples.
        utility: A score such as chrF, as `utility(candidate, reference)`. It is called once for each distinct pair.
        references: What the expectation is taken over; the candidates themselves if None. A sample that was drawn
            several times counts as often.
    """
    if not candidates:
        return []
    weights = Counter(candidates if references is None else references)
    total = sum(weights.values())
    expected = [
        (candidate, sum(utility(candidate, reference) * weight for reference, weight in weights.items()) / total)
        for candidate in dict.fromkeys(candidates)
    ]
    return sorted(expected, key=lambda pair: -pair[1])
