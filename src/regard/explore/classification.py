"""Answer questions about a classifier: classes and attention weights of a text, and the effects of erasing its parts.

Attention weights are not explanations, so the page shows beside each of them how much the probability of a class
changes if this sentence or word is erased. Erasing is that of `regard.score.rationale`, by which attention is judged.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.analysis.attention import make_rationale
from regard.explore.frames import Message
from regard.explore.info import ModelInfo, is_right_to_left
from regard.explore.model import ResultCache
from regard.explore.passes import IsStale, StaleQuestionError
from regard.explore.questions import (
    AnyQuestion,
    ClassifyQuestion,
    EffectsQuestion,
    EraseParts,
    InputField,
    TokensQuestion,
)
from regard.explore.read import tokens_message
from regard.explore.tokens import tokenize_input
from regard.predict.classifier import AttendedSpan, AttentionLevel, ClassifiedText, TextClassifier
from regard.score.rationale import Rationale, Span, erase_words

ErasedPart = tuple[AttentionLevel, int, Collection[int]]
"""A sentence or word by its number, with the numbers of its words."""

BLOCK = 32
"""Texts that are classified before the next frame; a question that became stale stops between two blocks."""


@dataclass(frozen=True, eq=False)
class ReadText:
    """A text with its sentences and words, without some of them, and what the classifier says about the rest."""

    rationale: Rationale
    """The whole text, with the weights that it has if nothing is erased."""
    erased: frozenset[int]
    """Numbers of the words that are erased."""
    result: ClassifiedText
    """The classified rest."""
    remaining: dict[int, Span]
    """Spans of the remaining words in the rest, by number."""


class InspectedClassifier:
    """A text classifier under inspection; its latest results are cached."""

    input_field: ClassVar[InputField] = "text"

    def __init__(self, name: str, predictor: TextClassifier, info: ModelInfo) -> None:
        """Inspect a classifier; nothing else may record or change its model at the same time."""
        self.name, self.predictor, self.info, self.cache = name, predictor, info, ResultCache()

    def describe(self) -> dict[str, Any]:
        """Return what the page needs to know about the model before the first question."""
        model, tokenizer = self.predictor.model, self.predictor.text_field.tokenizer
        return {
            "name": self.name,
            "task": "classification",
            "input": self.input_field,
            "family": self.info.family,
            "parts": [],
            "classes": list(self.predictor.classes),
            "several": self.predictor.several,
            "levels": list(self.predictor.attention_levels),
            "width": model.output.weight.shape[1],
            "vocabulary": len(tokenizer),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "rtl": {"source": is_right_to_left(None, tokenizer), "target": False},
            "examples": list(self.info.examples),
            "longest": self.predictor.longest,
            "learned_positions": False,
        }

    def answer(self, question: AnyQuestion, is_stale: IsStale) -> Iterator[Message]:
        """Yield the messages that answer a question, or raise a `ValueError` if a classifier cannot answer it."""
        match question:
            case TokensQuestion():
                text = tokenize_input(question.input_text(self.input_field), self.predictor.text_field.tokenizer, False)
                return iter([({**tokens_message(text), "last": True}, {})])
            case ClassifyQuestion():
                text_read = self.read(question.input_text(self.input_field), question.changes)
                return iter([({**document_message(text_read, self.predictor.attention_levels), "last": True}, {})])
            case EffectsQuestion():
                return self._effects(question, is_stale)
        raise ValueError(
            f"{self.name} is a classifier, which does not answer '{question.kind}'; ask 'classify' or 'effects'"
        )

    def read(self, text: str, changes: Sequence[EraseParts] = ()) -> ReadText:
        """Classify a text without the parts that changes erase, or raise a `ValueError` if there are no such parts."""
        rationale, unchanged = self.cache.get(("whole", text), lambda: self._read_whole(text))
        erased = frozenset[int]().union(*(_words_erased(rationale, change) for change in changes))
        if not erased:
            return ReadText(rationale, erased, unchanged, dict(enumerate(rationale.words)))
        rest = erase_words(rationale, erased)
        (result,) = self._classify([rest.text], attention=bool(self.predictor.attention_levels))
        return ReadText(rationale, erased, result, dict(rest.words))

    def _read_whole(self, text: str) -> tuple[Rationale, ClassifiedText]:
        """Classify a whole text, and find its sentences and words."""
        if not text.strip():
            raise ValueError("the input text is empty; type some words")
        (result,) = self._classify([text], attention=bool(self.predictor.attention_levels))
        spans = result.words
        if spans is None:
            spans = tuple(AttendedSpan(*span, 0.0) for span in self.predictor.words_read(text))
        if not spans:
            raise ValueError("the model reads no word of this text; type another one")
        return make_rationale(replace(result, words=spans)), result

    def _effects(self, question: EffectsQuestion, is_stale: IsStale) -> Iterator[Message]:
        """Yield how the probability of each class changes if one more sentence or word is erased, block by block.

        The sentences come first, then the words, those with the largest weights first.
        """
        text_read = self.read(question.input_text(self.input_field), question.changes)
        rationale, before = text_read.rationale, self._vector(text_read.result)
        words = sorted(text_read.remaining, key=lambda number: -rationale.word_weights[number])
        sentences: list[ErasedPart] = [
            ("sentence", number, inside)
            for number, inside in enumerate(rationale.words_by_sentence)
            if not text_read.erased.issuperset(inside)
        ]
        blocks = [*_blocks(sentences), *_blocks([("word", number, [number]) for number in words])]
        for place, block in enumerate(blocks):
            if is_stale():
                raise StaleQuestionError
            texts = tuple(erase_words(rationale, text_read.erased.union(inside)).text for _, _, inside in block)
            after = self._probabilities(texts)
            message = {"kind": "effects", "level": block[0][0], "numbers": [number for _, number, _ in block]}
            yield {**message, "last": place == len(blocks) - 1}, {"change": (after - before).astype(np.float32)}
        if not blocks:
            change = np.zeros((0, len(before)), np.float32)
            yield {"kind": "effects", "level": "word", "numbers": [], "last": True}, {"change": change}

    def _classify(self, texts: Sequence[str], attention: bool = False) -> list[ClassifiedText]:
        return self.predictor.classify(texts, attention=attention)

    def _probabilities(self, texts: tuple[str, ...]) -> NDArray[np.float64]:
        """Return the probability of each class for each text, (texts, classes)."""

        def run() -> NDArray[np.float64]:
            return np.stack([self._vector(result) for result in self._classify(texts)])

        return self.cache.get(("probabilities", texts), run, lambda table: table.nbytes)

    def _vector(self, result: ClassifiedText) -> NDArray[np.float64]:
        """Return the probabilities of all classes, in the order of the model's classes."""
        return np.array([result.probabilities[name] for name in self.predictor.classes])


