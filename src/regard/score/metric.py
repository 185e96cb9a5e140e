"""Hypotheses and references in, one number and its signature out.

BLEU (Papineni et al. 2002), chrF (Popović 2015) and TER (Snover et al. 2006) are sacrebleu's, to the last digit. Its
`corpus_score` keeps the n-grams of all references at once, gigabytes for 100,000 lines, so its per-sentence counts are
collected here a block at a time and summed by its own code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sacrebleu import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as Sacrebleu
from sacrebleu.metrics.bleu import BLEUScore

References = Sequence[str] | Sequence[Sequence[str]]
Counts = list[list[float]]  # a row of counts for each sentence

METRICS = ("bleu", "chrf", "chrf++", "ter", "exact", "bleu-lowercase-tokenised")

_BLOCK = 1000  # sentences whose n-grams are held at once


@dataclass(frozen=True)
class Score:
    """A number, its name, and the signature that says how it was made."""

    name: str
    value: float
    signature: str
    detail: str = ""
    higher_is_better: bool = True

    def __str__(self) -> str:
        """One line, in the form papers quote: name, signature, number."""
        return f"{self.name}|{self.signature} = {self.value:.2f} {self.detail}".rstrip()


class Metric(Protocol):
    """What a significance test needs of a score: counts by sentence, and a number from their sum."""

    name: str
    higher_is_better: bool

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        """Counts for each sentence, against one or more streams of references."""

    def score(self, counts: Counts) -> Score:
        """The score of a corpus from the counts of its sentences."""

    def value(self, summed: NDArray[Any]) -> float:
        """The bare number from counts already summed, in their own precision."""

    def signature(self, **test: object) -> str:
        """How the number is made, with the settings of a significance test where there was one."""


class SacrebleuMetric:
    """One of sacrebleu's metrics, under its own name or another."""

    def __init__(self, inner: Sacrebleu, name: str, *, higher_is_better: bool = True) -> None:
        """Take over sacrebleu's settings as they are."""
        self.inner = inner
        self.name = name
        self.higher_is_better = higher_is_better

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        """sacrebleu's sufficient statistics for each sentence."""
        counts: Counts = []
        for start in range(0, len(hypotheses), _BLOCK):
            block = slice(start, start + _BLOCK)
            counts += self.inner._extract_corpus_statistics(hypotheses[block], [stream[block] for stream in references])
        return counts

    def score(self, counts: Counts) -> Score:
        """sacrebleu's corpus score."""
        result = self.inner._aggregate_and_compute(counts)
        detail = ""
        if isinstance(result, BLEUScore):
            detail = f"{result.prec_str} (BP = {result.bp:.3f} ratio = {result.ratio:.3f})"
        return Score(self.name, float(result.score), self.signature(), detail, self.higher_is_better)

    def value(self, summed: NDArray[Any]) -> float:
        """sacrebleu's score of one resampled corpus."""
        value: float = self.inner._compute_score_from_stats(list(summed)).score
        return value

    def signature(self, **test: object) -> str:
        """sacrebleu's own signature; known once sentences have been counted."""
        signature = self.inner.get_signature()
        for key, value in test.items():
            signature.update(key, value)
        return signature.format()


class ExactMatch:
    """Per cent of sentences equal to one of their references, white space at the ends aside."""

    def __init__(self, *, lowercase: bool) -> None:
        """Compare letters as they are, or lower-cased."""
        self.name = "exact match (lower-cased)" if lowercase else "exact match"
        self.higher_is_better = True
        self.lowercase = lowercase
        self.streams = 0

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
        """For each sentence whether it matches, and one for having been asked."""
        self.streams = len(references)
        return [
            [int(any(self._key(hypothesis) == self._key(reference) for reference in row)), 1]
            for hypothesis, *row in zip(hypotheses, *references, strict=True)
        ]

    def _key(self, sentence: str) -> str:
        return sentence.strip().lower() if self.lowercase else sentence.strip()

    def score(self, counts: Counts) -> Score:
        """Matches for each hundred sentences."""
        summed = np.sum(counts, axis=0)
        return Score(self.name, float(self.value(summed)), self.signature(), f"({summed[0]} of {summed[1]})")

    def value(self, summed: NDArray[Any]) -> float:
        """Matches for each hundred of the sentences counted."""
        value: float = 100 * summed[0] / summed[1]
        return value

    def signature(self, **test: object) -> str:
        """In sacrebleu's form; the ends of the lines are trimmed and nothing else is touched."""
        entries = {"nrefs": self.streams, **test, "case": "lc" if self.lowercase else "mixed", "space": "trimmed"}
        return "|".join(f"{key}:{value}" for key, value in entries.items())


