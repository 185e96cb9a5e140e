"""Lines of many clients in one search: they come in while it runs, and leave it when they are done."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import takewhile
from threading import Lock
from typing import Any

import torch

from regard import decode
from regard.decode import Hypothesis, Search
from regard.nn.ragged import Ragged
from regard.serve.queue import Line
from regard.text import END
from regard.translator import Translator
from regard.translator.engine import WatchedEngine
from regard.translator.jobs import Job
from regard.translator.searching import Found, find


@dataclass(eq=False)
class Going:
    """A line on its way, all its parts."""

    line: Line
    jobs: tuple[Job, ...]
    found: dict[int, Found] = field(default_factory=dict)
    """What became of a part, by its number."""
    settled: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The tokens of a part that will not change any more, where they are to be told at once."""
    told: int = 0
    """Tokens that were told already."""

    def tokens(self) -> list[int]:
        """What can be told so far: parts that are done, and of the first that is not what is settled."""
        done = [at for at, _ in takewhile(lambda pair: pair[0] in self.found, enumerate(self.jobs))]
        ended = [each[0].tokens for at in done if not isinstance(each := self.found[at], Exception)]
        return [token for part in (*ended, self.settled.get(len(done), ())) for token in part]


Part = tuple[Going, int]
"""A line, and which of its parts."""


def kind_of(part: Part, translator: Translator) -> tuple[decode.Options, bool]:
    """What parts of one search have in common: their options, and whether phrases must appear, which costs all time."""
    going, at = part
    return going.line.options.search(translator.most), bool(going.jobs[at].wish.phrases)


def engine_of(translator: Translator, options: decode.Options) -> Any:
    """What steps: a coverage penalty asks where the model looks, which only the model itself can say."""
    if not options.coverage_penalty:
        return translator.engine
    assert translator.aligned_by is not None, "whoever asks for it was asked first"
    return WatchedEngine(translator.model, translator.aligned_by)


def search_alone(
    translator: Translator, jobs: Sequence[Job], options: decode.Options, watched: Lock
) -> list[list[Hypothesis]]:
    """Search for some jobs in a search of their own."""
    with watched if options.coverage_penalty else nullcontext():
        return find(engine_of(translator, options), jobs, options, translator.device)


class Group:
    """All lines that are searched for in the same way: one search, whoever they belong to."""

    def __init__(self, translator: Translator, kind: tuple[decode.Options, bool], watched: Lock) -> None:
        """`watched` is held while a model is looked into, so that each sees its own."""
        self.translator, self.kind = translator, kind
        self.options = options = kind[0]
        self.engine = engine_of(translator, options)
        self.lock = watched if options.coverage_penalty else nullcontext()
        self.search: Search[Any] = Search(self.engine, options, translator.device)
        self.parts: dict[int, Part] = {}

    @property
    def open(self) -> bool:
        """Whether others may still come in."""
        return not self.parts or isinstance(self.engine, decode.Joiner)

    @property
    def weight(self) -> int:
        """Source tokens times rows under way."""
        return self.options.rows * sum(len(going.jobs[at].ids) + 1 for going, at in self.parts.values())

    def add(self, parts: Sequence[Part]) -> None:
        """Search for these too."""
        jobs = [going.jobs[at] for going, at in parts]
        first = self.search.added
        self.parts |= {first + number: part for number, part in enumerate(parts)}
        source = Ragged.from_list([[*job.ids, END] for job in jobs]).to(self.translator.device)
        with torch.inference_mode():
            self.search.add(self.engine.start(source, self.options.rows), [job.wish for job in jobs])

    def advance(self) -> list[tuple[Part, list[Hypothesis]]]:
        """One token more for everybody, and who is done with it."""
        gone = {number for number, (going, _) in self.parts.items() if going.line.order.gone}
        if gone:
            self.search.drop(gone)
            for number in gone:
                del self.parts[number]
        if not self.parts:
            return []
        with self.lock:
            self.search.advance()
        for number, (going, at) in self.parts.items():
            if going.line.order.streamed:
                going.settled[at] = self.search.settled(number)
        return [(self.parts.pop(number), hypotheses) for number, hypotheses in self.search.leave()]
