"""Alignment error rate of word alignments with sure and possible links (Och & Ney 2003, "A Systematic Comparison of
Various Statistical Alignment Models", §6).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

Link = tuple[int, int]
"""A source word and a target word, counted from 0."""


@dataclass(frozen=True)
class Alignment:
    """The word alignment of one sentence pair.

    Example:
        >>> Alignment(sure=frozenset({(0, 0)}), possible=frozenset({(1, 2)}))
    """

    sure: frozenset[Link] = frozenset()
    """Links that a correct alignment must have."""
    possible: frozenset[Link] = frozenset()
    """Links that a correct alignment may have. Sure links are possible too and are added if missing."""

    def __post_init__(self) -> None:
        """Add sure links to the possible ones and reject negative numbers."""
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", frozenset(self.possible) | self.sure)
        for source, target in self.possible:
            if source < 0 or target < 0:
                raise ValueError(f"link {source}-{target} is negative; words are counted from 0")


@dataclass(frozen=True)
class AlignmentScore:
    """Counts of links over a corpus and the rates they give, each between 0 and 1."""

    pairs: int
    proposed: int  # |A|
    sure: int  # |S|
    possible: int  # |P|
    proposed_sure: int  # |A ∩ S|
    proposed_possible: int  # |A ∩ P|

    @property
    def aer(self) -> float:
        """Return the alignment error rate, 1 − (|A∩S| + |A∩P|) / (|A| + |S|); 0 without any link."""
        total = self.proposed + self.sure
        # One division of integers, so that a perfect alignment gives exactly 0.
        return (total - self.proposed_sure - self.proposed_possible) / total if total else 0.0

    @property
    def precision(self) -> float:
        """Return the fraction of proposed links that are possible, |A∩P| / |A|; 1 if none is proposed."""
        return self.proposed_possible / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        """Return the fraction of sure links that are proposed, |A∩S| / |S|; 1 if none is sure."""
        return self.proposed_sure / self.sure if self.sure else 1.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def signature(self) -> str:
        """Return what was compared; two error rates are comparable if their pairs, sure and possible links agree."""
        return f"pairs:{self.pairs}|sure:{self.sure}|possible:{self.possible}|proposed:{self.proposed}|formula:och-ney"

    def __str__(self) -> str:
        """Format the rates in per cent, in one line, as papers quote them."""
        return (
            f"AER|{self.signature} = {self.aer:.2%} "
            f"(precision {self.precision:.2%}, recall {self.recall:.2%}, F1 {self.f1:.2%})"
        )


def alignment_error_rate(
    predicted: Sequence[Alignment | Collection[Link]], gold: Sequence[Alignment]
) -> AlignmentScore:
    """Compare predicted alignments with gold ones over a corpus.

    Args:
        predicted: One alignment or collection of links per sentence pair. All links count as proposed, whether sure or
            possible.
        gold: The gold alignment of each sentence pair.

    Raises:
        ValueError: If the numbers of sentence pairs differ, or there are none.
    """
    if len(predicted) != len(gold):
        raise ValueError(
            f"got {len(predicted)} predicted alignments but {len(gold)} gold ones; give one of each per sentence pair"
        )
    if not gold:
        raise ValueError("there are no alignments to compare; give at least one sentence pair")
    proposed = sure = possible = proposed_sure = proposed_possible = 0
    for prediction, truth in zip(predicted, gold, strict=True):
        links = prediction.possible if isinstance(prediction, Alignment) else frozenset(prediction)
        proposed += len(links)
        sure += len(truth.sure)
        possible += len(truth.possible)
        proposed_sure += len(links & truth.sure)
        proposed_possible += len(links & truth.possible)
    return AlignmentScore(len(gold), proposed, sure, possible, proposed_sure, proposed_possible)
