"""Search for the translations of segments: options of the search, batches of similar length, retries, and reranking."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from regard import decode
from regard.decode import Hypothesis
from regard.engines import SteppableModel
from regard.options import (
    BeamOptions,
    CoverageOptions,
    GenerationOptions,
    OptionError,
    SamplingOptions,
    TranslationOptions,
)
from regard.predict.engine import encoder_input, run_search
from regard.predict.segments import SourceSegment
from regard.score.pairwise import pairwise_chrf
from regard.text import END, PAD, START, Tokenizer, find_phrase

SearchResult = list[Hypothesis] | Exception
"""The hypotheses of a segment, best first, or the error that its search failed with."""

EXTRA_TOKENS = 10
"""Tokens that a translation may have besides `longest` for each source token."""
MAX_RETRIES = 8
"""Repetitions of a search whose hypotheses contain a phrase to avoid, each time in other tokens."""


@lru_cache(maxsize=256)
def translation_search(options: TranslationOptions, max_target: int) -> decode.SearchOptions:
    """Return the options of the search for a translation of at most `max_target` tokens."""
    if options.min_length > max_target:
        raise OptionError(
            "{min_length} is {0}, but this model has positions for {1} target tokens; use a smaller minimum",
            options.min_length,
            max_target,
        )
    maximum = min(max_target, options.max_length or max_target)
    limits = decode.LengthLimits(options.min_length, maximum, max_ratio=options.longest, max_extra=EXTRA_TOKENS)
    return search_options(options, limits, samples=_samples(options))


def search_rows(options: TranslationOptions) -> int:
    """Return the number of rows that the search for one segment has."""
    return _samples(options) or options.beam


def _samples(options: TranslationOptions) -> int:
    """Return the number of samples to draw; 0 is beam search."""
    return options.mbr or (options.nbest if options.sample else 0)


def search_options(
    options: TranslationOptions | GenerationOptions, limits: decode.LengthLimits, samples: int, free_cut: bool = False
) -> decode.SearchOptions:
    """Return the options of a beam search, or of sampling if `samples` is not 0."""
    beam = options.subset(BeamOptions)
    if samples:
        beam = beam.override(nbest=samples, groups=1)
    return decode.SearchOptions(
        **vars(beam) | {"diversity": beam.diversity if beam.groups > 1 else 0.0},
        coverage_penalty=options.coverage_penalty if isinstance(options, CoverageOptions) else 0.0,
        begin=START,
        end=END,
        sampling=options.subset(SamplingOptions) if samples else None,
        limits=limits,
        free_cut=free_cut,
        banned=(PAD, START),
    )


def batches_by_length(lengths: Sequence[int], rows: int, budget: int) -> Iterator[list[int]]:
    """Yield batches of sequences as lists of their indices, longest first.

    Args:
        lengths: Length of each sequence.
        rows: Rows that each sequence takes in a batch, such as the beam width.
        budget: Maximum of padded tokens times rows in a batch; a longer sequence gets its own batch.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * rows * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def search_batch(
    engine: SteppableModel,
    segments: Sequence[SourceSegment],
    options: decode.SearchOptions,
    device: torch.device,
    search: Callable[..., list[list[Hypothesis]]] = decode.search,
) -> list[list[Hypothesis]]:
    """Search for the hypotheses of some segments in one batch."""
    inputs = encoder_input([segment.ids for segment in segments], device)
    return run_search(engine, inputs, [segment.options for segment in segments], options, search)


def search_segments(
    segments: Sequence[SourceSegment],
    options: TranslationOptions,
    tokenizer: Tokenizer,
    search: Callable[[Sequence[SourceSegment]], list[list[Hypothesis]]],
) -> list[SearchResult]:
    """Search for the hypotheses of some segments; a segment that fails does not affect the others.

    The search avoids the usual tokens of a phrase to avoid. Hypotheses that contain the phrase in other tokens are
    discarded, and the segment is searched again without these tokens too. With `options.mbr`, samples are ranked by
    minimum Bayes risk.

    Args:
        segments: What to translate.
        options: Options of the translation.
        tokenizer: Tokenizer of the target.
        search: Returns the hypotheses of some segments; called again for some after a failure or for a retry.
    """
    current = list(segments)
    results = _search_or_bisect(current, search)
    for _ in range(MAX_RETRIES):
        retries = {}
        for index, (segment, result) in enumerate(zip(current, results, strict=True)):
            if segment.avoid and not isinstance(result, Exception):
                avoided = segment.options.avoid
                tokens = {ids for hypothesis in result for ids in _avoided_tokens(hypothesis, segment, tokenizer)}
                if tokens := tokens - {*avoided}:
                    sentence = replace(segment.options, avoid=(*avoided, *sorted(tokens)))
                    retries[index] = replace(segment, options=sentence)
        if not retries:
            break
        for (index, segment), result in zip(
            retries.items(), _search_or_bisect(list(retries.values()), search), strict=True
        ):
            current[index], results[index] = segment, result
    if not options.mbr:
        return results
    return [
        result if isinstance(result, Exception) else _rank_by_risk(result, tokenizer, options.nbest)
        for result in results
    ]


def _search_or_bisect(
    segments: Sequence[SourceSegment], search: Callable[[Sequence[SourceSegment]], list[list[Hypothesis]]]
) -> list[SearchResult]:
    """Search for all segments at once; after a failure, for each half, down to the segment that causes it."""
    try:
        return [
            hypotheses
            or ValueError(
                f"no translation satisfies all constraints ({len(segment.options.constraints)} phrases to contain, "
                f"{len(segment.options.avoid)} to avoid); remove some, or allow more tokens"
            )
            for segment, hypotheses in zip(segments, search(segments), strict=True)
        ]
    except Exception as error:
        if len(segments) == 1:
            return [error]
    half = len(segments) // 2
    return _search_or_bisect(segments[:half], search) + _search_or_bisect(segments[half:], search)


def _avoided_tokens(hypothesis: Hypothesis, segment: SourceSegment, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    """Yield the tokens in which a hypothesis contains a phrase to avoid, unless the given prefix contains it."""
    text = tokenizer.decode(hypothesis.tokens)
    for phrase in segment.avoid:
        for start, end in find_phrase(phrase, text):
            tokens = enumerate(tokenizer.tokens_of(hypothesis.tokens))
            inside = [index for index, token in tokens if token.start < end and token.end > start]
            if inside and inside[-1] >= len(segment.options.prefix):
                yield hypothesis.tokens[inside[0] : inside[-1] + 1]


def _rank_by_risk(hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, nbest: int) -> list[Hypothesis]:
    """Return the samples most similar to all samples, with their mean chrF as score (Eikema & Aziz 2020)."""
    texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses]
    first = dict(zip(reversed(texts), reversed(hypotheses), strict=True))
    index = {text: number for number, text in enumerate(first)}
    similarity = pairwise_chrf(list(index))
    ranked = decode.minimum_bayes_risk(texts, lambda sample, other: float(similarity[index[sample], index[other]]))
    return [replace(first[text], score=value) for text, value in ranked[:nbest]]
