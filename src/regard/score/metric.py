"""Corpus metrics: hypotheses and references in, a score with its signature out.

BLEU (Papineni et al. 2002), chrF (Popović 2015) and TER (Snover et al. 2006) are sacrebleu's, to the last digit.
sacrebleu's `corpus_score` holds the n-grams of all references at once, gigabytes for 100,000 lines. Here, its own code
counts one block of sentences at a time and sums the counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as SacrebleuBase
from sacrebleu.metrics.bleu import BLEUScore

References = Sequence[str] | Sequence[Sequence[str]]
Counts = list[list[float]]
"""Sufficient statistics: one row per sentence."""

_BLOCK = 1000  # sentences whose n-grams are held at once


@dataclass(frozen=True)
class Score:
    """The value of a metric with its name and the signature that says how it was computed."""

    name: str
    value: float
    signature: str
    detail: str = ""
    higher_is_better: bool = True

    def __str__(self) -> str:
        """Format name, signature and value in one line, as papers quote them."""
        return f"{self.name}|{self.signature} = {self.value:.2f} {self.detail}".rstrip()


class Metric(Protocol):
    """A metric that significance tests can resample: counts per sentence, and a value of their sum."""

    name: str
    higher_is_better: bool

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        """Return the counts of each sentence against one or more streams of references."""

    def score(self, counts: Counts) -> Score:
        """Return the score of a corpus from the counts of its sentences."""

    def value(self, summed: NDArray[Any]) -> float:
        """Return the value that summed counts give, in their own precision."""

    def signature(self, **test: object) -> str:
        """Return how the value is computed, with the settings of a significance test if any."""


class SacrebleuMetric:
    """A metric of sacrebleu, possibly under another name."""

    def __init__(self, inner: SacrebleuBase, name: str, *, higher_is_better: bool = True) -> None:
        """Wrap a configured metric of sacrebleu."""
        self.inner = inner
        self.name = name
        self.higher_is_better = higher_is_better

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        """Return sacrebleu's sufficient statistics of each sentence."""
        counts: Counts = []
        for start in range(0, len(hypotheses), _BLOCK):
            block = slice(start, start + _BLOCK)
            counts += self.inner._extract_corpus_statistics(hypotheses[block], [stream[block] for stream in references])
        return counts

    def score(self, counts: Counts) -> Score:
        """Return sacrebleu's corpus score."""
        result = self.inner._aggregate_and_compute(counts)
        detail = ""
        if isinstance(result, BLEUScore):
            detail = f"{result.prec_str} (BP = {result.bp:.3f} ratio = {result.ratio:.3f})"
        return Score(self.name, float(result.score), self.signature(), detail, self.higher_is_better)

    def value(self, summed: NDArray[Any]) -> float:
        """Return sacrebleu's score of summed counts."""
        value: float = self.inner._compute_score_from_stats(list(summed)).score
        return value

    def signature(self, **test: object) -> str:
        """Return sacrebleu's signature; it is complete only after `count`."""
        signature = self.inner.get_signature()
        for key, value in test.items():
            signature.update(key, value)
        return signature.format()


class ExactMatch:
    """The percentage of sentences equal to one of their references, except for white space at the ends."""

    def __init__(self, *, lowercase: bool) -> None:
        """Create the metric; `lowercase` ignores case."""
        self.name = "exact match (lower-cased)" if lowercase else "exact match"
        self.higher_is_better = True
        self.lowercase = lowercase
        self.streams = 0

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        """Return for each sentence 1 or 0 for a match, and 1 for the sentence itself."""
        self.streams = len(references)
        return [
            [int(any(self._normalise(hypothesis) == self._normalise(reference) for reference in row)), 1]
            for hypothesis, *row in zip(hypotheses, *references, strict=True)
        ]

    def _normalise(self, sentence: str) -> str:
        return sentence.strip().lower() if self.lowercase else sentence.strip()

    def score(self, counts: Counts) -> Score:
        """Return the percentage of matches in a corpus."""
        summed = np.sum(counts, axis=0)
        return Score(self.name, float(self.value(summed)), self.signature(), f"({summed[0]} of {summed[1]})")

    def value(self, summed: NDArray[Any]) -> float:
        """Return the percentage of matches in summed counts."""
        value: float = 100 * summed[0] / summed[1]
        return value

    def signature(self, **test: object) -> str:
        """Return the signature in sacrebleu's form."""
        entries = {"nrefs": self.streams, **test, "case": "lc" if self.lowercase else "mixed", "space": "trimmed"}
        return "|".join(f"{key}:{value}" for key, value in entries.items())


