"""A model that is served: its translator and queue, and what looks into it, which only one may do at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from regard.models.fast.engine import OwnEngine
from regard.serve.meter import Meter
from regard.serve.queue import Queue
from regard.translator import Translator
from regard.translator.alignment import Weights
from regard.translator.given import Given, weigh

CELLS = 1 << 18
"""Weights of a head looked at in one pass."""


class FaultError(Exception):
    """Something went wrong here, not with what was asked."""


@dataclass(eq=False)
class Served:
    """A model and its queue, and what its workers share."""

    name: str
    translator: Translator
    queue: Queue
    meter: Meter
    watched: Lock = field(default_factory=Lock)

    def weights(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Weights]:
        """Where each target token of some pairs looked, a few pairs at a time."""
        look, found = self.translator.aligned_by, list[Weights]()
        assert look is not None, "whoever asks for it was asked first"
        for some in _bites(pairs):
            with self.watched:
                found += [look.weights(each) for each in self.translator.force(some, looks=True)]
        return found

    def weigh(self, pairs: Sequence[tuple[str, str]], alignments: bool) -> list[Given]:
        """What the model makes of given pairs; those it was not made for are refused, as their weights grow fast."""
        translator, both = self.translator, self.translator.tokenizers
        sides = ((both.source, translator.longest), (both.target, 2 * translator.longest))
        for pair in pairs:
            for line, (tokenizer, most) in zip(pair, sides, strict=True):
                if (count := len(tokenizer.encode(line))) > most:
                    raise ValueError(f"{line[:40]!r}… has {count} tokens, and at most {most} are weighed; cut it")
        found: list[Given] = []
        for pair in pairs:
            with self.watched:
                found += weigh(translator, [pair], alignments)
        return found


def workers_of(translator: Translator) -> int:
    """How many workers a model has: one where the engine is the model itself, whose insides others may look at."""
    engine = translator.engine
    own = isinstance(engine, OwnEngine) and engine.model is translator.model
    return 1 if own or engine is translator.model else translator.workers


def _bites(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[tuple[Sequence[int], Sequence[int]]]]:
    """Pairs a few at a time, by the weights their attention has."""
    bites: list[list[tuple[Sequence[int], Sequence[int]]]] = []
    cells = CELLS
    for pair in pairs:
        size = (len(pair[0]) + 1) * (len(pair[1]) + 1)
        cells += size
        if cells > CELLS:
            bites.append([])
            cells = size
        bites[-1].append(pair)
    return bites
