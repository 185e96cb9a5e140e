"""CIDEr-D (Vedantam et al. 2015), and all scores of captions with several references.

A caption and a reference are vectors of the tf-idf weights of their n-grams. An n-gram that the references of many
pictures contain tells little, and has a low weight. For each n from 1 to 4, with n-grams ω of a caption c and a
reference s, whose lengths differ by d words:

    CIDEr-D_n(c, s) = 10 · exp(-d² / 2σ²) · Σ_ω min(g_ω(c), g_ω(s)) · g_ω(s) / (‖g(c)‖ ‖g(s)‖),   σ = 6
    g_ω(c) = count of ω in c · log(pictures / max(1, pictures with ω in a reference))

The value is the mean over n, references and pictures (§5), here times 100, as it is usually printed.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from sacrebleu import BLEU

from regard.score.dialogue import distinct
from regard.score.metric import ExactMatch, SacrebleuMetric, Score

LONGEST, DEVIATION = 4, 6.0
"""Length of the longest n-grams, and σ."""

Ngram = tuple[str, ...]


class CiderD:
    """CIDEr-D with the document frequencies of a corpus."""

    def __init__(self, references: Iterable[Sequence[str]]) -> None:
        """Count in the references of how many pictures each n-gram occurs.

        Args:
            references: The references of each picture of the corpus.
        """
        self.frequencies: Counter[Ngram] = Counter()
        self.pictures = 0
        for texts in references:
            self.frequencies.update({ngram for text in texts for ngram in _ngrams(caption_words(text))})
            self.pictures += 1

    def score(self, caption: str, references: Sequence[str]) -> float:
        """Return 100 times the value of one caption; 0 without references."""
        words = caption_words(caption)
        vectors = self._vectors(words)
        total = 0.0
        for reference in references:
            others = caption_words(reference)
            penalty = math.exp(-((len(words) - len(others)) ** 2) / (2 * DEVIATION**2))
            similar = sum(
                _similarity(mine, theirs) for mine, theirs in zip(vectors, self._vectors(others), strict=True)
            )
            total += penalty * similar / LONGEST
        return 1000 * total / max(1, len(references))

    def _vectors(self, words: Sequence[str]) -> list[dict[Ngram, float]]:
        """Return the tf-idf weights of the n-grams of a text, for each n."""
        vectors: list[dict[Ngram, float]] = [{} for _ in range(LONGEST)]
        for ngram, count in _ngrams(words).items():
            weight = math.log(max(1, self.pictures)) - math.log(max(1, self.frequencies[ngram]))
            vectors[len(ngram) - 1][ngram] = count * weight
        return vectors


def cider(captions: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Return the CIDEr-D of captions; the document frequencies are those of the references.

    Args:
        captions: A caption of each picture.
        references: The references of each picture.
    """
    metric = CiderD(references)
    values = [metric.score(caption, texts) for caption, texts in zip(captions, references, strict=True)]
    signature = f"n:{LONGEST}|sigma:{DEVIATION:g}|case:lc|tok:no-punctuation|idf:references|pictures:{len(values)}"
    return Score("CIDEr-D", sum(values) / max(1, len(values)), signature)


def bleu_of_order(
    captions: Sequence[str], references: Sequence[Sequence[str]], order: int, *, lowercase: bool = False
) -> Score:
    """Return BLEU with n-grams of up to `order` words; pictures may differ in the number of references."""
    most = max(map(len, references))
    # sacrebleu leaves empty references out.
    streams = [[texts[number] if number < len(texts) else "" for texts in references] for number in range(most)]
    name = f"BLEU-{order}" + (" (lower-cased)" if lowercase else "")
    metric = SacrebleuMetric(BLEU(max_ngram_order=order, lowercase=lowercase, force=True), name)
    return metric.score(metric.count(captions, streams))


def caption_scores(
    captions: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> tuple[Score, ...]:
    """Return CIDEr-D, BLEU-4, BLEU-1 to BLEU-3, exact match with any reference, and distinct-1 and -2."""
    bleu = [bleu_of_order(captions, references, order, lowercase=lowercase) for order in (4, 1, 2, 3)]
    exact = ExactMatch(lowercase=lowercase)
    most = max(map(len, references))
    streams = [[texts[min(number, len(texts) - 1)] for texts in references] for number in range(most)]
    matches = exact.score(exact.count(captions, streams))
    return cider(captions, references), *bleu, matches, distinct(captions, 1), distinct(captions, 2)


def caption_words(text: str) -> list[str]:
    """Return the lower-cased words of a caption, without punctuation marks."""
    return "".join(" " if _is_punctuation(character) else character for character in text.lower()).split()


def _ngrams(words: Sequence[str]) -> Counter[Ngram]:
    """Count all n-grams of up to `LONGEST` words."""
    return Counter(
        tuple(words[at : at + length]) for length in range(1, LONGEST + 1) for at in range(len(words) - length + 1)
    )


def _similarity(mine: dict[Ngram, float], theirs: dict[Ngram, float]) -> float:
    """Return the clipped cosine of two vectors; 0 if one is zero."""
    lengths = math.sqrt(sum(value**2 for value in mine.values())) * math.sqrt(
        sum(value**2 for value in theirs.values())
    )
    shared = sum(min(value, theirs[ngram]) * theirs[ngram] for ngram, value in mine.items() if ngram in theirs)
    return shared / lengths if lengths else 0.0


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")
