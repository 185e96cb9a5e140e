"""Metrics of classification: accuracy, F1, confusion matrix, calibration, and a significance test.

Labels and predictions are strings or, if a text may have several labels, collections of strings. Precision, recall, F1
and their macro average are defined as in scikit-learn: a class counts if it occurs among labels or predictions, and a
quotient without a denominator is 0.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.score.metric import Score
from regard.score.significance import Interval

Label = str | Collection[str]
"""One label, or several."""
BINS = 15  # of the calibration error (Guo et al. 2017, §2)
_NORMAL = 1.959963984540054  # the quantile of the normal distribution for 95 %, two-sided


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class, as fractions."""

    name: str
    precision: float
    """Fraction of the texts with this prediction that have this label."""
    recall: float
    """Fraction of the texts with this label that have this prediction."""
    f1: float
    """Harmonic mean of precision and recall."""
    support: int
    """Number of texts with this label."""
    predicted: int
    """Number of texts with this prediction."""


@dataclass(frozen=True)
class McNemarTest:
    """The exact test of McNemar (1947) on the texts that only one of two classifiers labels correctly."""

    only_system: int
    """Texts that only the first classifier labels correctly."""
    only_baseline: int
    """Texts that only the second classifier labels correctly."""
    p_value: float
    """Probability of numbers at least as unequal if both classifiers are equally good."""


def accuracy(labels: Sequence[Label], predictions: Sequence[Label]) -> Score:
    """Return the percentage of texts whose prediction is right; several labels must all be right."""
    hits = correct(labels, predictions)
    return Score("accuracy", 100 * float(hits.mean()), f"n:{len(hits)}", f"({hits.sum()} of {len(hits)})")


def macro_f1(labels: Sequence[Label], predictions: Sequence[Label]) -> Score:
    """Return the mean F1 of the classes, as a percentage."""
    scores = class_scores(labels, predictions)
    value = sum(score.f1 for score in scores) / max(len(scores), 1)
    return Score("macro F1", 100 * value, f"n:{len(labels)}|classes:{len(scores)}")


def class_scores(labels: Sequence[Label], predictions: Sequence[Label]) -> list[ClassScore]:
    """Return the scores of each class that occurs among labels or predictions, in alphabetical order."""
    pairs = _as_sets(labels, predictions)
    scores = []
    for name in sorted(set().union(*(label | prediction for label, prediction in pairs))):
        hits = sum(name in label and name in prediction for label, prediction in pairs)
        support = sum(name in label for label, _ in pairs)
        predicted = sum(name in prediction for _, prediction in pairs)
        quotients = hits / max(predicted, 1), hits / max(support, 1), 2 * hits / (support + predicted)
        scores.append(ClassScore(name, *quotients, support, predicted))
    return scores


def confusion_matrix(labels: Sequence[str], predictions: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return how many texts with the label of each row have the prediction of each column."""
    number = {name: index for index, name in enumerate(classes)}
    if unknown := sorted({*labels, *predictions} - number.keys()):
        raise ValueError(f"the label {unknown[0]!r} is none of the {len(classes)} classes of the matrix; add it")
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    for label, prediction in zip(labels, predictions, strict=True):
        matrix[number[label], number[prediction]] += 1
    return matrix


def correct(labels: Sequence[Label], predictions: Sequence[Label]) -> NDArray[np.bool_]:
    """Return which predictions are right; several labels must all be right."""
    return np.array([label == prediction for label, prediction in _as_sets(labels, predictions)], np.bool_)


def expected_calibration_error(confidences: ArrayLike, right: ArrayLike, bins: int = BINS) -> Score:
    """Return the expected calibration error (Guo et al. 2017, eq. 3), as a percentage; lower is better.

    Predictions are put into bins of equal width by their confidence. The error is the difference between the mean
    confidence and the accuracy of a bin, averaged over all predictions.

    Args:
        confidences: Probability that the classifier gives to each of its predictions.
        right: Whether each prediction is right.
        bins: Number of bins; bin i holds confidences in (i / bins, (i + 1) / bins].
    """
    confidence, hits = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    if confidence.shape != hits.shape or confidence.ndim != 1 or not confidence.size:
        raise ValueError(f"give one confidence for each prediction; got {confidence.shape} and {hits.shape}")
    if not ((confidence >= 0) & (confidence <= 1 + 1e-6)).all():
        raise ValueError("confidences are probabilities between 0 and 1")
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    # |Σ confidence - Σ right| of a bin is its size times the difference of the means.
    gaps = np.bincount(bin_of, confidence - hits, minlength=bins)
    value = 100 * float(np.abs(gaps).sum()) / confidence.size
    return Score("calibration error", value, f"n:{confidence.size}|bins:{bins}", higher_is_better=False)


def wilson_interval(successes: int, trials: int) -> Interval:
    """Return the 95 % confidence interval of a fraction (Wilson 1927)."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials are impossible")
    square, fraction = _NORMAL**2, successes / trials
    centre = (fraction + square / (2 * trials)) / (1 + square / trials)
    spread = math.sqrt(fraction * (1 - fraction) / trials + square / (4 * trials**2))
    half = _NORMAL / (1 + square / trials) * spread
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar(labels: Sequence[Label], system: Sequence[Label], baseline: Sequence[Label]) -> McNemarTest:
    """Compare two classifiers by McNemar's exact test, which is a sign test on the texts where one of them errs."""
    first, second = correct(labels, system), correct(labels, baseline)
    only_system, only_baseline = int((first & ~second).sum()), int((second & ~first).sum())
    trials, least = only_system + only_baseline, min(only_system, only_baseline)
    tail = sum(math.comb(trials, count) for count in range(least + 1))
    # Whole numbers, because 2^trials overflows a float from 1,024 on.
    return McNemarTest(only_system, only_baseline, min(1.0, 2 * tail / 2**trials))


def _as_sets(labels: Sequence[Label], predictions: Sequence[Label]) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Return labels and predictions of each text as sets; raise a ValueError unless there are equally many."""
    if isinstance(labels, str) or isinstance(predictions, str):
        raise TypeError("labels and predictions must be lists; put a single label into a list")
    if not labels or len(labels) != len(predictions):
        raise ValueError(
            f"got {len(labels)} labels and {len(predictions)} predictions; give one prediction for each label"
        )

    def as_set(label: Label) -> frozenset[str]:
        return frozenset((label,)) if isinstance(label, str) else frozenset(label)

    return [(as_set(label), as_set(prediction)) for label, prediction in zip(labels, predictions, strict=True)]
