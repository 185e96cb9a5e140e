"""Word alignments in, their error rate out: sure and possible links (Och & Ney 2003, "A Systematic Comparison of
Various Statistical Alignment Models", §6).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

Link = tuple[int, int]


@dataclass(frozen=True)
class Alignment:
    """The links (source word, target word) of one sentence pair, words counted from 0.

    A sure link must be found; a possible one may be. Every sure link is also possible, and is added where missing.
    """

    sure: frozenset[Link] = frozenset()
    possible: frozenset[Link] = frozenset()

    def __post_init__(self) -> None:
        """Hold that sure links are possible and that no word has a negative number."""
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", frozenset(self.possible) | self.sure)
        for source, target in self.possible:
            if source < 0 or target < 0:
                raise ValueError(f"link {source}-{target} is negative; words are counted from 0")


@dataclass(frozen=True)
class AlignmentScore:
    """Counts over a whole corpus and the rates they give, each between 0 and 1."""

    pairs: int
    proposed: int  # |A|
    sure: int  # |S|
    possible: int  # |P|
    proposed_sure: int  # |A ∩ S|
    proposed_possible: int  # |A ∩ P|

    @property
    def aer(self) -> float:
        """Alignment error rate, 1 − (|A∩S| + |A∩P|) / (|A| + |S|); 0 where nothing was asked and nothing proposed."""
        total = self.proposed + self.sure
        # One division of whole numbers, so that a perfect alignment gives 0 and not a rounding error.
        return (total - self.proposed_sure - self.proposed_possible) / total if total else 0.0

    @property
    def precision(self) -> float:
        """Share of the proposed links that are possible, |A∩P| / |A|; 1 where none was proposed."""
        return self.proposed_possible / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        """Share of the sure links that were proposed, |A∩S| / |S|; 1 where none is sure."""
        return self.proposed_sure / self.sure if self.sure else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def signature(self) -> str:
        """What was compared: two error rates may stand side by side when pairs, sure and possible agree."""
        return f"pairs:{self.pairs}|sure:{self.sure}|possible:{self.possible}|proposed:{self.proposed}|formula:och-ney"

    def __str__(self) -> str:
        """One line in per cent, as papers print it."""
        return (
            f"AER|{self.signature} = {self.aer:.2%} "
            f"(precision {self.precision:.2%}, recall {self.recall:.2%}, F1 {self.f1:.2%})"
        )


def alignment_error_rate(
    predicted: Sequence[Alignment | Collection[Link]], gold: Sequence[Alignment]
) -> AlignmentScore:
    """Compare predicted links with gold ones over a corpus, sentence pair by sentence pair.

    All links of a prediction count as proposed, whether it calls them sure or possible.
    """
    if len(predicted) != len(gold):
        raise ValueError(
            f"{len(predicted)} predicted alignments but {len(gold)} gold ones; both need one for each sentence pair"
        )
    if not gold:
        raise ValueError("no alignments to compare; give at least one sentence pair")
    proposed = sure = possible = proposed_sure = proposed_possible = 0
    for prediction, truth in zip(predicted, gold, strict=True):
        links = prediction.possible if isinstance(prediction, Alignment) else frozenset(prediction)
        proposed += len(links)
        sure += len(truth.sure)
        possible += len(truth.possible)
        proposed_sure += len(links & truth.sure)
        proposed_possible += len(links & truth.possible)
    return AlignmentScore(len(gold), proposed, sure, possible, proposed_sure, proposed_possible)