def bleu(hypotheses: Sequence[str], references: References, *, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU as `sacrebleu` prints it, between 0 and 100."""
    return _measure(_bleu_metric(tokenize, lowercase=lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False) -> Score:
    """Corpus chrF2 as `sacrebleu` prints it, between 0 and 100; `word_order=2` is chrF++."""
    return _measure(_chrf_metric(word_order, lowercase=lowercase), hypotheses, references)


def ter(
    hypotheses: Sequence[str],
    references: References,
    *,
    case_sensitive: bool = False,
    normalized: bool = False,
    asian_support: bool = False,
) -> Score:
    """Translation edit rate as `sacrebleu` prints it: edits for each hundred reference words, so lower is better.

    Words are what stands between blanks, unless `normalized` splits punctuation and, with `asian_support`, characters.
    """
    inner = TER(normalized=normalized, asian_support=asian_support, case_sensitive=case_sensitive)
    return _measure(SacrebleuMetric(inner, "TER", higher_is_better=False), hypotheses, references)


def exact_match(hypotheses: Sequence[str], references: References, *, lowercase: bool = False) -> Score:
    """Per cent of hypotheses equal to one of their references, white space at the ends aside."""
    return _measure(ExactMatch(lowercase=lowercase), hypotheses, references)


def bleu_lowercase_tokenised(hypotheses: Sequence[str], references: References, *, tokenize: str = "13a") -> Score:
    """BLEU on lower-cased, tokenised text without smoothing, for comparison with figures published that way only.

    `tokenize="none"` on text already tokenised is what multi-bleu.perl counts; on raw text 13a stands in for the
    Moses tokeniser. Never set this beside `bleu`.
    """
    return _measure(_bleu_lowercase_tokenised_metric(tokenize), hypotheses, references)


def score(metric: str, hypotheses: Sequence[str], references: References, *, tokenize: str = "13a") -> Score:
    """One of `METRICS` by name; `tokenize` concerns the two BLEUs alone."""
    return _measure(named_metric(metric, tokenize), hypotheses, references)


def named_metric(name: str, tokenize: str = "13a") -> Metric:
    """The metric called `name` with its usual settings."""
    match name:
        case "bleu":
            return _bleu_metric(tokenize, lowercase=False)
        case "chrf":
            return _chrf_metric(0, lowercase=False)
        case "chrf++":
            return _chrf_metric(2, lowercase=False)
        case "ter":
            return SacrebleuMetric(TER(), "TER", higher_is_better=False)
        case "exact":
            return ExactMatch(lowercase=False)
        case "bleu-lowercase-tokenised":
            return _bleu_lowercase_tokenised_metric(tokenize)
    raise ValueError(f"no metric is called {name!r}; choose from {', '.join(METRICS)}")


def _bleu_metric(tokenize: str, *, lowercase: bool) -> Metric:
    # A BLEU that ignores case is another score, so it has another name.
    return _made_bleu("BLEU (lower-cased)" if lowercase else "BLEU", tokenize, lowercase=lowercase, smooth_method="exp")


def _bleu_lowercase_tokenised_metric(tokenize: str) -> Metric:
    # multi-bleu.perl knows no smoothing: a corpus without a matching 4-gram scores 0.
    return _made_bleu("BLEU (lower-cased, tokenised)", tokenize, lowercase=True, smooth_method="none")


def _made_bleu(name: str, tokenize: str, *, lowercase: bool, smooth_method: str) -> Metric:
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"sacrebleu has no tokenizer {tokenize!r}; choose from {', '.join(BLEU.TOKENIZERS)}")
    try:
        # force only silences a warning about tokenised text, which would come once a block.
        inner = BLEU(tokenize=tokenize, lowercase=lowercase, smooth_method=smooth_method, force=True)
    except (RuntimeError, ImportError, OSError) as error:
        extra = {"ja-mecab": "install sacrebleu[ja]", "ko-mecab": "install sacrebleu[ko]"}
        remedy = extra.get(tokenize, "sacrebleu downloads it on first use, which needs a connection")
        raise ValueError(f"tokenizer {tokenize!r} is not available here; {remedy}, or use char or intl") from error
    return SacrebleuMetric(inner, name)


def _chrf_metric(word_order: int, *, lowercase: bool) -> Metric:
    name = "chrF2" + "+" * word_order
    return SacrebleuMetric(
        CHRF(word_order=word_order, lowercase=lowercase), f"{name} (lower-cased)" if lowercase else name
    )


def _measure(metric: Metric, hypotheses: Sequence[str], references: References) -> Score:
    return metric.score(metric.count(hypotheses, reference_streams(hypotheses, references)))


def reference_streams(hypotheses: Sequence[str], references: References) -> list[Sequence[str]]:
    """References as a list of streams, each with one line for each hypothesis; anything else is an error."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("hypotheses and references are lists of sentences; put a single sentence in a list")
    if not hypotheses:
        raise ValueError("there is no hypothesis to score; give at least one sentence")
    if not references:
        raise ValueError("there is no reference to score against; give one sentence for each hypothesis")
    streams: list[Any] = [references] if isinstance(references[0], str) else list(references)
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise ValueError(
                f"{len(hypotheses)} hypotheses but {len(stream)} sentences in reference {number}; "
                "line i of each must translate the same sentence"
            )
    for number, row in enumerate(zip(hypotheses, *streams, strict=True), start=1):
        if not all(isinstance(sentence, str) for sentence in row):
            raise TypeError(f"sentence {number} is no string: {row!r}")
    return streams
