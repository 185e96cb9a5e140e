"""A model's translations against references: scores of all, of short and long sentences, and beside another system."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.score import Comparison, Score, paired_bootstrap, score

STEP = 10
"""Source words that sentences of one bucket differ by."""
BUCKETS = 6
"""Buckets at most; the last holds everything longer."""


@dataclass(frozen=True)
class Bucket:
    """Sentences of like length, and what they score."""

    least: int
    """Fewest source words."""
    most: int | None
    """Most source words; None is no bound."""
    sentences: int
    scores: tuple[Score, ...]

    @property
    def label(self) -> str:
        """Such as 11–20."""
        return f"{self.least}+" if self.most is None else f"{self.least}–{self.most}"


@dataclass(frozen=True)
class Evaluation:
    """What was translated, and how well."""

    hypotheses: tuple[str, ...]
    scores: tuple[Score, ...]
    buckets: tuple[Bucket, ...]
    comparisons: tuple[Comparison, ...]
    search: str
    """How the translations were searched for, in the manner of a signature."""

    def to_json(self) -> dict[str, Any]:
        """All but the translations themselves, as JSON holds it."""
        return {
            "sentences": len(self.hypotheses),
            "search": self.search,
            "scores": [asdict(each) for each in self.scores],
            "buckets": [asdict(each) for each in self.buckets],
            "comparisons": [asdict(each) for each in self.comparisons],
        }


def evaluate(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    *,
    tokenize: str = "13a",
    against: Sequence[str] | None = None,
    search: str = "",
) -> Evaluation:
    """Score translations; with `against`, test whether the difference to those of another system could be chance."""
    return Evaluation(
        tuple(hypotheses),
        tuple(score(name, hypotheses, references, tokenize=tokenize) for name in metrics),
        _buckets(sources, hypotheses, references, metrics, tokenize),
        tuple(paired_bootstrap(hypotheses, against, references, metric=name, tokenize=tokenize) for name in metrics)
        if against is not None
        else (),
        search,
    )


def _buckets(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
) -> tuple[Bucket, ...]:
    """Scores by length of the source; a bucket without sentences is left out."""
    members: dict[int, list[int]] = {}
    for number, line in enumerate(sources):
        place = max(0, len(line.split()) - 1) // STEP
        members.setdefault(min(place, BUCKETS - 1), []).append(number)
    found = []
    for place, numbers in sorted(members.items()):
        said = [hypotheses[number] for number in numbers]
        meant = [[stream[number] for number in numbers] for stream in references]
        most = None if place == BUCKETS - 1 else (place + 1) * STEP
        scores = tuple(score(name, said, meant, tokenize=tokenize) for name in metrics)
        found.append(Bucket(place * STEP + 1, most, len(numbers), scores))
    return tuple(found)
