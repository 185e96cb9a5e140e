"""Sentences to sentences: text to ids, a search, ids to text, with scores and word alignments."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch

import regard
from regard import decode
from regard.bundle import Bundle, find_device, load_bundle
from regard.models.fast import parallel
from regard.models.seq2seq import Seq2Seq
from regard.nn.embedding import Embedding
from regard.recipe import Decode
from regard.text import Tokenizers
from regard.translator.alignment import Look, Weights
from regard.translator.assembling import Ranked, assemble
from regard.translator.engine import Engine, EnsembleEngine, WatchedEngine, make_engine
from regard.translator.forced import Forced, Pair, cross_taps, evaluating, force
from regard.translator.jobs import Job, jobs
from regard.translator.options import FARTHEST, Options, Request
from regard.translator.searching import Found, batches, by_risk, find, find_avoiding, find_patiently
from regard.translator.translation import Translation, nothing

log = logging.getLogger(__name__)

WINDOW = 2048
"""Lines looked at together: sorted by length, translated in batches, and given back in their order."""
SHARES, ENOUGH = 4, 1024
"""A worker's share is cut into so many batches, so that all end together, unless they became smaller than this: padded
tokens times beams, some seventy rows."""
LETTERS = 1 << 21
"""Characters after which a window ends, so that memory stays bounded whatever the lines are."""

Line = str | Request
Lines = list[str] | list[Request] | list[Line] | tuple[Line, ...]
Watch = Callable[[int], None]
"""Told how many more lines are done."""


class Translator:
    """A model with its vocabularies: lines in, translations out."""

    def __init__(
        self,
        model: Seq2Seq,
        tokenizers: Tokenizers,
        decoding: Decode | None = None,
        *,
        longest: int = 256,
        aligned_by: Look | None = None,
        engine: Engine | None = None,
    ) -> None:
        """Translate by a model as it is now, or by an `engine` made from it.

        `longest` is how many source tokens the model has learned to read; `aligned_by` is the attention that alignments
        are read from.
        """
        self.model, self.tokenizers = model, tokenizers
        self.options = Options.from_recipe(decoding or Decode())
        self.aligned_by = aligned_by or Look.default(cross_taps(model))
        self.engine: Engine = engine or model
        # A model that may be watched or trained is nobody else's; engines are made to be shared.
        self.workers = max(2, os.cpu_count() or 1) if engine is not None and self.device.type == "cpu" else 1
        self.reads, self.most = (_limit(part.embedding) for part in (model.encoder, model.decoder))
        self.longest = min(longest, self.reads)

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "Translator":
        """Translate by a trained model from disk, on the device it was loaded to."""
        device = bundle.model.output.weight.device
        return cls(
            bundle.model,
            bundle.tokenizers,
            bundle.recipe.decode,
            longest=bundle.recipe.data.longest,
            aligned_by=Look.from_scores(bundle.scores, cross_taps(bundle.model)),
            engine=make_engine(bundle.model, device, precision),
        )

    def joined_by(self, others: Sequence["Translator"]) -> "Translator":
        """An ensemble: the models translate together, each token by the mean of their probabilities.

        They may be of different families, but must have the same vocabularies. Alignments are this one's.
        """
        for other in others:
            if other.tokenizers.fingerprint != self.tokenizers.fingerprint:
                raise ValueError("these runs have different vocabularies, and an ensemble must have one; train them so")
        joined = copy(self)
        joined.engine = EnsembleEngine([self.engine, *(other.engine for other in others)])
        joined.longest, joined.most = (
            min(getattr(each, name) for each in (self, *others)) for name in ("longest", "most")
        )
        return joined

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.output.weight.device

    @overload
    def __call__(self, text: Line, **told: object) -> Translation: ...
    @overload
    def __call__(self, text: Lines, **told: object) -> list[Translation]: ...
    @overload
    def __call__(self, text: Iterator[Line], **told: object) -> Iterator[Translation]: ...
    def __call__(
        self, text: Line | Lines | Iterator[Line], **told: object
    ) -> Translation | list[Translation] | Iterator[Translation]:
        """Translate a line, a list of lines, or lines as they come, with options such as `beam=4`: see `Options`.

        A line gives a `Translation`, a list gives a list, anything else that can be gone through gives a generator
        that reads ahead no more than a window. A line that cannot be translated is an error; among others it gives an
        empty translation that says its fault, and a warning.
        """
        if isinstance(text, bytes) or not isinstance(text, str | Request | Iterable):
            raise TypeError(f"give a line, a list of lines or lines as they come, not {type(text).__name__}")
        options = self.options.told(**{"alignments": self.aligned_by is not None, **told})
        if isinstance(text, str | Request):
            (one,) = self.stream([text], options)
            if one.fault:
                raise ValueError(f"{one.source[:60]!r} could not be translated: {one.fault}")
            return one
        found = self.stream(text, options)
        return list(found) if isinstance(text, list | tuple) else found

    def translate(self, lines: Iterable[Line], **told: object) -> list[Translation]:
        """Translate lines with options such as `beam=4`, without alignments unless told."""
        return list(self.stream(lines, self.options.told(**told)))

    def look(self, sentence: str = "", **told: Any) -> Any:
        """The explorer of this translator in a notebook: see `regard.look`, which it is short for."""
        # By the package's own door, which opens a room when it is knocked at: nothing here imports upwards, and who
        # only translates needs no notebook.
        return regard.look(self, sentence, **told)

    def alternatives(self, line: str, prefix: str = "", count: int = 5, **told: object) -> list[Translation]:
        """What else could stand behind a prefix: the most probable next tokens, each with the best way to go on.

        The most probable comes first. A line is taken whole, however long.
        """
        options = self.options.told(**told)
        found = jobs(Request(line, prefix), self.tokenizers, replace(options, long="error"), self.reads)
        if not found:
            return []
        (job,) = found
        branched = decode.branching(options.search(self.most), count)
        with evaluating(self.model):
            ranked = find(self._engine(options), [job], branched, self.device, decode.alternatives)[0]
        return list(assemble(line, [(job, [(each, None) for each in ranked])], self.tokenizers).nbest)

    def stream(
        self, lines: Iterable[Line], options: Options | None = None, watch: Watch | None = None, first: int = 1
    ) -> Iterator[Translation]:
        """Translate lines as they come, in their order, window by window; `first` is the number of the first one."""
        options = options or self.options
        for requests in _windows(lines, WINDOW):
            yield from self._window(requests, first, options, watch or (lambda lines: None))
            first += len(requests)

    def _window(self, requests: Sequence[Request], first: int, options: Options, watch: Watch) -> list[Translation]:
        """Translate some lines, the first of which has the number `first`."""
        plans = [self._plan(request, options) for request in requests]
        every = [job for plan in plans if not isinstance(plan, Exception) for job in plan]
        watch(sum(isinstance(plan, Exception) or not plan for plan in plans))
        batched = list(batches([len(job.ids) + 1 for job in every], *self._room(every, options)))
        search = self._searcher(options)
        found: list[Found] = [[]] * len(every)
        with evaluating(self.model):
            made = parallel(lambda places: search([every[at] for at in places]), batched, self._workers(options))
            for places, results in zip(batched, made, strict=True):
                for at, result in zip(places, results, strict=True):
                    found[at] = result
                watch(sum(every[at].last for at in places))
        # Only now, because a model that is watched while others still search with it would show their steps too.
        rest = iter(self._ranked(every, found, options))
        return [
            self._finish(first + number, request.line, plan, rest, options.alignments)
            for number, (request, plan) in enumerate(zip(requests, plans, strict=True))
        ]

    def _room(self, every: Sequence[Job], options: Options) -> tuple[int, int]:
        """Rows of each sentence, and what a batch holds: not so much that a worker is idle at the end."""
        rows = options.search(self.most).rows
        whole = rows * sum(len(job.ids) + 1 for job in every)
        if self.workers == 1:
            return rows, options.tokens or budget(self.device)
        share = -(-whole // self.workers)
        return rows, min(options.tokens or budget(self.device), max(min(share, ENOUGH), -(-share // SHARES)))

    def _plan(self, request: Request, options: Options) -> tuple[Job, ...] | Exception:
        """What there is to do for a line, or why nothing can be."""
        try:
            return jobs(request, self.tokenizers, options, self.longest)
        except Exception as error:
            return error

    def _workers(self, options: Options) -> int:
        """How many search at a time; what is watched is watched by one."""
        return 1 if options.coverage_penalty else self.workers

    def _searcher(self, options: Options) -> Callable[[Sequence[Job]], list[Found]]:
        """What searches for a batch of jobs; it runs in whatever thread is free."""
        told, engine, tokenizer = options.search(self.most), self._engine(options), self.tokenizers.target

        def patiently(batch: Sequence[Job]) -> list[Found]:
            return find_patiently(batch, lambda some: find(engine, some, told, self.device))

        def search(batch: Sequence[Job]) -> list[Found]:
            found = find_avoiding(batch, tokenizer, patiently)
            if not options.mbr:
                return found
            return [each if isinstance(each, Exception) else by_risk(each, tokenizer, options.nbest) for each in found]

        return search

    def _ranked(self, batch: Sequence[Job], found: Sequence[Found], options: Options) -> list[Ranked | Exception]:
        """What was found for each job, with where it looked if that is wanted."""
        pairs = [
            (job.ids, each.tokens)
            for job, ranked in zip(batch, found, strict=True)
            if not isinstance(ranked, Exception)
            for each in ranked
        ]
        looked = iter(self._look_at(pairs) if options.alignments and pairs else [None] * len(pairs))
        return [each if isinstance(each, Exception) else [(one, next(looked)) for one in each] for each in found]

    def _engine(self, options: Options) -> Engine:
        """What steps: a coverage penalty asks where, and only a model of its own can be watched."""
        if not options.coverage_penalty:
            return self.engine
        if self.aligned_by is None or isinstance(self.engine, EnsembleEngine):
            raise ValueError(
                "a coverage penalty asks where one model looks; an ensemble, or one without attention, has no answer"
            )
        return WatchedEngine(self.model, self.aligned_by)

    def _look_at(self, pairs: Sequence[Pair]) -> Sequence[Weights | None]:
        """Where each target token of some pairs looked."""
        if self.aligned_by is None:
            raise ValueError("this model's decoder does not look at its source by weights, so it cannot align words")
        return [self.aligned_by.weights(forced) for forced in self.force(pairs, looks=True)]

    def force(self, pairs: Sequence[Pair], looks: bool = False) -> list[Forced]:
        """What the model makes of given pairs of ids, batch by batch, in their order."""
        found: list[Forced | None] = [None] * len(pairs)
        lengths = [max(len(source), len(target)) + 1 for source, target in pairs]
        for places in batches(lengths, 1, budget(self.device)):
            for at, forced in zip(places, force(self.model, [pairs[at] for at in places], looks), strict=True):
                found[at] = forced
        return [each for each in found if each is not None]

    def _finish(
        self,
        number: int,
        line: str,
        plan: tuple[Job, ...] | Exception,
        found: Iterator[Ranked | Exception],
        aligned: bool,
    ) -> Translation:
        """The translation of a line from what was found for its jobs."""
        if isinstance(plan, Exception):
            return _failed(number, line, plan)
        if len(plan) > 1:
            log.warning(
                "line %d has more than the %d tokens this model has learned to read; translated in %d parts",
                number,
                self.longest,
                len(plan),
            )
        parts: list[tuple[Job, Ranked]] = []
        fault: Exception | None = None
        for job in plan:
            ranked = next(found)
            if isinstance(ranked, Exception):
                fault = ranked
            else:
                parts.append((job, ranked))
        if fault is not None:
            return _failed(number, line, fault)
        return assemble(line, parts, self.tokenizers) if parts else nothing(line, aligned=aligned)


def load(path: str | Path, device: str = "auto", precision: str = "auto") -> Translator:
    """A trained run, ready to translate; `auto` takes a GPU where there is one, and the precision that suits it."""
    return Translator.from_bundle(load_bundle(path, find_device(device)), precision)


def budget(device: torch.device) -> int:
    """Padded source tokens, times beams, that suit a device."""
    return 16_384 if device.type == "cpu" else 262_144


def _limit(embedding: Embedding) -> int:
    """Tokens a side may have besides its begin or end symbol."""
    limit = None if embedding.position is None else embedding.position.limit
    return FARTHEST if limit is None else limit - 1


def _windows(lines: Iterable[Line], most: int) -> Iterator[list[Request]]:
    """The lines in lists of at most `most` lines, and not many more characters than a window may have."""
    window: list[Request] = []
    letters = 0
    for line in lines:
        if not isinstance(line, str | Request):
            raise TypeError(f"a line is a str or a Request, not {type(line).__name__}: {line!r:.60}")
        window.append(line if isinstance(line, Request) else Request(line))
        letters += len(window[-1].line)
        if len(window) >= most or letters >= LETTERS:
            yield window
            window, letters = [], 0
    if window:
        yield window


def _failed(number: int, line: str, error: Exception) -> Translation:
    """No translation, said aloud."""
    fault = str(error) or type(error).__name__
    log.warning("line %d could not be translated: %s", number, fault)
    return nothing(line, fault)
