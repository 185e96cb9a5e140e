"""Scores of tagged words: accuracy, each tag, words unseen in training, confusions, and spans of BIO tags.

Spans are those of the script conlleval of CoNLL-2000 and of seqeval: `I-X` without a span of type X before it begins a
span, and so does a change of type. A span is correct if its first word, its last word and its type are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.score.metric import Score

Tags = Sequence[Sequence[str]]
"""The tags of sentences."""
Span = tuple[int, int, str]
"""First word, last word and type of a span."""

_BIO = re.compile(r"O|[BIES]-.+", re.DOTALL)


@dataclass(frozen=True)
class PrecisionRecall:
    """Counts of predicted, gold and correct items, from which precision, recall and F1 follow."""

    predicted: int
    gold: int
    correct: int

    @property
    def precision(self) -> float:
        """The fraction of the predicted items that are correct; 0 if there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The fraction of the gold items that were predicted; 0 if there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.correct / (self.predicted + self.gold) if self.predicted + self.gold else 0.0


@dataclass(frozen=True)
class MostFrequentTags:
    """A baseline: the most frequent tag of each word in the training data, and for other words that of all words."""

    by_word: Mapping[str, str]
    default: str

    @classmethod
    def count(cls, sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> "MostFrequentTags":
        """Count the tags of sentences, given as words and tags; the first in the alphabet of equally frequent ones."""
        by_word: dict[str, Counter[str]] = {}
        total: Counter[str] = Counter()
        for words, tags in sentences:
            total.update(tags)
            for word, tag in zip(words, tags, strict=True):
                by_word.setdefault(word, Counter())[tag] += 1
        if not total:
            raise ValueError("there are no words to count tags of; name a corpus with tagged sentences")
        return cls({word: _most_frequent(tags) for word, tags in by_word.items()}, _most_frequent(total))

    def __contains__(self, word: str) -> bool:
        """Return whether a word occurs in the training data."""
        return word in self.by_word

    def tag(self, words: Sequence[str]) -> list[str]:
        """Return the tags of the words of a sentence."""
        return [self.by_word.get(word, self.default) for word in words]


@dataclass(frozen=True)
class TaggingReport:
    """Predicted tags, compared with the correct ones word by word."""

    confusion: Mapping[tuple[str, str], int]
    """How often each pair of a correct and a predicted tag occurs."""
    unseen: PrecisionRecall | None
    """Words that do not occur in the training data; None if that is not known."""
    baseline: float | None
    """Accuracy of the most frequent tag of each word; None if it is not known."""
    spans: Mapping[str, PrecisionRecall] | None
    """The spans of each type; None if the tags are not BIO tags."""

    @cached_property
    def words(self) -> int:
        """The number of words."""
        return sum(self.confusion.values())

    @cached_property
    def correct(self) -> int:
        """The number of words with the correct tag."""
        return sum(count for (gold, predicted), count in self.confusion.items() if gold == predicted)

    @cached_property
    def by_tag(self) -> dict[str, PrecisionRecall]:
        """Precision and recall of each tag that occurs or was predicted, in alphabetical order."""
        gold, predicted = Counter[str](), Counter[str]()
        for (answer, guess), count in self.confusion.items():
            gold[answer] += count
            predicted[guess] += count
        return {
            tag: PrecisionRecall(predicted[tag], gold[tag], self.confusion.get((tag, tag), 0))
            for tag in sorted(gold | predicted)
        }

    @property
    def errors(self) -> list[tuple[str, str, int]]:
        """Correct tag, predicted tag and number of each kind of error, the most frequent first."""
        pairs = ((*pair, count) for pair, count in self.confusion.items() if pair[0] != pair[1])
        return sorted(pairs, key=lambda error: (-error[2], error[:2]))

    @property
    def accuracy(self) -> Score:
        """The percentage of words with the correct tag."""
        detail = "" if self.baseline is None else f"(most frequent tag: {100 * self.baseline:.2f})"
        value = 100 * self.correct / self.words if self.words else 0.0
        return Score("accuracy", value, f"words:{self.words}", detail)

    @property
    def span_total(self) -> PrecisionRecall | None:
        """The spans of all types together; None if the tags are not BIO tags."""
        if self.spans is None:
            return None
        return PrecisionRecall(
            sum(counts.predicted for counts in self.spans.values()),
            sum(counts.gold for counts in self.spans.values()),
            sum(counts.correct for counts in self.spans.values()),
        )

    @property
    def scores(self) -> tuple[Score, ...]:
        """Accuracy, accuracy of unseen words if these are known and, for BIO tags, F1 of spans; in percent."""
        scores = [self.accuracy]
        if self.unseen is not None:
            scores.append(Score("unseen", 100 * self.unseen.recall, f"words:{self.unseen.gold}"))
        if (spans := self.span_total) is not None:
            detail = f"(precision {100 * spans.precision:.2f}, recall {100 * spans.recall:.2f})"
            scores.append(Score("span F1", 100 * spans.f1, f"conlleval|spans:{spans.gold}", detail))
        return tuple(scores)


def tagging_report(words: Tags, predicted: Tags, gold: Tags, training: MostFrequentTags | None = None) -> TaggingReport:
    """Compare predicted tags with the correct ones.

    Args:
        words: The words of each sentence.
        predicted: Their predicted tags.
        gold: Their correct tags.
        training: The most frequent tags of the training data, if these are known.

    Raises:
        ValueError: A sentence does not have as many tags as words.
    """
    confusion: Counter[tuple[str, str]] = Counter()
    unseen, unseen_correct, baseline = 0, 0, 0
    for number, (sentence, guesses, right) in enumerate(zip(words, predicted, gold, strict=True), start=1):
        if not len(sentence) == len(guesses) == len(right):
            raise ValueError(
                f"sentence {number} has {len(sentence)} words, {len(guesses)} predicted tags and {len(right)} correct "
                "tags; give one tag for each word"
            )
        confusion.update(zip(right, guesses, strict=True))
        if training is not None:
            matches = [tag == guess for tag, guess in zip(right, guesses, strict=True)]
            new = [word not in training for word in sentence]
            unseen += sum(new)
            unseen_correct += sum(map(bool.__and__, new, matches))
            baseline += sum(tag == guess for tag, guess in zip(right, training.tag(sentence), strict=True))
    return TaggingReport(
        dict(confusion),
        None if training is None else PrecisionRecall(unseen, unseen, unseen_correct),
        None if training is None else baseline / max(confusion.total(), 1),
        count_spans(predicted, gold) if are_bio_tags(tag for tags in gold for tag in tags) else None,
    )


def are_bio_tags(tags: Iterable[str]) -> bool:
    """Return whether all tags are `O` or begin with `B-`, `I-`, `E-` or `S-`, and not all are `O`."""
    distinct = set(tags)
    return bool(distinct - {"O"}) and all(_BIO.fullmatch(tag) for tag in distinct)


def find_spans(tags: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of a sentence's BIO or BIOES tags, as conlleval finds them."""
    begin, before, kind = 0, "O", ""
    for number, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if before in ("B", "I") and prefix in ("I", "E") and name == kind:
            before = prefix
            continue
        if before != "O":
            yield begin, number - 1, kind
        begin, before, kind = number, prefix, name


def count_spans(predicted: Tags, gold: Tags) -> dict[str, PrecisionRecall]:
    """Compare the spans of predicted BIO tags with the correct ones, for each type."""
    counts = {name: Counter[str]() for name in ("predicted", "gold", "correct")}
    for guesses, answers in zip(predicted, gold, strict=True):
        guessed, expected = set(find_spans(guesses)), set(find_spans(answers))
        for name, spans in (("predicted", guessed), ("gold", expected), ("correct", guessed & expected)):
            counts[name].update(kind for _, _, kind in spans)
    kinds = sorted(counts["predicted"] | counts["gold"])
    return {kind: PrecisionRecall(*(counts[name][kind] for name in ("predicted", "gold", "correct"))) for kind in kinds}


def _most_frequent(tags: Counter[str]) -> str:
    return min(tags, key=lambda tag: (-tags[tag], tag))
