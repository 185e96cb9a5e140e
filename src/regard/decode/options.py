"""What a search may be told: once for all sentences (`Options`), and for each (`Wish`)."""

import math
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Limits:
    """How many tokens a hypothesis has, the end symbol not counted."""

    least: int = 0
    most: int = 256
    """The bound nothing goes beyond: what the model can take."""
    least_per_source: float = 0.0
    """Tokens for each source token, rounded up."""
    most_per_source: float | None = None
    """Tokens for each source token, rounded down, `spare` beside; None is no bound."""
    spare: int = 10

    def __post_init__(self) -> None:
        """Refuse what no sequence can satisfy."""
        if not 0 <= self.least <= self.most:
            raise ValueError(f"a hypothesis of at least {self.least} and at most {self.most} tokens does not exist")
        if self.least_per_source < 0 or (self.most_per_source is not None and self.most_per_source < 0):
            raise ValueError("tokens for each source token cannot be negative")

    def of(self, wish: "Wish") -> tuple[int, int]:
        """The fewest and the most tokens for one sentence; there is always room for what it asks for."""
        asked = len(wish.prefix) + sum(len(phrase) for phrase in wish.phrases)
        if asked > self.most:
            raise ValueError(
                f"the prefix and phrases asked for have {asked} tokens, but a hypothesis at most {self.most}; "
                "ask for less or raise the limit"
            )
        most = self.most
        if self.most_per_source is not None:
            most = min(most, max(asked, math.floor(self.most_per_source * wish.source) + self.spare))
        return min(most, max(self.least, math.ceil(self.least_per_source * wish.source))), most


@dataclass(frozen=True)
class Sampling:
    """Draw tokens from the distribution instead of searching for the most probable sequence."""

    count: int = 1
    """Samples of each sentence."""
    temperature: float = 1.0
    """Log-probabilities are divided by it."""
    top_k: int | None = None
    """Draw from this many most probable tokens (Fan et al. 2018)."""
    top_p: float = 1.0
    """Draw from the fewest tokens that together have at least this probability (Holtzman et al. 2020)."""
    min_p: float = 0.0
    """Draw from tokens at least this fraction as probable as the most probable one (Nguyen et al. 2024)."""

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        if self.count < 1:
            raise ValueError(f"{self.count} samples cannot be drawn; ask for 1 or more")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"a temperature is above 0, not {self.temperature}; for the most probable use beam = 1")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is 1 or more, not {self.top_k}")
        if not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise ValueError(f"top_p is in (0, 1] and min_p in [0, 1], not {self.top_p} and {self.min_p}")


@dataclass(frozen=True)
class Options:
    """How to search, the same for all sentences of a batch."""

    begin: int
    """Id of the symbol every hypothesis starts from; it is no part of it."""
    end: int
    """Id of the symbol that ends a hypothesis."""
    beam: int = 5
    """Hypotheses kept at each step; 1 is greedy."""
    nbest: int = 1
    """How many hypotheses are wanted for each sentence, the best first."""
    length_penalty: float = 1.0
    """Exponent alpha of what a log-probability is divided by; 0 is none."""
    normalise: Literal["gnmt", "average"] = "gnmt"
    """Divide by ((5 + n) / 6) ** alpha (Wu et al. 2016, eq. 14) or n ** alpha; n counts tokens and the end symbol."""
    coverage_penalty: float = 0.0
    """Weight beta of sources not looked at (Wu et al. 2016, eq. 14); the stepper must be an `Attender`."""
    stopping: Literal["exact", "full"] = "exact"
    """When a sentence is done: when no live hypothesis can still become one of the n best, or already when as many
    have ended as the beam is wide."""
    groups: int = 1
    """Groups of beams that are kept apart (Vijayakumar et al. 2018); divides the beam."""
    diversity: float = 0.0
    """What a token loses for each time an earlier group chose it at the same step."""
    fork: bool = False
    """Whether each group takes another of the most probable tokens where the prefix ends, and goes on from there."""
    sampling: Sampling | None = None
    """Draw samples instead; all of them are given, and beam, n-best and stopping mean nothing."""
    limits: Limits = field(default_factory=Limits)
    banned: tuple[int, ...] = ()
    """Ids that never appear."""
    no_repeat: int = 0
    """No sequence of this many tokens appears twice; 0 is no such rule."""

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        if self.beam < 1 or self.groups < 1 or self.beam % self.groups:
            raise ValueError(f"a beam of {self.beam} does not divide into {self.groups} groups")
        if not 1 <= self.nbest <= self.beam:
            raise ValueError(f"a beam of {self.beam} gives between 1 and {self.beam} best, not {self.nbest}")
        if self.sampling is not None and self.groups > 1:
            raise ValueError("samples are drawn each by itself; groups are for beams")
        if self.end in self.banned:
            raise ValueError(f"the end symbol {self.end} is banned, so nothing could ever end")
        for name in ("length_penalty", "coverage_penalty", "diversity"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is a number, not {getattr(self, name)}")
        if self.coverage_penalty < 0 or self.diversity < 0 or self.no_repeat < 0:
            raise ValueError("coverage_penalty, diversity and no_repeat are not negative")

    @property
    def rows(self) -> int:
        """Rows the stepper's state must have for each sentence: start it with this many beams."""
        return self.beam if self.sampling is None else self.sampling.count

    @property
    def places(self) -> int:
        """Ended hypotheses each group keeps: its share of the n best, or all samples."""
        return -(-self.nbest // self.groups) if self.sampling is None else self.sampling.count

    def check(self, wish: "Wish") -> None:
        """Refuse a wish that cannot be meant."""
        if self.end in {*wish.prefix, *(token for phrase in (*wish.phrases, *wish.avoid) for token in phrase)}:
            raise ValueError(f"a prefix or phrase holds the end symbol {self.end}, behind which nothing comes")
        if not all(wish.phrases) or not all(wish.avoid):
            raise ValueError("a phrase has at least one token; leave empty ones out")
        if wish.phrases and (self.sampling is not None or self.diversity):
            raise ValueError(
                "phrases that must appear need a plain beam: sampling and diversity do not search for them"
            )
        self.limits.of(wish)


@dataclass(frozen=True)
class Wish:
    """What is asked for one sentence."""

    source: int = 0
    """Tokens of the source, for limits relative to it and for the coverage penalty."""
    prefix: tuple[int, ...] = ()
    """Ids the hypothesis begins with."""
    phrases: tuple[tuple[int, ...], ...] = ()
    """Phrases that must appear, each as ids, in any order."""
    avoid: tuple[tuple[int, ...], ...] = ()
    """Phrases that must not appear behind the prefix."""
    seed: int = 0
    """What sampling draws from: one seed gives the same samples whatever else is in the batch."""
