"""The options of beam search, of sampling, of translation and of text generation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from regard.options.option import OptionError, OptionSet, option, with_default
from regard.options.terminology import Terminology

SEARCH, SAMPLING, CONSTRAINTS, OUTPUT, MACHINE = "Search", "Sampling", "Constraints", "Output", "Machine"
"""Headings of help pages."""
LONGEST_OUTPUT = 1 << 16
"""No output has more tokens than this, whatever the options say."""


@dataclass(frozen=True)
class BeamOptions(OptionSet):
    """Options of beam search; they do not depend on what is searched."""

    beam: int = option(
        5,
        "Beam width: number of hypotheses kept at each step; 1 is greedy search",
        minimum=1,
        panel=SEARCH,
        recipe=True,
    )
    nbest: int = option(
        1, "Number of outputs for each input, best first; with sampling, number of samples", minimum=1, panel=SEARCH
    )
    length_penalty: float = option(
        1.0,
        "Exponent of the length penalty: larger values favour longer outputs, 0 disables it",
        paper="Wu et al. 2016, eq. 14",
        minimum=-10,
        maximum=10,
        panel=SEARCH,
        recipe=True,
    )
    normalise: Literal["gnmt", "average"] = option(
        "gnmt",
        "Base of the length penalty: gnmt is (5 + length) / 6 (Wu et al. 2016, eq. 14), average is the length itself",
        panel=SEARCH,
        recipe=True,
        flag=False,
        http=False,
    )
    groups: int = option(
        1,
        "Number of groups in diverse beam search; must divide the beam width",
        paper="Vijayakumar et al. 2018",
        minimum=1,
        panel=SEARCH,
    )
    diversity: float = option(
        0.5,
        "Penalty on a token for each earlier group that chose it at the same step",
        minimum=0,
        maximum=100,
        panel=SEARCH,
    )
    no_repeat: int = option(
        0, "Do not repeat any n-gram of this length; 0 disables the rule", minimum=0, panel=SEARCH, recipe=True
    )


@dataclass(frozen=True)
class CoverageOptions(OptionSet):
    """Options of a search that need the attention to a source."""

    coverage_penalty: float = option(
        0.0,
        "Weight of the penalty for source tokens that receive little attention; 0 disables it",
        paper="Wu et al. 2016, eq. 14",
        minimum=0,
        maximum=100,
        panel=SEARCH,
        recipe=True,
    )


@dataclass(frozen=True)
class SamplingOptions(OptionSet):
    """Options that change the distribution that tokens are sampled from."""

    temperature: float = option(
        1.0,
        "Softmax temperature: below 1 favours probable tokens, above 1 flattens the distribution",
        above=0,
        maximum=100,
        panel=SAMPLING,
    )
    top_k: int | None = option(
        None,
        "Top-k sampling: sample from the K most probable tokens",
        paper="Fan et al. 2018",
        minimum=1,
        panel=SAMPLING,
    )
    top_p: float = option(
        1.0,
        "Nucleus sampling: sample from the smallest set of tokens with total probability P",
        paper="Holtzman et al. 2020",
        above=0,
        maximum=1,
        panel=SAMPLING,
    )
    min_p: float = option(
        0.0,
        "Min-p sampling: sample from tokens at least P times as probable as the most probable one",
        paper="Nguyen et al. 2024",
        minimum=0,
        maximum=1,
        panel=SAMPLING,
    )


@dataclass(frozen=True)
class SeedOptions(OptionSet):
    """Whether to sample, and from which seed."""

    sample: bool = option(False, "Sample tokens from the model's distribution instead of searching", panel=SAMPLING)
    seed: int = option(
        0,
        "Random seed; an input gets the same samples from the same seed, whatever else is in its batch",
        minimum=0,
        panel=SAMPLING,
    )


_NOT_LISTED = {
    *("beam", "length_penalty", "normalise", "sample", "seed", "temperature", "top_k", "top_p", "min_p", "mbr"),
    *("nbest", "long", "alignments", "tokens"),
}
"""Options that `TranslationOptions.signature` states first, and options that do not change the best translation."""


@dataclass(frozen=True)
class TranslationOptions(SamplingOptions, SeedOptions, CoverageOptions, BeamOptions):
    """Options of a translation; the recipe of a run provides the defaults of some.

    >>> TranslationOptions(beam=4).override(nbest=2).nbest
    2
    """

    mbr: int = option(
        0,
        "Minimum Bayes risk decoding: draw N samples and return the one most similar to the others; 0 disables it",
        minimum=0,
        panel=SAMPLING,
    )
    min_length: int = option(
        0, "Minimum number of tokens in a translation", minimum=0, maximum=LONGEST_OUTPUT, panel=SEARCH
    )
    max_length: int | None = option(
        None, "Maximum number of tokens in a translation", minimum=1, maximum=LONGEST_OUTPUT, panel=SEARCH
    )
    longest: float = option(
        2.0,
        "Maximum number of tokens in a translation for each source token; 10 more are always allowed",
        above=0,
        maximum=100,
        panel=SEARCH,
        recipe=True,
        flag=False,
        http=False,
    )
    prefix: str = option("", "Text that every translation starts with", panel=CONSTRAINTS, flag=False)
    constraints: tuple[str, ...] = option(
        (), "Phrases that every translation must contain", panel=CONSTRAINTS, flag=False
    )
    avoid: tuple[str, ...] = option((), "Phrases that no translation may contain", panel=CONSTRAINTS, flag=False)
    terms: Terminology = option(  # noqa: RUF009 (a terminology is immutable)
        Terminology(), "Terminology: the translation each source phrase must have", panel=CONSTRAINTS, flag=False
    )
    long: Literal["split", "error"] = option(
        "split",
        "What to do with a line longer than the model was trained on: split it into segments, or report an error",
        panel=CONSTRAINTS,
    )
    alignments: bool = option(False, "Add the word alignment of each translation", panel=OUTPUT)
    tokens: int | None = option(
        None,
        "Batch size in source tokens times beam width; a smaller batch needs less memory",
        minimum=1,
        panel=MACHINE,
        flag="--batch",
        http=False,
    )

    def __post_init__(self) -> None:
        """Check values, alone and together, before any line is read."""
        super().__post_init__()
        _to_tuples(self, "constraints", "avoid")
        if isinstance(self.terms, Mapping):
            object.__setattr__(self, "terms", Terminology(self.terms))
        sampled = self.sample or bool(self.mbr)
        _check_search(self, sampled)
        if self.mbr and self.nbest > self.mbr:
            raise OptionError(
                f"{{nbest}} is {{0}}, but there are only {{1}} samples; use {{mbr:{self.nbest}}} or more",
                self.nbest,
                self.mbr,
            )
        if self.max_length is not None and self.min_length > self.max_length:
            raise OptionError(
                "{min_length} is {0}, which is more than {max_length}, {1}; change one of them",
                self.min_length,
                self.max_length,
            )
        if (self.constraints or len(self.terms)) and (sampled or self.groups > 1):
            raise OptionError(
                "{constraints} and {terms} need plain beam search; leave out {sample}, {mbr} and {groups}"
            )

    def override(self, **changes: Any) -> Self:
        """Return a copy with some options changed.

        Raises:
            ValueError: If there is no option of that name, a value is not allowed, or options of both search and
                sampling are given.
        """
        changed = super().override(**changes)
        if "beam" in changes and (changed.sample or changed.mbr):
            sampling = "sample" if changed.sample else "mbr"
            raise OptionError(f"{{beam}} needs beam search, but {{{sampling}}} needs sampling; give only one of them")
        return changed

    @property
    def signature(self) -> str:
        """The options that change the text, in the style of a metric's signature."""
        sampling = (
            f"sample|temperature:{self.temperature:g}|top-k:{self.top_k}|top-p:{self.top_p:g}"
            f"|min-p:{self.min_p:g}|seed:{self.seed}"
        )
        if self.mbr:
            parts = [f"mbr:{self.mbr}|{sampling}"]
        elif self.sample:
            parts = [sampling]
        else:
            parts = [f"beam:{self.beam}|length:{self.normalise}-{self.length_penalty:g}"]
        for declared in self.declared():
            value = getattr(self, declared.name)
            if declared.name not in _NOT_LISTED and value and value != declared.default:
                name = declared.name.replace("_", "-")
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                parts.append(f"{name}:{value:g}" if is_number else name)
        return "|".join(parts)


