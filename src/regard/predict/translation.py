"""The result of a translation, assembled from the hypotheses of its segments."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regard.decode import Hypothesis
from regard.predict.alignment import AttentionMatrix, Link, align_words
from regard.predict.search import SearchResult
from regard.predict.segments import SourceSegment, join_segments
from regard.predict.teacher_forcing import TokenPair
from regard.text import Tokenizers, word_of, words

WeightedHypotheses = Sequence[tuple[Hypothesis, AttentionMatrix | None]]
"""Hypotheses of a segment, best first, each with the attention weights of its tokens if an alignment is wanted."""

_LINE_ENDS = str.maketrans("\n\r\t", "   ")


@dataclass(frozen=True)
class Translation:
    """The translation of a line: the best hypothesis, and in `nbest` all of them.

    >>> result = translator("I can go alone")
    >>> result.text, result.score, result.alignment
    """

    source: str
    """The line as it was given."""
    text: str
    score: float
    """What hypotheses are ranked by: the log-probability with length and coverage penalties."""
    logprob: float
    """Log-probability given the source, in nats."""
    tokens: tuple[str, ...]
    """The subwords of the text."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token and of the end symbol; a line in segments has an end symbol for each."""
    alignment: tuple[Link, ...] | None = None
    """Indices of aligned source and target words; None if it was not asked for, or the model has no attention."""
    nbest: tuple["Translation", ...] = field(default=(), repr=False)
    fault: str = ""
    """Why the line could not be translated; empty if it could."""

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    @property
    def line(self) -> str:
        """The text on one line, without tabs."""
        return self.text.translate(_LINE_ENDS)

    def pharaoh(self) -> str:
        """Return the alignment in Pharaoh format, such as `0-0 1-2`."""
        return " ".join(f"{source}-{target}" for source, target in self.alignment or ())

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object; JSON has no infinity, so an infinite score is null."""
        table: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": _finite(self.score),
            "logprob": _finite(self.logprob),
            "tokens": list(self.tokens),
            "token_logprobs": [_finite(logprob) for logprob in self.token_logprobs],
        }
        if self.alignment is not None:
            table["alignment"] = [list(link) for link in self.alignment]
        if len(self.nbest) > 1:
            table["nbest"] = [{**hypothesis.to_json(), "source": self.source} for hypothesis in self.nbest]
        if self.fault:
            table["fault"] = self.fault
        return table


def empty_translation(source: str, fault: str = "", aligned: bool = True) -> Translation:
    """Return the translation of an empty line, or of a line that could not be translated.

    Args:
        source: The line.
        fault: Why the line could not be translated.
        aligned: Give an empty line an empty alignment instead of none.
    """
    score = -math.inf if fault else 0.0
    alignment = () if aligned and not fault else None
    empty = Translation(source, "", score, score, (), (), alignment, (), fault)
    return replace(empty, nbest=(empty,))


def with_weights(
    segments: Sequence[SourceSegment],
    results: Sequence[SearchResult],
    weights_of: Callable[[Sequence[TokenPair]], Sequence[AttentionMatrix]] | None,
) -> list[WeightedHypotheses | Exception]:
    """Pair each hypothesis with its attention weights, or with None if `weights_of` is None.

    Args:
        segments: The segments that were searched for.
        results: The hypotheses of each segment, or the error that its search failed with.
        weights_of: Returns the attention weights of pairs of source and target ids; called once, for all hypotheses.
    """
    pairs = [
        (segment.ids, hypothesis.tokens)
        for segment, result in zip(segments, results, strict=True)
        if not isinstance(result, Exception)
        for hypothesis in result
    ]
    weights = iter(weights_of(pairs) if weights_of is not None and pairs else [None] * len(pairs))
    return [
        result if isinstance(result, Exception) else [(hypothesis, next(weights)) for hypothesis in result]
        for result in results
    ]


def assemble(
    line: str, parts: Sequence[tuple[SourceSegment, WeightedHypotheses]], tokenizers: Tokenizers
) -> Translation:
    """Return the translation of a line: the best hypotheses of its segments joined, then the second best, and so on."""
    ranks = min(len(hypotheses) for _, hypotheses in parts)
    nbest = tuple(
        _join(line, [(segment, *hypotheses[rank]) for segment, hypotheses in parts], tokenizers)
        for rank in range(ranks)
    )
    return replace(nbest[0], nbest=nbest)


def _join(
    line: str, parts: Sequence[tuple[SourceSegment, Hypothesis, AttentionMatrix | None]], tokenizers: Tokenizers
) -> Translation:
    """Join one hypothesis of each segment; the score is the mean of theirs, weighted by their number of tokens."""
    tokenizer, hypotheses = tokenizers["target"], [hypothesis for _, hypothesis, _ in parts]
    text, begins = join_segments([tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses])
    score, logprob = hypotheses[0].score, hypotheses[0].logprob
    if len(parts) > 1:
        counts = [max(1, len(hypothesis.token_logprobs)) for hypothesis in hypotheses]
        scores = (hypothesis.score * count for hypothesis, count in zip(hypotheses, counts, strict=True))
        score, logprob = sum(scores) / sum(counts), sum(hypothesis.logprob for hypothesis in hypotheses)
    joined = Translation(
        line,
        text,
        score,
        logprob,
        tuple(tokenizer.piece(token) for hypothesis in hypotheses for token in hypothesis.tokens),
        tuple(logprob for hypothesis in hypotheses for logprob in hypothesis.token_logprobs),
    )
    if any(weights is None for *_, weights in parts):
        return joined
    source_spans, target_spans = words(line), words(text)
    links: set[Link] = set()
    for (segment, hypothesis, weights), begin in zip(parts, begins, strict=True):
        assert weights is not None
        source = segment.word_indices(tokenizers["source"], source_spans)
        target = [word_of(target_spans, token.start + begin) for token in tokenizer.tokens_of(hypothesis.tokens)]
        links.update(align_words(weights, source, target))
    return replace(joined, alignment=tuple(sorted(links)))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
