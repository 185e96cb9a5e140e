"""Judge attention as an explanation: does it point at what decides a label, and does the model need what it points at?

Two questions, which have different answers (Jacovi and Goldberg 2020):

- Plausibility: is the word or sentence with the largest weight one that is known to decide? `hit_rates`.
- Faithfulness: does the prediction depend on the words with large weights? `erasure` removes them, or everything else
  (DeYoung et al. 2020, §4.2), and `sentence_flips` removes one sentence.

A classifier is a function from texts to the probabilities of their labels. Nothing here depends on a model.
"""

import math
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

Span = tuple[int, int]
"""Begin and end of a part of a text."""
Probabilities = Mapping[str, float]
"""The probability of each label."""
TextsToProbabilities = Callable[[Sequence[str]], Sequence[Probabilities]]

PERCENTAGES = (1, 2, 5, 10, 20, 50)
"""Shares of the words of a text that are erased or kept, in per cent."""
ORDERS = ("attention", "random", "gold")
"""Orders in which words are erased: by weight, by chance, or those that decide first."""


@dataclass(frozen=True)
class Rationale:
    """A text with the weights of its words and sentences, and with what decides its label."""

    text: str
    words: Sequence[Span]
    word_weights: Sequence[float]
    sentences: Sequence[Span]
    sentence_weights: Sequence[float]
    gold_words: Sequence[Span]
    """The words that decide; a word is one of them if it overlaps one of these spans."""

    def __post_init__(self) -> None:
        """Check that there is one weight for each word and each sentence."""
        for name, spans, weights in (
            ("words", self.words, self.word_weights),
            ("sentences", self.sentences, self.sentence_weights),
        ):
            if len(spans) != len(weights) or not spans:
                raise ValueError(f"a text needs one weight for each of its {name}; got {len(weights)} for {len(spans)}")

    @property
    def gold_word_numbers(self) -> set[int]:
        """The numbers of the words that decide."""
        return _overlapping(self.words, self.gold_words)

    def words_of(self, sentences: Collection[int]) -> set[int]:
        """Return the numbers of the words in some sentences, given by number."""
        return {word for number in sentences for word in self.words_by_sentence[number]}

    @cached_property
    def words_by_sentence(self) -> list[list[int]]:
        """The numbers of the words that begin in each sentence."""
        return [
            [number for number, (start, _) in enumerate(self.words) if begin <= start < end]
            for begin, end in self.sentences
        ]

    @property
    def gold_sentence_numbers(self) -> set[int]:
        """The numbers of the sentences that contain a word that decides."""
        return _overlapping(self.sentences, self.gold_words)

    def order(self, name: str, seed: int = 0) -> list[int]:
        """Return the numbers of the words in one of `ORDERS`; ties and the rest of `gold` are in random order."""
        numbers = list(range(len(self.words)))
        random.Random(f"{seed} {self.text}").shuffle(numbers)
        match name:
            case "attention":
                return sorted(numbers, key=lambda number: -self.word_weights[number])
            case "gold":
                gold = self.gold_word_numbers
                return sorted(numbers, key=lambda number: number not in gold)
            case "random":
                return numbers
        raise ValueError(f"there is no order '{name}' of words; choose one of {', '.join(ORDERS)}")


@dataclass(frozen=True)
class HitRates:
    """How often the largest weight is on something that decides, and how often a random choice would be."""

    sentence: float
    word: float
    random_sentence: float
    random_word: float
    documents: int


@dataclass(frozen=True)
class ErasureCurve:
    """How much erasing words in one order changes the probability of the predicted label, for each of `PERCENTAGES`."""

    order: str
    comprehensiveness: tuple[float, ...]
    """p(label | text) - p(label | text without the first words): high if the model needs these words."""
    sufficiency: tuple[float, ...]
    """p(label | text) - p(label | the first words alone): low if these words are enough for the model."""

    @property
    def mean_comprehensiveness(self) -> float:
        """The mean over all percentages, called AOPC by DeYoung et al."""
        return sum(self.comprehensiveness) / len(self.comprehensiveness)

    @property
    def mean_sufficiency(self) -> float:
        """The mean over all percentages."""
        return sum(self.sufficiency) / len(self.sufficiency)


@dataclass(frozen=True)
class SentenceFlips:
    """How often the predicted label changes if sentences are erased."""

    attention: float
    """The sentence with the largest weight."""
    random: float
    """A sentence chosen by chance."""
    gold: float
    """All sentences that decide."""
    documents: int


def hit_rates(rationales: Sequence[Rationale]) -> HitRates:
    """Return how often the sentence and the word with the largest weight decide."""
    _check_any(rationales)
    sentences, words, by_chance = 0, 0, [0.0, 0.0]
    for rationale in rationales:
        gold_sentences, gold_words = rationale.gold_sentence_numbers, rationale.gold_word_numbers
        sentences += _largest(rationale.sentence_weights) in gold_sentences
        words += _largest(rationale.word_weights) in gold_words
        by_chance[0] += len(gold_sentences) / len(rationale.sentences)
        by_chance[1] += len(gold_words) / len(rationale.words)
    count = len(rationales)
    return HitRates(sentences / count, words / count, by_chance[0] / count, by_chance[1] / count, count)


