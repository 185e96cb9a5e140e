"""Which pairs of a corpus are worth learning from, and a report of those that are not.

A pair is counted under the first filter that drops it, in this order:

- `empty`: a side without text or without tokens.
- `long`: a side with more tokens than `longest`, the corpus's tag included.
- `ratio`: a side with more than `ratio` times the tokens of the other, the tag not counted.
- `copy`: target and source the same text, spaces around it aside.
- `duplicate`: source and target both the very text of an earlier pair of the same corpus.

An empty side has no ratio and is no copy, so with `empty` switched off such pairs stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from regard.data.corpus import Chunk
from regard.recipe import Data, Filter

FILTERS: tuple[Filter, ...] = get_args(Filter)
"""The filters, in the order in which a pair meets them."""

EXAMPLES = 3
CLIP = 80
KEPT = 0


class Example(BaseModel):
    """A dropped pair as it is shown: its line number and the beginning of its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    line: PositiveInt
    source: str
    target: str

    def __str__(self) -> str:
        """The pair on one line, control characters spelt out so that a corpus cannot steer the terminal."""
        return f"line {self.line:,}: {_printable(self.source)} ||| {_printable(self.target)}"


class FilterReport(BaseModel):
    """How many pairs were read and kept, how many each filter in use dropped, and the first few of those."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read: NonNegativeInt = 0
    kept: NonNegativeInt = 0
    dropped: dict[Filter, NonNegativeInt] = {}
    examples: dict[Filter, tuple[Example, ...]] = {}

    def __add__(self, later: Self) -> "FilterReport":
        """Both reports as one; `later` tells of pairs that come after those of this one."""
        dropped = {
            name: self.dropped.get(name, 0) + later.dropped.get(name, 0)
            for name in FILTERS
            if name in self.dropped or name in later.dropped
        }
        examples = {
            name: (self.examples.get(name, ()) + later.examples.get(name, ()))[:EXAMPLES]
            for name in FILTERS
            if name in self.examples or name in later.examples
        }
        return FilterReport(
            read=self.read + later.read, kept=self.kept + later.kept, dropped=dropped, examples=examples
        )

    def __str__(self) -> str:
        """A table in plain text, the examples below their filter."""
        width = max(len(f"{self.read:,}"), 5)
        rows = [f"{'read':<10}{self.read:>{width},}"]
        for name, count in self.dropped.items():
            share = count / self.read if self.read else 0.0
            rows.append(f"{name:<10}{count:>{width},} {share:>6.1%}")
            rows.extend(f"    {each}" for each in self.examples.get(name, ()))
        share = self.kept / self.read if self.read else 0.0
        rows.append(f"{'kept':<10}{self.kept:>{width},} {share:>6.1%}")
        return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class Sieve:
    """The filters of a recipe, ready to judge chunks of pairs."""

    drop: frozenset[Filter]
    longest: int
    ratio: float

    @classmethod
    def of(cls, data: Data) -> "Sieve":
        """The filters that a recipe's data section switches on."""
        return cls(frozenset(data.drop), data.longest, data.ratio)

    def judge(
        self,
        chunk: Chunk,
        source_lengths: NDArray[np.int64],
        target_lengths: NDArray[np.int64],
        *,
        duplicate: NDArray[np.bool_] | None = None,
        tagged: bool = False,
    ) -> NDArray[np.int8]:
        """For each pair `KEPT`, or 1 + the place in `FILTERS` of the filter that drops it.

        Lengths count the tokens of the text alone; `tagged` says that each source gets one more.
        """
        shorter, longer = np.minimum(source_lengths, target_lengths), np.maximum(source_lengths, target_lengths)
        hollow = (shorter == 0) | _blank(chunk.source) | _blank(chunk.target)
        caught = {
            "empty": hollow,
            "long": (source_lengths + tagged > self.longest) | (target_lengths > self.longest),
            "ratio": ~hollow & (longer > self.ratio * shorter),
        }
        if "copy" in self.drop:
            caught["copy"] = ~hollow & _same(chunk.source, chunk.target)
        if duplicate is not None:
            caught["duplicate"] = duplicate
        verdicts = np.full(len(chunk), KEPT, np.int8)
        for place in reversed(range(len(FILTERS))):
            if FILTERS[place] in self.drop and FILTERS[place] in caught:
                verdicts[caught[FILTERS[place]]] = 1 + place
        return verdicts

    def report(self, chunk: Chunk, verdicts: NDArray[np.int8]) -> FilterReport:
        """The verdicts on a chunk, counted, with examples."""
        counts = np.bincount(verdicts, minlength=1 + len(FILTERS))
        dropped: dict[Filter, int] = {}
        examples: dict[Filter, tuple[Example, ...]] = {}
        for code, name in enumerate(FILTERS, start=1):
            if name in self.drop:
                dropped[name] = int(counts[code])
            if counts[code]:
                examples[name] = tuple(_example(chunk, int(i)) for i in np.flatnonzero(verdicts == code)[:EXAMPLES])
        return FilterReport(read=len(chunk), kept=int(counts[KEPT]), dropped=dropped, examples=examples)


def _blank(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Where there is nothing but white space."""
    return np.fromiter((not text or text.isspace() for text in texts), np.bool_, len(texts))


def _same(source: Sequence[str], target: Sequence[str]) -> NDArray[np.bool_]:
    """Where both texts are one, spaces around them aside."""
    equal = (a.strip() == b.strip() for a, b in zip(source, target, strict=True))
    return np.fromiter(equal, np.bool_, len(source))


def _example(chunk: Chunk, place: int) -> Example:
    """A pair of the chunk, clipped."""
    return Example(line=chunk.first + place, source=_clip(chunk.source[place]), target=_clip(chunk.target[place]))


def _clip(text: str) -> str:
    """The beginning of a text, with an ellipsis where more followed."""
    return text if len(text) <= CLIP else text[: CLIP - 1] + "…"


def _printable(text: str) -> str:
    """The text with what cannot be printed spelt out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