def document_message(text: ReadText, levels: Sequence[AttentionLevel]) -> dict[str, Any]:
    """Return the message with the classes of a text, and the spans and weights of its sentences and words.

    Spans are those in the whole text. What is erased has no weight, nor has anything if the model has none.
    """
    rationale, result = text.rationale, text.result
    table = {**result.to_json(), "kind": "document", "text": result.text, "erased": sorted(text.erased)}
    words, sentences = rationale.word_weights, rationale.sentence_weights
    if text.erased and levels:
        words, sentences = _weights_of_rest(text)
    present = set(text.remaining)
    kept = [bool(levels) and number in present for number in range(len(rationale.words))]
    table["words"] = _weighted(rationale.words, words, kept)
    kept = [bool(levels) and not present.isdisjoint(inside) for inside in rationale.words_by_sentence]
    table["sentences"] = _weighted(rationale.sentences, sentences, kept)
    return table


def _weights_of_rest(text: ReadText) -> tuple[list[float], list[float]]:
    """Return the weights of words and sentences that remain, by their numbers in the whole text; 0 for the others.

    The rest may be split into words and sentences in another way, so weights are added up.
    """
    rationale, result = text.rationale, text.result
    assert result.words is not None, "the rest was classified with attention"
    words, sentences = [0.0] * len(rationale.words), [0.0] * len(rationale.sentences)
    numbers, starts = list(text.remaining), [start for start, _ in text.remaining.values()]
    begins = [begin for begin, _ in rationale.sentences]

    def word_at(place: int) -> int:
        return numbers[bisect_right(starts, place) - 1]

    def sentence_at(place: int) -> int:
        return bisect_right(begins, rationale.words[word_at(place)][0]) - 1

    for span in result.words:
        words[word_at(span.start)] += span.weight
    for span in result.words if result.sentences is None else result.sentences:
        sentences[sentence_at(span.start)] += span.weight
    return words, sentences


def _weighted(spans: Sequence[Span], weights: Sequence[float], kept: Sequence[bool]) -> list[list[float | None]]:
    return [
        [start, end, weight if keep else None] for (start, end), weight, keep in zip(spans, weights, kept, strict=True)
    ]


def _words_erased(rationale: Rationale, change: EraseParts) -> set[int]:
    """Return the numbers of the words that a change erases, or raise a `ValueError` if the text has no such part."""
    count = len(rationale.sentences if change.level == "sentence" else rationale.words)
    for number in change.numbers:
        if number >= count:
            raise ValueError(f"there is no {change.level} {number} in this text; they are 0 to {count - 1}")
    return rationale.words_of(change.numbers) if change.level == "sentence" else set(change.numbers)


def _blocks(parts: Sequence[ErasedPart]) -> list[Sequence[ErasedPart]]:
    return [parts[at : at + BLOCK] for at in range(0, len(parts), BLOCK)]
