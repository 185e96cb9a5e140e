"""A served translator: its lines are split into segments, whose hypotheses are joined to translations."""

from collections.abc import Sequence

from regard.decode import Hypothesis, SearchOptions
from regard.engines import SteppableModel
from regard.explore.questions import MAX_QUOTED
from regard.nn.ragged import Ragged
from regard.predict import Translation, Translator
from regard.predict.alignment import AttentionMatrix
from regard.predict.engine import encoder_input
from regard.predict.scoring import ScoredTarget, score_pairs
from regard.predict.search import SearchResult, search_segments
from regard.predict.segments import SourceSegment, make_segments
from regard.predict.teacher_forcing import TokenPair
from regard.predict.translation import WeightedHypotheses, assemble, empty_translation, with_weights
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, QueuedJob, TranslationJob
from regard.serve.service import (
    REPLACEMENT_CHARACTER,
    EncodedInput,
    LineInProgress,
    PartialOutput,
    SearchService,
    Segment,
)

MAX_ATTENTION_CELLS = 1 << 18
"""Attention weights per head that are computed in one forward pass."""


class TranslatorService(SearchService):
    """A translator with its queue, its metrics, and the state that its workers share."""

    route = "translate"
    fault = "this line could not be translated"

    def __init__(self, name: str, translator: Translator, queue: JobQueue, metrics: Metrics) -> None:
        """Serve a translator under a name."""
        super().__init__(name, queue, metrics, translator.device)
        self.translator = translator

    def engine_for(self, options: SearchOptions) -> SteppableModel:
        """Return the engine of a search with these options."""
        return self.translator.engine_for(options)

    def prepare(self, job: QueuedJob) -> LineInProgress:
        """Tokenise a line and split it into segments."""
        assert isinstance(job, TranslationJob), "handlers put nothing else into this queue"
        translator = self.translator
        segments = make_segments(job.request, translator.tokenizers, job.options, translator.longest)
        search = translator.search_options(job.options)
        translator.engine_for(search)
        return LineInProgress(job, segments, search)

    def inputs(self, segments: Sequence[EncodedInput]) -> Ragged:
        """Return segments as the encoder reads them."""
        return encoder_input([part.ids for part in segments if isinstance(part, SourceSegment)], self.device)

    def complete(self, segment: Segment, hypotheses: list[Hypothesis]) -> SearchResult:
        """Return the result of a segment from its hypotheses.

        Searches again if the hypotheses contain a phrase to avoid, and picks among samples by minimum Bayes risk.
        """
        job, source, first = segment.line.job, segment.encoded, [hypotheses]
        assert isinstance(job, TranslationJob)
        assert isinstance(source, SourceSegment)

        def search(segments: Sequence[SourceSegment]) -> list[list[Hypothesis]]:
            return [first.pop()] if first else self.search(segments, segment.line.search)

        (result,) = search_segments([source], job.options, self.translator.tokenizers["target"], search)
        return result

    def assemble(self, line: LineInProgress) -> Translation:
        """Return the translation of a line whose segments are all finished; raise the error of one that failed."""
        job, segments = line.job, [segment for segment in line.segments if isinstance(segment, SourceSegment)]
        assert isinstance(job, TranslationJob)
        if not segments:
            return empty_translation(job.request.line)
        results = [line.results[at] for at in range(len(segments))]
        weights_of = self._attention_weights if job.options.alignments else None
        parts: list[tuple[SourceSegment, WeightedHypotheses]] = []
        for segment, ranked in zip(segments, with_weights(segments, results, weights_of), strict=True):
            if isinstance(ranked, Exception):
                raise ranked
            parts.append((segment, ranked))
        return assemble(job.request.line, parts, self.translator.tokenizers)

    def partial(self, line: LineInProgress, tokens: Sequence[int]) -> PartialOutput:
        """Return the tokens that were not sent to the client yet, and the text of all these final ones."""
        target = self.translator.tokenizers["target"]
        pieces = tuple(target.piece(token) for token in tokens[line.streamed :])
        return PartialOutput(pieces, target.decode(tokens).rstrip(REPLACEMENT_CHARACTER))

    def _attention_weights(self, pairs: Sequence[TokenPair]) -> list[AttentionMatrix]:
        """Return the attention weights of pairs, in small batches, so that others may use the model in between."""
        weights: list[AttentionMatrix] = []
        for batch in _batches(pairs):
            with self.model_lock:
                weights += self.translator.attention_weights(batch)
        return weights

    def score_pairs(self, pairs: Sequence[tuple[str, str]], alignments: bool) -> list[ScoredTarget]:
        """Score given sentence pairs by teacher forcing, with word alignments if asked for.

        Raises:
            ValueError: A sentence is much longer than the model was trained on. Memory grows with the square of it.
        """
        translator, tokenizers = self.translator, self.translator.tokenizers
        sides = ((tokenizers["source"], translator.longest), (tokenizers["target"], 2 * translator.longest))
        for pair in pairs:
            for line, (tokenizer, limit) in zip(pair, sides, strict=True):
                if (count := len(tokenizer.encode(line))) > limit:
                    quoted = repr(line[:MAX_QUOTED])[1:-1][:MAX_QUOTED]  # control characters become longer
                    raise ValueError(f"'{quoted}…' has {count} tokens, and at most {limit} are allowed; shorten it")
        scored: list[ScoredTarget] = []
        for pair in pairs:
            with self.model_lock:
                scored += score_pairs(translator, [pair], alignments)
        return scored


def _batches(pairs: Sequence[TokenPair]) -> list[list[TokenPair]]:
    """Split pairs, in order, into batches of at most `MAX_ATTENTION_CELLS` attention weights per head."""
    batches: list[list[TokenPair]] = []
    cells = MAX_ATTENTION_CELLS
    for pair in pairs:
        size = (len(pair[0]) + 1) * (len(pair[1]) + 1)
        cells += size
        if cells > MAX_ATTENTION_CELLS:
            batches.append([])
            cells = size
        batches[-1].append(pair)
    return batches
