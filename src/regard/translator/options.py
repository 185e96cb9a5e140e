"""What a translation may be told: once for all lines (`Options`), and for each line (`Request`)."""

from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal

from regard import decode
from regard.recipe import Decode
from regard.text import END, PAD, START
from regard.translator.terms import Terms

FARTHEST = 1 << 16
"""Tokens a translation never goes beyond, whatever it was told."""
SPARE = 10
"""Tokens a translation may have besides `longest` for each token of its source."""


@dataclass(frozen=True)
class Request:
    """A line to translate, with what is asked for it alone."""

    line: str
    prefix: str = ""
    """How its translation begins."""
    constraints: tuple[str, ...] = ()
    """Phrases its translation has in it."""
    avoid: tuple[str, ...] = ()
    """Phrases its translation has not."""


@dataclass(frozen=True)
class Options:
    """How lines are translated; what stands in a recipe is where the defaults come from."""

    beam: int = 5
    """Hypotheses kept at each step; 1 is greedy."""
    nbest: int = 1
    """Translations of each line, the best first; with `sample`, samples."""
    length_penalty: float = 1.0
    """Exponent of what a log-probability is divided by; 0 is none."""
    normalise: Literal["gnmt", "average"] = "gnmt"
    """What it is the exponent of: (5 + length) / 6 (Wu et al. 2016, eq. 14), or the length."""
    coverage_penalty: float = 0.0
    """Weight of source tokens that were not looked at (Wu et al. 2016, eq. 14)."""
    groups: int = 1
    """Groups of beams that are kept apart (Vijayakumar et al. 2018)."""
    diversity: float = 0.5
    """What a token loses for each time an earlier group chose it."""
    sample: bool = False
    """Draw tokens by their probability instead of searching."""
    temperature: float = 1.0
    """Below 1 draws the probable more often, above 1 the improbable."""
    top_k: int | None = None
    """Draw from this many most probable tokens."""
    top_p: float = 1.0
    """Draw from the fewest tokens that together have this probability."""
    min_p: float = 0.0
    """Draw from tokens at least this fraction as probable as the most probable."""
    seed: int = 0
    """The same seed draws the same for the same line, in whatever company."""
    mbr: int = 0
    """Choose among so many samples the one most like the others (minimum Bayes risk); 0 is off."""
    min_length: int = 0
    """Fewest tokens of a translation."""
    max_length: int | None = None
    """Most tokens of a translation."""
    longest: float = 2.0
    """Tokens a translation may have for each token of its source, 10 besides."""
    no_repeat: int = 0
    """No sequence of this many tokens appears twice in a translation; 0 is no such rule."""
    prefix: str = ""
    """How each translation begins."""
    constraints: tuple[str, ...] = ()
    """Phrases each translation has in it."""
    avoid: tuple[str, ...] = ()
    """Phrases no translation has in it."""
    terms: Terms = field(default_factory=Terms)
    """What a phrase of the source must become."""
    long: Literal["split", "error"] = "split"
    """What becomes of a line the model was not made for: translated piece by piece, or refused."""
    alignments: bool = False
    """Whether each translation comes with its word alignment."""
    tokens: int | None = None
    """Source tokens, times beams, that are translated at once; what suits the device if not told."""

    def __post_init__(self) -> None:
        """Refuse what does not fit together, before a line is read."""
        for name in ("constraints", "avoid"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is a list of phrases; write [{getattr(self, name)!r}]")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.sample and not self.mbr and self.nbest > self.beam:
            raise ValueError(f"a beam of {self.beam} does not give {self.nbest} translations of a line; widen it")
        if self.mbr and self.nbest > self.mbr:
            raise ValueError(f"the best {self.nbest} of {self.mbr} samples cannot be chosen; draw more samples")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"no translation has at least {self.min_length} tokens and at most {self.max_length}")
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"a batch has at least one token, not {self.tokens}")
        if (self.constraints or len(self.terms)) and (self.sample or self.mbr or self.groups > 1):
            raise ValueError("phrases that must appear are searched for by a plain beam: not by samples, not in groups")
        self.search()

    @classmethod
    def from_recipe(cls, told: Decode) -> "Options":
        """As a recipe says."""
        return cls(
            beam=told.beam,
            length_penalty=told.length_penalty,
            normalise=told.normalise,
            coverage_penalty=told.coverage_penalty,
            no_repeat=told.no_repeat,
            longest=told.longest,
        )

    def told(self, **changes: Any) -> "Options":
        """The same but for some changes, each under its name."""
        known = [each.name for each in fields(self)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise ValueError(f"a translation has no option '{name}'; {hint}")
        return replace(self, **changes)

    @property
    def signature(self) -> str:
        """How translations are searched for, in the manner of a score's signature: what can change the text."""
        drawn = f"sample|temperature:{self.temperature:g}|top-k:{self.top_k}|top-p:{self.top_p:g}|min-p:{self.min_p:g}"
        if self.mbr:
            first = f"mbr:{self.mbr}|{drawn}|seed:{self.seed}"
        elif self.sample:
            first = f"{drawn}|seed:{self.seed}"
        else:
            first = f"beam:{self.beam}|length:{self.normalise}-{self.length_penalty:g}"
        told = [
            f"{name.replace('_', '-')}:{getattr(self, name):g}"
            for name in ("coverage_penalty", "no_repeat", "min_length")
            if getattr(self, name)
        ]
        told += [f"groups:{self.groups}"] * (self.groups > 1)
        told += [name for name in ("prefix", "constraints", "avoid", "terms") if getattr(self, name)]
        return "|".join([first, *told])

    def search(self, most: int = FARTHEST) -> decode.Options:
        """The same in tokens; `most` is what the model can take."""
        drawn = self.mbr or (self.nbest if self.sample else 0)
        sampling = decode.Sampling(drawn, self.temperature, self.top_k, self.top_p, self.min_p) if drawn else None
        most = min(most, self.max_length) if self.max_length is not None else most
        return decode.Options(
            begin=START,
            end=END,
            beam=self.beam,
            # Samples are all kept, however many are wanted.
            nbest=1 if drawn else self.nbest,
            length_penalty=self.length_penalty,
            normalise=self.normalise,
            coverage_penalty=self.coverage_penalty,
            groups=1 if drawn else self.groups,
            diversity=self.diversity if self.groups > 1 and not drawn else 0.0,
            sampling=sampling,
            limits=decode.Limits(min(self.min_length, most), most, most_per_source=self.longest, spare=SPARE),
            banned=(PAD, START),
            no_repeat=self.no_repeat,
        )