@dataclass(frozen=True)
class GenerationOptions(SamplingOptions, SeedOptions, BeamOptions):
    """Options of text generation by a language model: sampling, unless a beam width is given.

    >>> GenerationOptions().sample, GenerationOptions().override(beam=4).sample
    (True, False)
    """

    sample: bool = with_default(SeedOptions, "sample", default=True)
    beam: int = with_default(
        BeamOptions, "beam", default=5, help="Beam search with this beam width instead of sampling; 1 is greedy search"
    )
    temperature: float = with_default(SamplingOptions, "temperature", default=0.8)
    top_p: float = with_default(SamplingOptions, "top_p", default=0.95)
    max_tokens: int = option(200, "Maximum number of new tokens", minimum=1, maximum=LONGEST_OUTPUT, panel=OUTPUT)
    min_tokens: int = option(0, "Minimum number of new tokens", minimum=0, maximum=LONGEST_OUTPUT, panel=OUTPUT)
    stop: tuple[str, ...] = option((), "Strings that end the text; the text does not contain them", panel=OUTPUT)

    def __post_init__(self) -> None:
        """Check values, alone and together, before anything is generated."""
        super().__post_init__()
        _to_tuples(self, "stop")
        if not all(self.stop):
            raise OptionError("a {stop} string is empty, so every text would end at once; remove it")
        if self.min_tokens > self.max_tokens:
            raise OptionError(
                "{min_tokens} is {0}, which is more than {max_tokens}, {1}; change one of them",
                self.min_tokens,
                self.max_tokens,
            )
        _check_search(self, self.sample)

    def override(self, **changes: Any) -> Self:
        """Return a copy with some options changed; a given beam width turns sampling off.

        Raises:
            ValueError: If there is no option of that name, a value is not allowed, or options of both search and
                sampling are given.
        """
        sampling = [name for name in ("sample", *SAMPLING_NAMES) if changes.get(name)]
        if "beam" in changes:
            if sampling:
                raise OptionError(
                    f"{{beam}} needs beam search, but {{{sampling[0]}}} needs sampling; give only one of them"
                )
            changes["sample"] = False
        return super().override(**changes)


