"""Filters that drop unsuitable training records, and the report of what they dropped.

Each record is counted under the first filter that drops it, in this order:

- `empty`: a field has no text, or its text has no tokens.
- `long`: a text has more than `longest` tokens, a tag included; histories of turns may have any length.
- `ratio`: one text has more than `ratio` times as many tokens as another, tags not counted.
- `copy`: all texts are the same, apart from white space around them.
- `duplicate`: all values equal those of an earlier record of the same corpus.

`ratio` and `copy` compare the texts of a record, so they apply to tasks with two or more text fields, of which none has
turns. A record with an empty text has no ratio and is no copy: with `empty` switched off, such records are kept.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from regard.data.corpus import Chunk
from regard.data.rows import Lengths
from regard.recipe import Data, Filter
from regard.text import printable

FILTERS: tuple[Filter, ...] = get_args(Filter)
"""The filters, in the order in which they are applied."""

EXAMPLES = 3  # dropped records that the report shows for each filter
CLIP = 80  # characters of a value that the report shows
KEPT = 0
"""Result of `RecordFilter.apply` for a record that no filter drops."""


class DroppedExample(BaseModel):
    """A dropped record for the report: its line number and the beginning of its values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    line: PositiveInt
    values: dict[str, str]

    def __str__(self) -> str:
        """Return the record on one line; control characters are escaped, so that a corpus cannot control a terminal."""
        return f"line {self.line:,}: {' ||| '.join(map(printable, self.values.values()))}"


class FilterReport(BaseModel):
    """Number of records read and kept, number dropped by each active filter, and the first few of those."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read: NonNegativeInt = 0
    kept: NonNegativeInt = 0
    dropped: dict[Filter, NonNegativeInt] = {}
    examples: dict[Filter, tuple[DroppedExample, ...]] = {}

    def __add__(self, later: Self) -> "FilterReport":
        """Combine with the report of records that come after those of this one."""
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
        """Return a table in plain text, with examples below each filter."""
        width = max(len(f"{self.read:,}"), 5)
        rows = [f"{'read':<10}{self.read:>{width},}"]
        for name, count in self.dropped.items():
            share = count / self.read if self.read else 0.0
            rows.append(f"{name:<10}{count:>{width},} {share:>6.1%}")
            rows.extend(f"    {example}" for example in self.examples.get(name, ()))
        share = self.kept / self.read if self.read else 0.0
        rows.append(f"{'kept':<10}{self.kept:>{width},} {share:>6.1%}")
        return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The active filters of a recipe, applied to chunks of records."""

    drop: frozenset[Filter]
    longest: int
    ratio: float

    @classmethod
    def of(cls, data: Data, drop: Collection[Filter] | None = None) -> "RecordFilter":
        """Return the filters of a recipe's `[data]` section, or only those in `drop`."""
        return cls(frozenset(data.drop if drop is None else drop), data.longest, data.ratio)

    def apply(
        self,
        chunk: Chunk,
        lengths: Mapping[str, Lengths],
        *,
        duplicate: NDArray[np.bool_] | None = None,
        tagged: Collection[str] = (),
        cut: Collection[str] = (),
    ) -> NDArray[np.int8]:
        """Return for each record `KEPT`, or 1 + the index in `FILTERS` of the filter that drops it.

        Args:
            chunk: The raw records.
            lengths: For each text field, the number of tokens of each record, tags not counted.
            duplicate: Which records repeat an earlier one, if that is known.
            tagged: Fields whose texts get a tag, which counts as one more token.
            cut: Fields whose texts may have any length, because batches hold only a part of long ones.
        """
        texts = [chunk.columns[name] for name in lengths]
        matched: dict[Filter, NDArray[np.bool_]] = {}
        if texts:
            shortest = np.minimum.reduce(list(lengths.values()))
            longest = np.maximum.reduce(list(lengths.values()))
            empty = (shortest == 0) | np.logical_or.reduce([_blank(column) for column in texts])
            matched["empty"] = empty
            matched["long"] = np.logical_or.reduce(
                [count + (name in tagged) > self.longest for name, count in lengths.items() if name not in cut]
            )
        if len(texts) > 1 and not cut:
            matched["ratio"] = ~empty & (longest > self.ratio * shortest)
            if "copy" in self.drop:
                matched["copy"] = ~empty & _same(texts)
        if duplicate is not None:
            matched["duplicate"] = duplicate
        verdicts = np.full(len(chunk), KEPT, np.int8)
        for index in reversed(range(len(FILTERS))):
            if FILTERS[index] in self.drop and FILTERS[index] in matched:
                verdicts[matched[FILTERS[index]]] = 1 + index
        return verdicts

    def report(self, chunk: Chunk, verdicts: NDArray[np.int8]) -> FilterReport:
        """Count the verdicts on a chunk, with examples."""
        counts = np.bincount(verdicts, minlength=1 + len(FILTERS))
        dropped: dict[Filter, int] = {}
        examples: dict[Filter, tuple[DroppedExample, ...]] = {}
        for code, name in enumerate(FILTERS, start=1):
            if name in self.drop:
                dropped[name] = int(counts[code])
            if counts[code]:
                examples[name] = tuple(_example(chunk, int(i)) for i in np.flatnonzero(verdicts == code)[:EXAMPLES])
        return FilterReport(read=len(chunk), kept=int(counts[KEPT]), dropped=dropped, examples=examples)


def _blank(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Return where a text is empty or only white space."""
    return np.fromiter((not text or text.isspace() for text in texts), np.bool_, len(texts))


def _same(columns: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return where all texts of a record are equal, apart from white space around them."""
    first, *others = columns
    equal = (
        all(text.strip() == value.strip() for value in values) for text, *values in zip(first, *others, strict=True)
    )
    return np.fromiter(equal, np.bool_, len(first))


def _example(chunk: Chunk, index: int) -> DroppedExample:
    """Return a record of the chunk, clipped."""
    return DroppedExample(
        line=chunk.line(index), values={name: _clip(column[index]) for name, column in chunk.columns.items()}
    )


def _clip(text: str) -> str:
    """Return the beginning of a text, with an ellipsis if more follows."""
    return text if len(text) <= CLIP else text[: CLIP - 1] + "…"
