"""Judge the attention of a classifier on documents of which it is known what decides their labels.

Attention weights are often shown as an explanation. Whether they are one can be measured: `judge_attention` says how
often the largest weight is on something that decides (plausibility), and how much the prediction depends on what has
large weights (faithfulness); see `regard.score.rationale`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.documents import Document
from regard.predict.classifier import ClassifiedText, TextClassifier
from regard.score.rationale import (
    PERCENTAGES,
    ErasureCurve,
    HitRates,
    Probabilities,
    Rationale,
    SentenceFlips,
    Span,
    erasure,
    hit_rates,
    sentence_flips,
)
from regard.text.sentences import split_sentences


@dataclass(frozen=True)
class AttentionJudgement:
    """Measures of how well the attention weights of a classifier explain its predictions."""

    accuracy: float
    """Share of the documents whose label is predicted correctly."""
    hits: HitRates
    curves: tuple[ErasureCurve, ...]
    flips: SentenceFlips

    def lines(self) -> list[str]:
        """Return a report in words and numbers."""
        hits, flips = self.hits, self.flips
        curves = {curve.order: curve for curve in self.curves}
        attention, gold, by_chance = (curves[name].mean_comprehensiveness for name in ("attention", "gold", "random"))
        report = [
            f"accuracy {self.accuracy:.1%} of {hits.documents} documents",
            "",
            "Does attention point at what decides?",
            f"  the sentence with the largest weight decides in {hits.sentence:.1%} (a random one in "
            f"{hits.random_sentence:.1%})",
            f"  the word with the largest weight decides in {hits.word:.1%} (a random one in {hits.random_word:.1%})",
            "",
            "Does the model need what attention points at? Change of the probability of the predicted label",
            "if the first words are erased (comprehensiveness), or if all others are (sufficiency):",
            f"  {'words':<32}" + "".join(f"{percentage:>6} %" for percentage in PERCENTAGES) + "    mean",
        ]
        for name in ("comprehensiveness", "sufficiency"):
            for curve in self.curves:
                values = getattr(curve, name)
                mean = sum(values) / len(values)
                numbers = "".join(f"{value:8.3f}" for value in (*values, mean))
                report.append(f"  {f'{name}, {curve.order}':<32}{numbers}")
        return [
            *report,
            "",
            f"Without the sentence with the largest weight, the predicted label changes in {flips.attention:.1%}; "
            f"without a random sentence in",
            f"{flips.random:.1%}, and without all sentences that decide in {flips.gold:.1%}.",
            "",
            "Attention is not an explanation: a weight says how much of a state enters an average, and that state has",
            "read its neighbours. Measured here: the word with the largest weight is none of those that decide in "
            f"{1 - hits.word:.1%} of",
            f"the documents. Erasing words by attention changes the prediction by {attention:.3f} on average, erasing "
            f"those that decide by {gold:.3f},",
            f"and erasing random words by {by_chance:.3f}.",
        ]


def judge_attention(
    classifier: TextClassifier, documents: Sequence[Document], erased: int = 200, seed: int = 0
) -> AttentionJudgement:
    """Judge the attention weights of a classifier.

    Args:
        classifier: A classifier with attention over words, or over words and sentences.
        documents: Documents with what decides their labels, unseen in training.
        erased: Number of documents, from the first, from which words are erased; each is classified 37 times.
        seed: Of random orders.
    """
    results = classifier([document.text for document in documents], attention=True)
    rationales = [
        make_rationale(result, document.deciding_words) for result, document in zip(results, documents, strict=True)
    ]
    correct = sum(result.label == document.label for result, document in zip(results, documents, strict=True))

    def classify(texts: Sequence[str]) -> list[Probabilities]:
        return [result.probabilities for result in classifier(texts)]

    return AttentionJudgement(
        correct / len(documents),
        hit_rates(rationales),
        tuple(erasure(rationales[:erased], classify, seed=seed)),
        sentence_flips(rationales[:erased], classify, seed),
    )


def make_rationale(result: ClassifiedText, gold: Sequence[Span] = ()) -> Rationale:
    """Return a classified text with the weights of its words and sentences.

    A model that reads a text as one sequence has no weights of sentences: that of a sentence is the sum of the weights
    of its words.
    """
    if result.words is None:
        raise ValueError("this text was classified without attention; call the classifier with attention=True")
    words = [(span.start, span.end) for span in result.words]
    weights = [span.weight for span in result.words]
    if result.sentences is not None:
        sentences = [(span.start, span.end) for span in result.sentences]
        return Rationale(result.text, words, weights, sentences, [span.weight for span in result.sentences], gold)
    read = words[-1][1] if words else 0  # the end of a long text is not read
    sentences = [span for span in split_sentences(result.text) if span[0] < read]
    sums = [
        sum(weight for (start, _), weight in zip(words, weights, strict=True) if begin <= start < end)
        for begin, end in sentences
    ]
    return Rationale(result.text, words, weights, sentences, sums, gold)