def bleu(hypotheses: Sequence[str], references: References, *, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Return corpus BLEU as `sacrebleu` prints it, between 0 and 100.

    Example:
        >>> bleu(["the cat sat"], ["the cat sat down"]).value

    Args:
        hypotheses: The translations.
        references: One reference per hypothesis, or several such lists.
        tokenize: A tokenizer of sacrebleu.
        lowercase: Whether to ignore case.
    """
    return _compute(_bleu_metric(tokenize, lowercase=lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False) -> Score:
    """Return corpus chrF2 as `sacrebleu` prints it, between 0 and 100; `word_order=2` is chrF++."""
    return _compute(_chrf_metric(word_order, lowercase=lowercase), hypotheses, references)


def ter(
    hypotheses: Sequence[str],
    references: References,
    *,
    case_sensitive: bool = False,
    normalized: bool = False,
    asian_support: bool = False,
) -> Score:
    """Return the translation edit rate as `sacrebleu` prints it: edits per hundred reference words; lower is better.

    Words are separated by spaces. `normalized` also splits punctuation, and with `asian_support` characters.
    """
    inner = TER(normalized=normalized, asian_support=asian_support, case_sensitive=case_sensitive)
    return _compute(SacrebleuMetric(inner, "TER", higher_is_better=False), hypotheses, references)


def exact_match(hypotheses: Sequence[str], references: References, *, lowercase: bool = False) -> Score:
    """Return the percentage of hypotheses equal to a reference, except for white space at the ends."""
    return _compute(ExactMatch(lowercase=lowercase), hypotheses, references)


def bleu_lowercase_tokenised(hypotheses: Sequence[str], references: References, *, tokenize: str = "13a") -> Score:
    """Return BLEU on lower-cased, tokenised text without smoothing, to compare with figures published that way.

    `tokenize="none"` on tokenised text computes what multi-bleu.perl does. On raw text, 13a replaces the Moses
    tokenizer. The value is not comparable with that of `bleu`.
    """
    return _compute(_bleu_lowercase_tokenised_metric(tokenize), hypotheses, references)


def score(metric: str, hypotheses: Sequence[str], references: References, *, tokenize: str = "13a") -> Score:
    """Return the score of one of `METRICS`; `tokenize` applies to the two kinds of BLEU only."""
    return _compute(make_metric(metric, tokenize), hypotheses, references)


def _bleu_metric(tokenize: str, *, lowercase: bool) -> Metric:
    # BLEU without case is a different score and gets a different name.
    return _make_bleu("BLEU (lower-cased)" if lowercase else "BLEU", tokenize, lowercase=lowercase, smooth_method="exp")


def _bleu_lowercase_tokenised_metric(tokenize: str) -> Metric:
    # multi-bleu.perl has no smoothing: a corpus without a matching 4-gram scores 0.
    return _make_bleu("BLEU (lower-cased, tokenised)", tokenize, lowercase=True, smooth_method="none")


def _make_bleu(name: str, tokenize: str, *, lowercase: bool, smooth_method: str) -> Metric:
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"sacrebleu has no tokenizer {tokenize!r}; choose from {', '.join(BLEU.TOKENIZERS)}")
    try:
        # `force` only silences a warning about tokenised text, which would appear once per block.
        inner = BLEU(tokenize=tokenize, lowercase=lowercase, smooth_method=smooth_method, force=True)
    except (RuntimeError, ImportError, OSError) as error:
        extra = {"ja-mecab": "install sacrebleu[ja]", "ko-mecab": "install sacrebleu[ko]"}
        remedy = extra.get(tokenize, "sacrebleu downloads it on first use, which needs a network connection")
        raise ValueError(f"tokenizer {tokenize!r} is not available here; {remedy}, or use char or intl") from error
    return SacrebleuMetric(inner, name)


def _chrf_metric(word_order: int, *, lowercase: bool) -> Metric:
    name = "chrF2" + "+" * word_order
    return SacrebleuMetric(
        CHRF(word_order=word_order, lowercase=lowercase), f"{name} (lower-cased)" if lowercase else name
    )


METRICS: dict[str, Callable[[str], Metric]] = {
    "bleu": lambda tokenize: _bleu_metric(tokenize, lowercase=False),
    "chrf": lambda _: _chrf_metric(0, lowercase=False),
    "chrf++": lambda _: _chrf_metric(2, lowercase=False),
    "ter": lambda _: SacrebleuMetric(TER(), "TER", higher_is_better=False),
    "exact": lambda _: ExactMatch(lowercase=False),
    "bleu-lowercase-tokenised": _bleu_lowercase_tokenised_metric,
}
"""All metrics by the name that `regard score --metric` takes; each is created for a tokenizer of BLEU."""


def make_metric(name: str, tokenize: str = "13a") -> Metric:
    """Create one of `METRICS` with its default settings."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; choose from {', '.join(METRICS)}")
    return METRICS[name](tokenize)


def _compute(metric: Metric, hypotheses: Sequence[str], references: References) -> Score:
    return metric.score(metric.count(hypotheses, reference_streams(hypotheses, references)))


def reference_streams(hypotheses: Sequence[str], references: References) -> list[Sequence[str]]:
    """Return references as a list of streams, each with one sentence per hypothesis.

    Raises:
        TypeError: If hypotheses or references are not lists of strings.
        ValueError: If there are none, or their numbers differ.
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("hypotheses and references must be lists of sentences; put a single sentence into a list")
    if not hypotheses:
        raise ValueError("there is no hypothesis to score; give at least one sentence")
    if not references:
        raise ValueError("there is no reference to compare with; give one sentence per hypothesis")
    streams: list[Any] = [references] if isinstance(references[0], str) else list(references)
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise ValueError(
                f"got {len(hypotheses)} hypotheses but {len(stream)} sentences in reference {number}; "
                "line i of each must translate the same sentence"
            )
    for number, row in enumerate(zip(hypotheses, *streams, strict=True), start=1):
        if not all(isinstance(sentence, str) for sentence in row):
            raise TypeError(f"sentence {number} is not a string: {row!r}")
    return streams