def erasure(
    rationales: Sequence[Rationale],
    classify: TextsToProbabilities,
    percentages: Sequence[int] = PERCENTAGES,
    seed: int = 0,
) -> list[ErasureCurve]:
    """Return the curve of each of `ORDERS`, as means over texts (DeYoung et al. 2020, eq. 1 and 2).

    Args:
        rationales: The texts, their weights and what decides.
        classify: Returns the probability of each label for each text.
        percentages: Shares of the words to erase or to keep; at least one word each.
        seed: Of the random order.
    """
    _check_any(rationales)
    before = classify([rationale.text for rationale in rationales])
    labels = [max(probabilities, key=lambda name: probabilities[name]) for probabilities in before]
    curves = []
    for order in ORDERS:
        texts: list[str] = []
        for percentage in percentages:
            for rationale in rationales:
                ordered = rationale.order(order, seed)
                first = ordered[: max(1, math.ceil(len(ordered) * percentage / 100))]
                texts.append(erase(rationale, set(first)))
                texts.append(erase(rationale, set(range(len(ordered))) - set(first)))
        after = iter(classify(texts))
        means: list[tuple[float, float]] = []
        for _ in percentages:
            without, alone = 0.0, 0.0
            for label, probabilities in zip(labels, before, strict=True):
                without += probabilities[label] - next(after)[label]
                alone += probabilities[label] - next(after)[label]
            means.append((without / len(rationales), alone / len(rationales)))
        curves.append(ErasureCurve(order, tuple(mean for mean, _ in means), tuple(mean for _, mean in means)))
    return curves


def sentence_flips(rationales: Sequence[Rationale], classify: TextsToProbabilities, seed: int = 0) -> SentenceFlips:
    """Return how often the predicted label changes without one sentence; texts of one sentence are left out."""
    longer = [rationale for rationale in rationales if len(rationale.sentences) > 1]
    _check_any(longer)
    choices = []
    for rationale in longer:
        chance = random.Random(f"{seed} {rationale.text}").randrange(len(rationale.sentences))
        choices += [set[int](), {_largest(rationale.sentence_weights)}, {chance}, rationale.gold_sentence_numbers]
    texts = [erase(longer[at // 4], longer[at // 4].words_of(chosen)) for at, chosen in enumerate(choices)]
    labels = [max(entry, key=lambda name: entry[name]) for entry in classify(texts)]
    flips = [
        sum(labels[at + kind] != labels[at] for at in range(0, len(labels), 4)) / len(longer) for kind in (1, 2, 3)
    ]
    return SentenceFlips(flips[0], flips[1], flips[2], len(longer))


@dataclass(frozen=True)
class ErasedText:
    """A text without some of its words."""

    text: str
    words: Mapping[int, Span]
    """The span in `text` of each word that remains, by its number."""


def erase(rationale: Rationale, numbers: Set[int]) -> str:
    """Return the text without some of its words: see `erase_words`."""
    return erase_words(rationale, numbers).text


def erase_words(rationale: Rationale, numbers: Set[int]) -> ErasedText:
    """Return the text without some of its words; nothing erased gives the text itself.

    A blank line separates the remaining sentences, because a sentence may begin with a small letter now. Punctuation
    that stands alone is erased, too.
    """
    if not numbers:
        return ErasedText(rationale.text, dict(enumerate(rationale.words)))
    text, spans = "", dict[int, Span]()
    for (begin, end), inside in zip(rationale.sentences, rationale.words_by_sentence, strict=True):
        left = [at for at in inside if at not in numbers]
        for at in left:
            word = rationale.text[slice(*rationale.words[at])]
            if at == left[-1]:
                word = _ended(word, rationale.text[begin:end], rationale.text[slice(*rationale.words[inside[-1]])])
            text += " " if at != left[0] else "\n\n" if text else ""
            spans[at] = len(text), len(text) + len(word)
            text += word
    return ErasedText(text, spans)


def _ended(word: str, sentence: str, last: str) -> str:
    """Return a word with the mark that ends its sentence, which the last word of the sentence may have taken with it.

    A last word that is nothing but a mark is erased like any other word.
    """
    mark = re.search(r"\W*$", sentence)
    ending = mark[0] if mark and len(mark[0]) < len(last) else ""
    return word if word.endswith(ending) else word.rstrip(",;:") + ending


def _overlapping(spans: Sequence[Span], others: Sequence[Span]) -> set[int]:
    """Return the numbers of the spans that overlap one of the others."""
    return {
        number
        for number, (begin, end) in enumerate(spans)
        if any(begin < other_end and other_begin < end for other_begin, other_end in others)
    }


def _largest(weights: Sequence[float]) -> int:
    """Return the number of the largest weight, the first one if several are equal."""
    return max(range(len(weights)), key=lambda number: weights[number])


def _check_any(rationales: Sequence[Rationale]) -> None:
    if not rationales:
        raise ValueError("there is no text to judge attention by; give at least one with more than one sentence")