@dataclass(frozen=True)
class ChatOptions(GenerationOptions):
    """Options of a reply to the turns of a dialogue: beam search, unless an option of sampling is given.

    >>> ChatOptions().sample, ChatOptions().override(temperature=0.7).sample
    (False, True)
    """

    sample: bool = with_default(SeedOptions, "sample", default=False)
    beam: int = with_default(BeamOptions, "beam", default=5)
    max_tokens: int = with_default(GenerationOptions, "max_tokens", default=80, help="Maximum tokens of a reply")
    min_tokens: int = with_default(GenerationOptions, "min_tokens", default=0, help="Minimum tokens of a reply")
    turns: int | None = option(
        None, "Maximum number of turns of the history that are read; default: as in training", minimum=1, panel=SEARCH
    )
    candidates: int = option(
        20,
        "With a model that predicts histories from replies: number of replies to choose from",
        paper="Li et al. 2016",
        minimum=1,
        maximum=1000,
        panel=SEARCH,
        http=False,
    )
    rerank_weight: float = option(
        0.5,
        "With such a model: its weight λ in (1 - λ) log p(reply | history) + λ log p(last turn | reply)",
        paper="Li et al. 2016, eq. 12",
        minimum=0,
        maximum=1,
        panel=SEARCH,
        http=False,
    )

    def override(self, **changes: Any) -> Self:
        """Return a copy with some options changed; a given option of sampling turns sampling on.

        Raises:
            ValueError: If there is no option of that name, a value is not allowed, or options of both search and
                sampling are given.
        """
        if any(changes.get(name) is not None for name in SAMPLING_NAMES) and not {"sample", "beam"} & changes.keys():
            changes["sample"] = True
        return super().override(**changes)

    def with_candidates(self) -> Self:
        """Return the options of a search for all replies to choose from."""
        count = max(self.candidates, self.nbest)
        if self.sample:
            return self.override(nbest=count)
        beam = -(-max(count, self.beam) // self.groups) * self.groups  # a multiple of the groups
        return self.override(nbest=count, beam=beam)


SAMPLING_NAMES = (*(declared.name for declared in SamplingOptions.declared()), "seed")
"""Options that have no effect without sampling."""


def check_beam(options: BeamOptions) -> None:
    """Raise a `ValueError` if beam width, groups and number of outputs do not fit each other."""
    if options.beam % options.groups:
        raise OptionError(
            "{groups} must divide the beam width, but {0} is no multiple of {1}", options.beam, options.groups
        )
    if options.nbest > options.beam:
        raise OptionError(
            f"a beam of {{0}} cannot give {{1}} outputs; use {{beam:{options.nbest}}} or more",
            options.beam,
            options.nbest,
        )


def _check_search(options: "TranslationOptions | GenerationOptions", sampled: bool) -> None:
    """Raise a `ValueError` for an option that would have no effect, because it belongs to another method of search."""
    if sampled and options.groups > 1:
        raise OptionError("{groups} need beam search, but this is sampling; give only one of them")
    if not sampled:
        check_beam(options)
        for declared in options.declared():
            if declared.name in SAMPLING_NAMES and getattr(options, declared.name) != declared.default:
                raise OptionError(
                    f"{{{declared.name}}} has no effect on beam search; use {{sample:True}} too, or leave it out"
                )
    if options.groups == 1 and options.diversity != BeamOptions.diversity:
        raise OptionError("{diversity} has no effect without groups; use {groups} too, or leave it out")


def _to_tuples(options: OptionSet, *names: str) -> None:
    """Convert lists of strings to tuples, so that options can be hashed; raise a `ValueError` for a string."""
    for name in names:
        value = getattr(options, name)
        if isinstance(value, str):
            raise OptionError(f"{{{name}}} must be a list of strings, such as [{{0!r}}], but is a string", value)
        object.__setattr__(options, name, tuple(value))
