"""Classification of texts by a trained model: labels, probabilities and attention weights."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray

import regard
from regard.bundle import Bundle
from regard.data.fields import DocumentField, LabelField, LabelsField, TextField
from regard.data.fields.nested import cut_parts, split_parts
from regard.data.rows import Rows
from regard.models.classifier import Classifier
from regard.nn.pooling import AttentionPooling
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.predict.forward_pass import plain_precision, token_batches
from regard.text import END, START, Token, words
from regard.text.sentences import split_sentences

_log = logging.getLogger("regard")

THRESHOLD = 0.5  # probability from which one of several labels is predicted
WORDS, SENTENCES = "encoder.words.pooling.weights", "encoder.sentences.pooling.weights"
TOKENS = "pooling.weights"
"""Taps of attention weights: over the words and sentences of a document, and over the tokens of a text."""


AttentionLevel = Literal["word", "sentence"]


@dataclass(frozen=True)
class AttendedSpan:
    """A word or sentence `text[start:end]` and its attention weight."""

    start: int
    end: int
    weight: float


class Classified(Protocol):
    """What is predicted for a text or a picture."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The predicted labels."""

    @property
    def probability(self) -> float:
        """Probability of the prediction."""

    @property
    def probabilities(self) -> Mapping[str, float]:
        """Probability of each class, the most probable first."""


