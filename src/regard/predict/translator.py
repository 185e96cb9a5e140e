"""Translate lines with a trained encoder-decoder, with scores and word alignments."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, overload

import torch

import regard
from regard import decode
from regard.bundle import Bundle
from regard.engines import SteppableModel, parallel
from regard.models.seq2seq import Seq2Seq
from regard.options import CoverageOptions, OptionError, TranslationOptions
from regard.predict.alignment import NO_ATTENTION, AlignmentHead, AttentionMatrix
from regard.predict.engine import AttentionEngine, EnsembleEngine, make_engine, max_tokens
from regard.predict.search import SearchResult, batches_by_length, search_batch, search_segments, translation_search
from regard.predict.segments import SourceSegment, TranslationRequest, make_segments
from regard.predict.teacher_forcing import (
    TeacherForcedPair,
    TokenPair,
    cross_attention_taps,
    evaluating,
    teacher_force,
)
from regard.predict.translation import Translation, WeightedHypotheses, assemble, empty_translation, with_weights
from regard.recipe import Decode
from regard.text import Tokenizers

log = logging.getLogger(__name__)

WINDOW_LINES = 2048
"""Lines that are read ahead, sorted by length and translated in batches; results keep the order of the lines."""
WINDOW_CHARACTERS = 1 << 21
"""Characters after which a window ends, which bounds memory for lines of any length."""
BATCHES_PER_WORKER, MIN_BATCH = 4, 1024
"""A window gives each worker so many batches, so that all workers finish at about the same time, unless batches would
become smaller than MIN_BATCH source tokens times rows."""

Line = str | TranslationRequest
Lines = list[str] | list[TranslationRequest] | list[Line] | tuple[Line, ...]
OnProgress = Callable[[int], None]
"""Called with the number of lines that were finished since the last call."""


class Translator:
    """A trained encoder-decoder with its tokenizers.

    >>> translator = regard.load("runs/phrasebook")
    >>> translator("I can go alone").text
    >>> [result.text for result in translator(["I can go alone", "a cat"], beam=4)]
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizers: Tokenizers,
        decoding: Decode | None = None,
        *,
        longest: int = 256,
        alignment_head: AlignmentHead | None = None,
        engine: SteppableModel | None = None,
    ) -> None:
        """Translate with a model as it is now, or with an engine made from it.

        Args:
            model: The encoder-decoder.
            tokenizers: The tokenizers it was trained with, `source` and `target`.
            decoding: The recipe's `[decode]` section, for the defaults of the options.
            longest: Source tokens that the model was trained on; longer lines are split.
            alignment_head: The attention that word alignments are read from. Default: see `AlignmentHead.default`.
            engine: A fast engine for the model.
        """
        self.model, self.tokenizers = model, tokenizers
        self.options = TranslationOptions(**(decoding or Decode()).model_dump())
        self.alignment_head = alignment_head or AlignmentHead.default(cross_attention_taps(model))
        self.engine: SteppableModel = engine or model
        # Engines are made for several threads. The model itself is not: it may be trained, or its taps recorded.
        self.workers = max(2, os.cpu_count() or 1) if engine is not None and self.device.type == "cpu" else 1
        self.max_source = max_tokens(model.encoder.max_positions, reserved=1)
        """Source tokens that the model has positions for."""
        self.max_target = max_tokens(model.decoder.max_positions, reserved=1)
        """Target tokens that the model has positions for."""
        self.longest = min(longest, self.max_source)

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "Translator":
        """Translate with a trained run, on the device it was loaded to."""
        model = bundle.model
        assert isinstance(model, Seq2Seq)
        return cls(
            model,
            bundle.tokenizers,
            bundle.recipe.decode,
            longest=bundle.recipe.data.longest,
            alignment_head=AlignmentHead.from_scores(bundle.scores, cross_attention_taps(model)),
            engine=make_engine(model, model.output.weight.device, precision),
        )

    def ensemble_with(self, others: Sequence["Translator"]) -> "Translator":
        """Return an ensemble: the probability of a token is the mean of the models' probabilities.

        The models may be of different families, but must have the same vocabularies. Alignments are those of this one.
        """
        for other in others:
            if other.tokenizers.fingerprint != self.tokenizers.fingerprint:
                raise ValueError(
                    "these runs have different vocabularies, and an ensemble needs one; train them with the same "
                    "tokenizer"
                )
        ensemble, members = copy(self), (self, *others)
        ensemble.engine = EnsembleEngine([member.engine for member in members])
        ensemble.longest = min(member.longest for member in members)
        ensemble.max_target = min(member.max_target for member in members)
        return ensemble

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(self, text: Line, **options: object) -> Translation: ...
    @overload
    def __call__(self, text: Lines, **options: object) -> list[Translation]: ...
    @overload
    def __call__(self, text: Iterator[Line], **options: object) -> Iterator[Translation]: ...
    def __call__(
        self, text: Line | Lines | Iterator[Line], **options: object
    ) -> Translation | list[Translation] | Iterator[Translation]:
        """Translate a line, a list of lines or an iterator of lines, with options such as `beam=4`.

        Args:
            text: A line gives a `Translation`, a list gives a list, and any other iterable gives a generator, which
                reads at most a window of lines ahead.
            **options: See `TranslationOptions`.

        Raises:
            ValueError: If a single line cannot be translated. In a list or an iterator such a line gives an empty
                translation with a `fault`, and a warning.
        """
        if isinstance(text, bytes) or not isinstance(text, str | TranslationRequest | Iterable):
            raise TypeError(f"give a line, a list of lines or an iterator of lines, not {type(text).__name__}")
        chosen = self.options.override(**{"alignments": self.alignment_head is not None, **options})
        if isinstance(text, str | TranslationRequest):
            (translation,) = self.stream([text], chosen)
            if translation.fault:
                raise ValueError(f"{translation.source[:60]!r} could not be translated: {translation.fault}")
            return translation
        translations = self.stream(text, chosen)
        return list(translations) if isinstance(text, list | tuple) else translations

    def translate(self, lines: Iterable[Line], **options: object) -> list[Translation]:
        """Translate lines with options such as `beam=4`; without alignments, unless `alignments=True`."""
        return list(self.stream(lines, self.options.override(**options)))

    def look(self, sentence: str = "", **options: Any) -> Any:
        """Open the explorer of this translator in a notebook: see `regard.look`."""
        # Through the top-level package, which imports the notebook only if it is used.
        return regard.look(self, sentence, **options)

    def alternatives(self, line: str, prefix: str = "", count: int = 5, **options: object) -> list[Translation]:
        """Return translations that continue a prefix with each of the `count` most probable next tokens.

        Each continues from there with the best hypothesis; the most probable token comes first. The line is not split.
        """
        chosen = self.options.override(**options)
        request = TranslationRequest(line, prefix)
        segments = make_segments(request, self.tokenizers, replace(chosen, long="error"), self.max_source)
        if not segments:
            return []
        branched = decode.branching(self.search_options(chosen), count)
        with evaluating(self.model):
            (ranked,) = search_batch(self.engine_for(chosen), segments, branched, self.device, decode.alternatives)
        return list(assemble(line, [(segments[0], [(best, None) for best in ranked])], self.tokenizers).nbest)

    def stream(
        self,
        lines: Iterable[Line],
        options: TranslationOptions | None = None,
        on_progress: OnProgress = lambda lines: None,
        first: int = 1,
    ) -> Iterator[Translation]:
        """Translate lines in order, a window at a time; `first` is the number of the first line in warnings."""
        window: list[TranslationRequest] = []
        characters = 0
        for line in lines:
            if not isinstance(line, str | TranslationRequest):
                raise TypeError(f"a line is a str or a TranslationRequest, not {type(line).__name__}: {line!r:.60}")
            window.append(line if isinstance(line, TranslationRequest) else TranslationRequest(line))
            characters += len(window[-1].line)
            if len(window) >= WINDOW_LINES or characters >= WINDOW_CHARACTERS:
                yield from self._translate_window(window, first, options or self.options, on_progress)
                first += len(window)
                window, characters = [], 0
        if window:
            yield from self._translate_window(window, first, options or self.options, on_progress)

    def _translate_window(
        self,
        requests: Sequence[TranslationRequest],
        first: int,
        options: TranslationOptions,
        on_progress: OnProgress,
    ) -> list[Translation]:
        """Translate some lines in batches of similar length, and return the translations in the order of the lines."""
        lines: list[tuple[SourceSegment, ...] | Exception] = []
        for number, request in enumerate(requests, start=first):
            try:
                segments = make_segments(request, self.tokenizers, options, self.longest)
            except Exception as error:
                lines.append(error)
                continue
            lines.append(segments)
            if len(segments) > 1:  # reported before the search, which takes as long as that of so many lines
                log.warning(
                    "line %d has more than the %d tokens this model was trained on; translated in %d segments",
                    request.number or number,
                    self.longest,
                    len(segments),
                )
        on_progress(sum(isinstance(line, Exception) or not line for line in lines))
        searchable = [segment for line in lines if not isinstance(line, Exception) for segment in line]
        engine, searched, target = self.engine_for(options), self.search_options(options), self.tokenizers["target"]

        def search(indices: list[int]) -> list[SearchResult]:
            batch = [searchable[index] for index in indices]
            return search_segments(
                batch, options, target, lambda some: search_batch(engine, some, searched, self.device)
            )

        lengths = [len(segment.ids) + 1 for segment in searchable]
        batches = list(batches_by_length(lengths, searched.rows, self._batch_size(lengths, searched.rows, options)))
        results: list[SearchResult] = [[]] * len(searchable)
        # Only one thread at a time may record the attention that a coverage penalty needs.
        workers = 1 if options.coverage_penalty else self.workers
        with evaluating(self.model):
            for indices, found in zip(batches, parallel(search, batches, workers), strict=True):
                for index, result in zip(indices, found, strict=True):
                    results[index] = result
                on_progress(sum(searchable[index].is_last for index in indices))
        # After all searches: a recording would show the steps of searches that still use the model.
        ranked = iter(with_weights(searchable, results, self.attention_weights if options.alignments else None))
        return [
            self._finish(request.number or first + number, request.line, line, ranked, options.alignments)
            for number, (request, line) in enumerate(zip(requests, lines, strict=True))
        ]

    def _batch_size(self, lengths: Sequence[int], rows: int, options: TranslationOptions) -> int:
        """Return the source tokens times rows of a batch: small enough that no worker is idle at the end."""
        maximum = options.tokens or batch_budget(self.device)
        if self.workers == 1:
            return maximum
        share = -(-rows * sum(lengths) // self.workers)
        return min(maximum, max(min(share, MIN_BATCH), -(-share // BATCHES_PER_WORKER)))

    def _finish(
        self,
        number: int,
        line: str,
        segments: tuple[SourceSegment, ...] | Exception,
        ranked: Iterator[WeightedHypotheses | Exception],
        aligned: bool,
    ) -> Translation:
        """Return the translation of a line; log a warning if it could not be translated."""
        parts: list[tuple[SourceSegment, WeightedHypotheses]] = []
        error = segments if isinstance(segments, Exception) else None
        for segment in () if isinstance(segments, Exception) else segments:
            hypotheses = next(ranked)
            if isinstance(hypotheses, Exception):
                error = hypotheses
            else:
                parts.append((segment, hypotheses))
        if error is not None:
            log.warning("line %d could not be translated: %s", number, error if str(error) else type(error).__name__)
            return empty_translation(line, str(error) or type(error).__name__)
        return assemble(line, parts, self.tokenizers) if parts else empty_translation(line, aligned=aligned)

    def search_options(self, options: TranslationOptions | None = None) -> decode.SearchOptions:
        """Return the options of the search for a translation with these options, or with those of the run."""
        return translation_search(options or self.options, self.max_target)

    def engine_for(self, options: CoverageOptions) -> SteppableModel:
        """Return the engine of a search with these options.

        A coverage penalty needs the attention weights of each step, which only the model itself returns.

        Raises:
            ValueError: If there is a coverage penalty, but no attention to compute it from.
        """
        if not options.coverage_penalty:
            return self.engine
        if self.alignment_head is None or isinstance(self.engine, EnsembleEngine):
            raise OptionError(
                "a coverage penalty needs the attention of a single model, which neither an ensemble nor a model "
                "without attention has; use {coverage_penalty:0}"
            )
        return AttentionEngine(self.model, self.alignment_head)

    def attention_weights(self, pairs: Sequence[TokenPair]) -> list[AttentionMatrix]:
        """Return the attention weights that the word alignments of given pairs are read from.

        Raises:
            ValueError: If the model has no attention.
        """
        if self.alignment_head is None:
            raise ValueError(NO_ATTENTION)
        return [self.alignment_head.weights(pair.attention) for pair in self.teacher_force(pairs, attention=True)]

    def teacher_force(self, pairs: Sequence[TokenPair], attention: bool = False) -> list[TeacherForcedPair]:
        """Compute the log-probabilities of given targets, and with `attention` their cross-attention weights.

        Pairs are batched by length; the results have the order of the pairs.
        """
        forced: dict[int, TeacherForcedPair] = {}
        lengths = [max(len(source), len(target)) + 1 for source, target in pairs]
        for indices in batches_by_length(lengths, 1, batch_budget(self.device)):
            forced |= zip(indices, teacher_force(self.model, [pairs[at] for at in indices], attention), strict=True)
        return [forced[index] for index in range(len(pairs))]


def batch_budget(device: torch.device) -> int:
    """Return the padded source tokens times rows of a batch that suit a device."""
    return 16_384 if device.type == "cpu" else 262_144
