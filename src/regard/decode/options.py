"""The options of a search: `SearchOptions` for all its sentences, `SentenceOptions` for one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.options import BeamOptions, CoverageOptions, SamplingOptions
from regard.options.decoding import check_beam
from regard.options.option import with_default


@dataclass(frozen=True)
class LengthLimits:
    """Bounds on the number of tokens in a hypothesis, not counting the end symbol."""

    minimum: int = 0
    maximum: int = 256
    """No hypothesis is longer, usually because the model has no more positions."""
    min_ratio: float = 0.0
    """Minimum number of tokens for each source token, rounded up."""
    max_ratio: float | None = None
    """Maximum number of tokens for each source token, rounded down; None is no such bound. It gives way to the minimum,
    prefixes and constraints."""
    max_extra: int = 10
    """Tokens that are allowed beside those of `max_ratio`."""

    def __post_init__(self) -> None:
        """Raise a `ValueError` for bounds that no sequence satisfies."""
        if not 0 <= self.minimum <= self.maximum:
            raise ValueError(
                f"the minimum length is {self.minimum} and the maximum length {self.maximum}; "
                "0 <= minimum <= maximum must hold"
            )
        if self.min_ratio < 0 or (self.max_ratio is not None and self.max_ratio < 0):
            raise ValueError(f"ratios must not be negative, but are {self.min_ratio} and {self.max_ratio}")

    def bounds(self, sentence: "SentenceOptions") -> tuple[int, int]:
        """Return the minimum and maximum length for one sentence; its prefix and constraints always fit."""
        required = len(sentence.prefix) + sum(len(phrase) for phrase in sentence.constraints)
        maximum = self.maximum if sentence.max_length is None else min(self.maximum, sentence.max_length)
        if required > maximum:
            raise ValueError(
                f"prefix and constraints have {required} tokens, but a hypothesis may have at most {maximum}; "
                "ask for less, or raise the maximum length"
            )
        if self.max_ratio is not None:
            longest = math.floor(self.max_ratio * sentence.source_length) + self.max_extra
            maximum = min(maximum, max(required, self.minimum, longest))
        return min(maximum, max(self.minimum, math.ceil(self.min_ratio * sentence.source_length))), maximum


@dataclass(frozen=True, kw_only=True)
class SearchOptions(BeamOptions, CoverageOptions):
    """Options of a search that hold for every sentence of the batch."""

    begin: int
    """Id of the symbol that every hypothesis starts from; hypotheses do not contain it."""
    end: int
    """Id of the symbol that ends a hypothesis."""
    diversity: float = with_default(BeamOptions, "diversity", default=0.0)
    stopping: Literal["exact", "full"] = "exact"
    """When a sentence is finished: `exact`, when no live hypothesis can still become one of the n best; `full`, as soon
    as as many hypotheses have ended as the beam has."""
    fork: bool = False
    """Whether each group takes another one of the most probable tokens after the prefix."""
    sampling: SamplingOptions | None = None
    """Draw `nbest` samples instead of searching; `beam`, `groups` and `stopping` have no effect then."""
    limits: LengthLimits = field(default_factory=LengthLimits)
    free_cut: bool = False
    """Whether a hypothesis of maximum length ends at no cost, instead of at the log-probability of the end symbol."""
    banned: tuple[int, ...] = ()
    """Ids that no hypothesis contains."""

    def __post_init__(self) -> None:
        """Raise a `ValueError` for options that do not fit each other."""
        super().__post_init__()
        if self.sampling is None:
            check_beam(self)
        elif self.groups > 1:
            raise ValueError(f"groups apply to beam search, not to sampling; got groups={self.groups} with sampling")
        if self.end in self.banned:
            raise ValueError(f"the end symbol {self.end} is banned, so no hypothesis could end")

    @property
    def rows(self) -> int:
        """Number of rows of each sentence; start the stepper's state with as many."""
        return self.beam if self.sampling is None else self.nbest

    @property
    def ended_slots(self) -> int:
        """Number of ended hypotheses that each group keeps: its share of the n best, or all samples."""
        return -(-self.nbest // self.groups) if self.sampling is None else self.nbest

    def check(self, sentence: "SentenceOptions") -> None:
        """Raise a `ValueError` for options of a sentence that no hypothesis can satisfy."""
        phrases = (*sentence.constraints, *sentence.avoid)
        if self.end in {*sentence.prefix, *(token for phrase in phrases for token in phrase)}:
            raise ValueError(f"a prefix or phrase contains the end symbol {self.end}; remove it")
        if not all(phrases):
            raise ValueError("a phrase to contain or to avoid is empty; remove it")
        if sentence.constraints and (self.sampling is not None or self.diversity):
            raise ValueError("constraints need plain beam search; turn sampling and diversity off")
        self.limits.bounds(sentence)


@dataclass(frozen=True, eq=False)
class WordBoundaries:
    """Between which tokens there is a word boundary, by classes of the characters where they begin and end."""

    first: NDArray[np.int8]
    """Class of the first character of each token."""
    last: NDArray[np.int8]
    """Class of the last character of each token."""
    joins: Sequence[Sequence[bool]]
    """Whether characters of two classes belong to one word, as in `joins[before][after]`."""


@dataclass(frozen=True)
class SentenceOptions:
    """Options of a search that hold for one sentence."""

    source_length: int = 0
    """Number of source tokens, for limits relative to it and for the coverage penalty."""
    begin: int | None = None
    """The first token fed to the stepper; None is `SearchOptions.begin`. For a language model that has read a prompt up
    to its last token, it is that last token."""
    max_length: int | None = None
    """Maximum number of tokens, if below the limit of the search."""
    prefix: tuple[int, ...] = ()
    """Ids that the hypothesis starts with."""
    constraints: tuple[tuple[int, ...], ...] = ()
    """Phrases, as ids, that the hypothesis must contain, in any order."""
    boundaries: WordBoundaries | None = None
    """If given, a constraint is met only by whole words: where a word begins before it and one ends after it. The
    sentences of a search have the same."""
    avoid: tuple[tuple[int, ...], ...] = ()
    """Phrases, as ids, that the hypothesis must not contain after the prefix."""
    is_complete: Callable[[Sequence[int]], bool] | None = None
    """Return whether a hypothesis with these tokens ends here, at no cost, as at a stop string; None never does."""
    seed: int = 0
    """Random seed of sampling. The samples of a sentence do not depend on the rest of the batch."""


def begin_of(sentence: SentenceOptions, options: SearchOptions) -> int:
    """Return the first token that is fed to the stepper for a sentence."""
    return options.begin if sentence.begin is None else sentence.begin


def length_bounds(searches: Sequence[SearchOptions], sentences: Sequence[SentenceOptions]) -> list[tuple[int, int]]:
    """Return the minimum and maximum length of each sentence, given the options of its search."""
    return [search.limits.bounds(sentence) for search, sentence in zip(searches, sentences, strict=True)]