@dataclass(frozen=True)
class ClassifiedText:
    """The predicted label of a text, with the probability of each class."""

    text: str
    labels: tuple[str, ...]
    """The predicted label or, if a text may have several labels, all that have a probability of at least one half."""
    probability: float
    """Probability of the prediction: of the label or, if a text may have several, that these and no others are right,
    as if labels were independent."""
    probabilities: Mapping[str, float]
    """Probability of each class, the most probable first."""
    words: tuple[AttendedSpan, ...] | None = field(default=None, repr=False)
    """Attention weight of each word, if it was asked for. The symbols around a text have weights of their own, so the
    weights of words may sum to less than one. In a document, it is the weight of the word in its sentence times that
    of the sentence. What a model does not read has no weight."""
    sentences: tuple[AttendedSpan, ...] | None = field(default=None, repr=False)
    """Attention weight of each sentence of a document, if it was asked for; they sum to one."""

    @property
    def label(self) -> str:
        """The predicted label; several are separated by commas."""
        return ",".join(self.labels)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the text as a JSON object."""
        table: dict[str, Any] = {"label": self.label, "labels": list(self.labels), "probability": self.probability}
        table["probabilities"] = dict(self.probabilities)
        for name, spans in (("words", self.words), ("sentences", self.sentences)):
            if spans is not None:
                table[name] = [[span.start, span.end, span.weight] for span in spans]
        return table


def classifier_inputs(rows: Rows, hierarchical: bool, longest: int) -> tuple[Ragged, Ragged | None]:
    """Return encoded texts as a classifier reads them: their tokens and, of documents, the sizes of their sentences.

    Args:
        rows: Encoded values of a text or document field.
        hierarchical: Whether they are documents.
        longest: Maximum number of tokens of a text, symbols not counted; the end of a longer one is cut off.
    """
    if not hierarchical:
        return rows.cut(longest).prepend(START).append(END).to_ragged(), None
    tokens, sizes = split_parts(cut_parts(rows, longest))
    return tokens.to_ragged(), sizes.to_ragged()


class TextClassifier:
    """A trained classifier with its tokenizer and its classes.

    >>> classifier = regard.load("runs/20news")
    >>> classifier("The engine of my car makes a strange noise.").label
    """

    def __init__(
        self,
        model: Classifier,
        text: TextField,
        labels: LabelField,
        longest: int,
        precision: str = "float32",
    ) -> None:
        """Classify with a model as it is now.

        Args:
            model: The classifier.
            text: The field of the texts, with its tokenizer; a `DocumentField` for a hierarchical model.
            labels: The field of the labels; a `LabelsField` if a text may have several.
            longest: Maximum number of tokens of a text, as in training.
            precision: Precision of matrix products: `float32` or `bfloat16`.
        """
        self.model, self.text_field, self.label_field, self.precision = model, text, labels, precision
        limit = model.max_positions
        self.longest = longest if limit is None else min(longest, limit - 2)

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "TextClassifier":
        """Classify with a trained run, on the device it was loaded to."""
        model, text, labels = bundle.model, bundle.fields["text"], bundle.fields["label"]
        assert isinstance(text, TextField)
        assert isinstance(labels, LabelField)
        precision = plain_precision(precision, model.output.weight.device)
        return cls(model, text, labels, bundle.recipe.data.longest, precision)

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels that it knows, in alphabetical order."""
        return self.label_field.classes

    @property
    def several(self) -> bool:
        """Whether a text may have several labels."""
        return isinstance(self.label_field, LabelsField)

    @property
    def attention_levels(self) -> tuple[AttentionLevel, ...]:
        """What it pools with attention weights: words, or words and sentences; nothing if it has no such weights."""
        if self.model.hierarchical:
            return ("word", "sentence")
        return ("word",) if isinstance(self.model.pooling, AttentionPooling) else ()

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a str is a Sequence[str], too
        self, texts: str, *, attention: bool = False, first: int = 1
    ) -> ClassifiedText: ...
    @overload
    def __call__(self, texts: Sequence[str], *, attention: bool = False, first: int = 1) -> list[ClassifiedText]: ...
    def __call__(
        self, texts: str | Sequence[str], *, attention: bool = False, first: int = 1
    ) -> ClassifiedText | list[ClassifiedText]:
        """Classify a text or a list of texts.

        Args:
            texts: The texts. The end of a text with more tokens than the model reads is ignored, with a warning.
            attention: Whether to return the attention weights of words and sentences, too.
            first: Number of the first text, for warnings.

        Raises:
            ValueError: If attention weights are asked for and the model has none.
        """
        if isinstance(texts, str):
            return self([texts], attention=attention, first=first)[0]
        rows = self._encode(texts)
        cut = np.flatnonzero(rows.lengths > self.longest)
        if cut.size:
            _log.warning(
                "%d of %d texts have more than %d tokens, which is all that the model reads of a text; their ends are "
                "ignored (text %d has %d)",
                *(cut.size, len(texts), self.longest, cut[0] + first, rows.lengths[cut[0]]),
            )
        return self.classify(texts, rows, attention)

    def classify(self, texts: Sequence[str], rows: Rows | None = None, attention: bool = False) -> list[ClassifiedText]:
        """Classify texts without a warning about long ones; `rows` are the encoded texts, if they are known."""
        if attention:
            self._check_attention()
        rows = self._encode(texts) if rows is None else rows
        results: list[ClassifiedText | None] = [None] * len(texts)
        for indices in token_batches((np.minimum(rows.lengths, self.longest) + 2).tolist()):
            probabilities, weights = self._run(rows.take(np.array(indices)), attention)
            for number, index in enumerate(indices):
                result = self._result(texts[index], probabilities[number])
                results[index] = self._with_attention(result, weights[number]) if attention else result
        return [result for result in results if result is not None]

    def words_read(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of the words of a text that a model without sentences reads; the end may be cut off."""
        tokens = self.text_field.tokenizer.tokens(text)[: self.longest]
        return [(span.start, span.end) for span in _word_spans(text, tokens, np.zeros(len(tokens)))]

    def look(self, text: str = "", **options: Any) -> Any:
        """Open the explorer of this classifier in a notebook: see `regard.look`."""
        return regard.look(self, text, **options)

    def _encode(self, texts: Sequence[str]) -> Rows:
        return self.text_field.encode(texts) if texts else Rows(np.empty(0, np.int32), np.zeros(1, np.int64))

    def _check_attention(self) -> None:
        if not self.attention_levels:
            raise ValueError(
                "this model has no attention weights over a whole text; train one with "
                "classification.pooling = 'attention', or with model.kind = 'han'"
            )

    def _run(self, rows: Rows, attention: bool) -> tuple[NDArray[np.float64], list[tuple[NDArray[np.float64], ...]]]:
        """Return the probabilities of all classes for each text, and its attention weights if they are asked for."""
        device, model = self.device, self.model
        tokens, sizes = classifier_inputs(rows, model.hierarchical, self.longest)
        tokens, sizes = tokens.to(device), None if sizes is None else sizes.to(device)
        half = torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        weights: list[tuple[NDArray[np.float64], ...]] = []
        with torch.no_grad(), half:
            if not attention:
                logits_BV = model(tokens, sizes)
            else:
                with recording(model, "*pooling.weights") as recorded:
                    logits_BV = model(tokens, sizes)
                weights = list(_attention_by_text(recorded, tokens, sizes))
        logits_BV = logits_BV.double()
        return (logits_BV.sigmoid() if self.several else logits_BV.softmax(-1)).cpu().numpy(), weights

    def _result(self, text: str, probabilities: NDArray[np.float64]) -> ClassifiedText:
        """Return the prediction for a text from the probabilities of its classes."""
        ranked = np.argsort(-probabilities, kind="stable").tolist()
        by_class = {self.classes[number]: float(probabilities[number]) for number in ranked}
        if not self.several:
            best = self.classes[ranked[0]]
            return ClassifiedText(text, (best,), by_class[best], by_class)
        chosen = probabilities >= THRESHOLD
        labels = tuple(self.classes[number] for number in np.flatnonzero(chosen))
        return ClassifiedText(text, labels, float(np.where(chosen, probabilities, 1 - probabilities).prod()), by_class)

    def _with_attention(self, result: ClassifiedText, weights: tuple[NDArray[np.float64], ...]) -> ClassifiedText:
        """Return a result with the attention weights of the words and sentences of its text."""
        text, tokenizer = result.text, self.text_field.tokenizer
        if not isinstance(self.text_field, DocumentField):
            (by_token,) = weights
            spans = _word_spans(text, tokenizer.tokens(text), by_token[1:-1])  # without the symbols around the text
            return replace(result, words=tuple(spans))
        by_word, by_sentence, sizes = weights
        attended, sentences, begin = list[AttendedSpan](), list[AttendedSpan](), 0
        parts = split_sentences(text)[: len(by_sentence)]
        for (start, end), share, size in zip(parts, by_sentence.tolist(), sizes.astype(int).tolist(), strict=True):
            part = text[start:end]
            for span in _word_spans(part, tokenizer.tokens(part), by_word[begin : begin + size]):
                attended.append(AttendedSpan(start + span.start, start + span.end, share * span.weight))
            sentences.append(AttendedSpan(start, end, share))
            begin += size
        return replace(result, words=tuple(attended), sentences=tuple(sentences))


def _attention_by_text(
    recorded: Mapping[str, list[torch.Tensor]], tokens: Ragged, sizes: Ragged | None
) -> Iterator[tuple[NDArray[np.float64], ...]]:
    """Yield the recorded weights of each text: of its tokens or, of a document, of words and sentences and their sizes.

    A batch of empty documents records nothing.
    """

    def split(name: str, batch: Ragged) -> list[NDArray[np.float64]]:
        values = recorded[name][0] if recorded[name] else torch.zeros(batch.tokens)
        return [part.double().cpu().numpy() for part in batch.with_values(values).to_list()]

    if sizes is None:
        yield from ((weights,) for weights in split(TOKENS, tokens))
        return
    counts = [part.cpu().numpy().astype(np.float64) for part in sizes.to_list()]
    yield from zip(split(WORDS, tokens), split(SENTENCES, sizes), counts, strict=True)


def _word_spans(text: str, tokens: Sequence[Token], weights: NDArray[np.float64]) -> list[AttendedSpan]:
    """Return the words of a text with the sum of the weights of their tokens; words without a weight are left out."""
    if not tokens and weights.size:  # normalisation removes this text, and one unknown token stands for it
        return [AttendedSpan(0, len(text), float(weights.sum()))]
    spans = words(text)
    sums: dict[tuple[int, int], float] = {}
    for token, weight in zip(tokens, weights.tolist(), strict=False):  # the end of the text may be cut off
        span = (token.start, token.end) if token.word is None else spans[token.word]
        sums[span] = sums.get(span, 0.0) + weight
    return [AttendedSpan(*span, weight) for span, weight in sums.items()]
