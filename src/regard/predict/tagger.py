"""Tag the words of sentences with a trained tagger."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch

from regard.bundle import Bundle
from regard.data.fields import TagsField, WordsField, split_parts
from regard.data.fields.lists import join_list, split_list
from regard.models.tagger import Tagger
from regard.nn.ragged import Ragged
from regard.predict.forward_pass import plain_precision, token_batches
from regard.text import END, START

log = logging.getLogger("regard")


Sentence = str | Sequence[str]
"""A line, whose words are separated by white space or, if it has tabs, by tabs; or a list of words."""


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a sentence with their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    """The probability of each word's tag."""

    def __str__(self) -> str:
        """Return each word with its tag, such as `I_PRON can_AUX go_VERB`."""
        return " ".join(f"{word}_{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return {"words": list(self.words), "tags": list(self.tags), "probabilities": list(self.probabilities)}


@dataclass(frozen=True)
class _Segment:
    """Consecutive words of a sentence that the model reads together."""

    sentence: int
    """Number of the sentence."""
    ids: Sequence[int]
    sizes: Sequence[int]
    """The number of tokens of each word."""


class WordTagger:
    """A trained tagger with its vocabularies.

    >>> tagger = regard.load("runs/ewt")
    >>> tagger("I can go").tags
    ('PRON', 'AUX', 'VERB')
    >>> tagger([["New York", "sleeps"], "I can go"])  # lists of words, or lines
    """

    def __init__(self, model: Tagger, words: WordsField, tags: TagsField, precision: str = "auto") -> None:
        """Tag with a model as it is now, in evaluation mode.

        Args:
            model: The tagger.
            words: The field that encodes words.
            tags: The field with the tags.
            precision: `auto` (bfloat16 on a GPU, otherwise float32), `float32` or `bfloat16`.

        Raises:
            ValueError: There is no such precision for taggers.
        """
        self.model, self.words, self.tags = model, words, tags
        self.precision = plain_precision(precision, self.device)

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "WordTagger":
        """Tag with a trained run, on the device it was loaded to."""
        words, tags = bundle.fields["words"], bundle.fields["tags"]
        assert isinstance(words, WordsField)
        assert isinstance(tags, TagsField)
        return cls(bundle.model, words, tags, precision)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(self, sentences: str) -> TaggedSentence: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, sentences: Sequence[Sentence]) -> list[TaggedSentence]: ...
    def __call__(self, sentences: str | Sequence[Sentence]) -> TaggedSentence | list[TaggedSentence]:
        """Tag a line, or several sentences, each a line or a list of words.

        A sentence with more tokens than the model has positions is tagged in parts, with a warning.

        Raises:
            ValueError: A word in a list is blank.
        """
        if isinstance(sentences, str):
            return self._tag([split_list(sentences)])[0]
        return self._tag([_words_of(sentence, number) for number, sentence in enumerate(sentences, start=1)])

    def _tag(self, sentences: Sequence[Sequence[str]]) -> list[TaggedSentence]:
        """Tag sentences in batches of similar length; return them in their order."""
        segments = list(self._segments(sentences))
        numbers: list[list[tuple[int, float]]] = [[] for _ in segments]
        for batch in token_batches([len(segment.ids) + 2 for segment in segments]):
            for at, found in zip(batch, self._predict([segments[at] for at in batch]), strict=True):
                numbers[at] = found
        found_by_sentence: list[list[tuple[int, float]]] = [[] for _ in sentences]
        for segment, found in zip(segments, numbers, strict=True):
            found_by_sentence[segment.sentence] += found
        classes = self.tags.classes
        return [
            TaggedSentence(
                tuple(words), tuple(classes[number] for number, _ in found), tuple(value for _, value in found)
            )
            for words, found in zip(sentences, found_by_sentence, strict=True)
        ]

    def _segments(self, sentences: Sequence[Sequence[str]]) -> Iterator[_Segment]:
        """Yield each sentence with words, in parts if it has more tokens than the model can read."""
        if not sentences:
            return
        tokens, sizes = split_parts(self.words.encode([join_list(words) for words in sentences]))
        limit = self.model.max_positions
        for number in range(len(sentences)):
            ids = tokens.ids[tokens.offsets[number] : tokens.offsets[number + 1]]
            lengths = sizes.ids[sizes.offsets[number] : sizes.offsets[number + 1]]
            if not lengths.size:
                continue
            if limit is None or ids.size + 2 <= limit:
                yield _Segment(number, ids.tolist(), lengths.tolist())
                continue
            log.warning(
                "sentence %d has %d tokens, but the model has %d positions; it is tagged in parts",
                number + 1,
                ids.size + 2,
                limit,
            )
            yield from _parts(number, ids.tolist(), lengths.tolist(), limit - 2)

    @torch.no_grad()
    def _predict(self, segments: Sequence[_Segment]) -> list[list[tuple[int, float]]]:
        """Return the number and the probability of the tag of each word."""
        tokens = Ragged.from_list([[START, *segment.ids, END] for segment in segments]).to(self.device)
        words = Ragged.from_list([list(segment.sizes) for segment in segments]).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            logits_MV = self.model(tokens, words)
        probabilities_M, tags_M = logits_MV.float().softmax(-1).max(-1)
        pairs = list(zip(tags_M.tolist(), probabilities_M.tolist(), strict=True))
        ends = np.cumsum([0, *(len(segment.sizes) for segment in segments)]).tolist()
        return [pairs[begin:end] for begin, end in pairwise(ends)]


def _words_of(sentence: Sentence, number: int) -> list[str]:
    """Return the words of a sentence, without white space around them."""
    if isinstance(sentence, str):
        return split_list(sentence)
    # A tab would separate two words.
    words = [word.replace("\t", " ").strip() for word in sentence]
    if not all(words):
        raise ValueError(f"word {words.index('') + 1} of sentence {number} is blank; leave it out")
    return words


def _parts(number: int, ids: Sequence[int], sizes: Sequence[int], limit: int) -> Iterator[_Segment]:
    """Yield a sentence in parts of whole words with at most `limit` tokens; a longer word loses its end."""
    begin, part_ids, part_sizes = 0, list[int](), list[int]()
    for size in sizes:
        word = ids[begin : begin + min(size, limit)]
        begin += size
        if len(part_ids) + len(word) > limit:
            yield _Segment(number, part_ids, part_sizes)
            part_ids, part_sizes = [], []
        part_ids += word
        part_sizes.append(len(word))
    yield _Segment(number, part_ids, part_sizes)
