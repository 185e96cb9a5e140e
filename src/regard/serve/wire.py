"""What goes over the wire: the shapes of requests and answers, and how bytes become a request.

Requests are strict: an unknown name, a number in quotes, a value that is no number, or text that is no Unicode is
refused, with what is wrong and where. Nothing in a request is ever taken for a path, an address or code.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.serve.settings import Limits
from regard.translator import Options, Terms, Translator

Phrase = Annotated[str, Field(min_length=1, max_length=200)]
Lines = str | Annotated[list[str], Field(min_length=1)]
Finite = Field(allow_inf_nan=False)


class Asked(BaseModel, ABC):
    """What every request may have."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str | None = Field(
        None, max_length=200, description="Name of a model of this server; the first if not told."
    )

    @abstractmethod
    def count(self) -> int:
        """How many lines, or pairs, there are."""

    @abstractmethod
    def characters(self) -> int:
        """How much text there is."""


class Translate(Asked):
    """Lines to translate, and how."""

    source: Lines = Field(description="A line, or several.", examples=["I can go alone"])
    beam: int | None = Field(None, ge=1, description="Hypotheses kept; 1 is greedy.")
    nbest: int | None = Field(None, ge=1, description="Translations, or samples, of each line.")
    length_penalty: Annotated[float, Field(ge=-10, le=10), Finite] | None = Field(
        None, description="Reward for length."
    )
    coverage_penalty: Annotated[float, Field(ge=0, le=100), Finite] | None = Field(
        None, description="Penalty for words not looked at."
    )
    groups: int | None = Field(None, ge=1, description="Groups of beams kept apart; divides the beam.")
    diversity: Annotated[float, Field(ge=0, le=100), Finite] | None = Field(None, description="How far apart.")
    no_repeat: int | None = Field(None, ge=0, le=1000, description="No so many tokens in a row appear twice.")
    min_length: int | None = Field(None, ge=0, le=10_000, description="Fewest tokens of a translation.")
    max_length: int | None = Field(None, ge=1, le=10_000, description="Most tokens of a translation.")
    sample: bool | None = Field(None, description="Draw tokens instead of searching.")
    temperature: Annotated[float, Field(ge=0.01, le=100), Finite] | None = Field(None, description="Of drawing.")
    top_k: int | None = Field(None, ge=1, le=1_000_000, description="Draw from so many best tokens.")
    top_p: Annotated[float, Field(ge=0.001, le=1), Finite] | None = Field(
        None, description="Draw from the fewest tokens this probable."
    )
    min_p: Annotated[float, Field(ge=0, le=1), Finite] | None = Field(
        None, description="Draw from tokens this near to the best."
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="Where drawing starts.")
    mbr: int | None = Field(None, ge=0, description="Choose the one of so many samples most like the rest.")
    prefix: str | None = Field(None, max_length=2000, description="How each translation begins.")
    constraints: list[Phrase] | None = Field(None, max_length=16, description="Phrases each translation has.")
    avoid: list[Phrase] | None = Field(None, max_length=100, description="Phrases no translation has.")
    terms: dict[Phrase, Phrase] | None = Field(
        None, max_length=500, description="What a phrase of the source must become."
    )
    long: Literal["split", "error"] | None = Field(None, description="What to do with lines too long for the model.")
    alignments: bool = Field(False, description="Add word alignments.")
    stream: bool = Field(False, description="Send tokens as they are found, one JSON object a line.")

    @property
    def lines(self) -> list[str]:
        """The lines, also where there is one."""
        return [self.source] if isinstance(self.source, str) else self.source

    def count(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def characters(self) -> int:
        """How much text there is."""
        terms = (self.terms or {}).items()
        beside = (
            self.prefix or "",
            *(self.constraints or ()),
            *(self.avoid or ()),
            *(each for one in terms for each in one),
        )
        return sum(map(len, (*self.lines, *beside)))

    def options(self, translator: Translator, limits: Limits) -> Options:
        """How to translate; what was not told is the recipe's to say."""
        told = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        for name in ("beam", "nbest", "mbr"):
            if told.get(name, 0) > limits.beam:
                raise ValueError(f"{name} is {told[name]}, and this server allows {limits.beam}; ask for less")
        if self.nbest is not None and self.beam is None and not self.sample and not self.mbr:
            told["beam"] = max(self.nbest, translator.options.beam)
        if self.stream and (self.avoid or self.mbr):
            raise ValueError("what is avoided or chosen among samples is known at the end only; ask without stream")
        if self.alignments and translator.aligned_by is None:
            raise ValueError("this model's decoder does not look at its source by weights, so it cannot align words")
        options = translator.options.told(**told, terms=Terms(self.terms or {}))
        if options.coverage_penalty and translator.aligned_by is None:
            raise ValueError("a coverage penalty asks where a model looks, and this one has no attention")
        return options


_OPTIONS = (
    *("beam", "nbest", "length_penalty", "coverage_penalty", "groups", "diversity", "no_repeat", "min_length", "long"),
    *(
        "max_length",
        "sample",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "seed",
        "mbr",
        "prefix",
        "constraints",
        "avoid",
    ),
    "alignments",
)


class Pairs(Asked):
    """Lines and their translations, place by place."""

    source: Lines = Field(description="A line, or several.", examples=["I can go alone"])
    target: Lines = Field(description="Its translation, or that of each.", examples=["Ich kann allein gehen"])

    def count(self) -> int:
        """How many pairs there are."""
        return len(self.pairs)

    def characters(self) -> int:
        """How much text there is."""
        return sum(len(line) for pair in self.pairs for line in pair)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs, also where there is one."""
        sides = [[side] if isinstance(side, str) else side for side in (self.source, self.target)]
        if len(sides[0]) != len(sides[1]):
            raise ValueError(f"there are {len(sides[0])} sources and {len(sides[1])} targets; give one for each")
        return list(zip(*sides, strict=True))


class Tokens(Asked):
    """Lines to see as tokens."""

    source: Lines = Field(description="A line, or several.", examples=["I can go alone"])
    side: Literal["source", "target"] = Field("source", description="Whose vocabulary.")

    @property
    def lines(self) -> list[str]:
        """The lines, also where there is one."""
        return [self.source] if isinstance(self.source, str) else self.source

    def count(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def characters(self) -> int:
        """How much text there is."""
        return sum(map(len, self.lines))


Kind = TypeVar("Kind", bound=Asked)


def read(kind: type[Kind], body: bytes, limits: Limits) -> Kind:
    """The request that bytes are, or a `ValueError` that says what is wrong with them."""
    try:
        asked = kind.model_validate_json(body)
    except ValidationError as error:
        raise ValueError("; ".join(_told(each) for each in error.errors(include_url=False)[:5])) from None
    if (count := asked.count()) > limits.sentences:
        raise ValueError(f"there are {count} lines, and this server allows {limits.sentences}; send them in parts")
    if asked.characters() > limits.characters:
        raise ValueError(
            f"there are {asked.characters()} characters, and this server allows {limits.characters}; send them in parts"
        )
    return asked


def _told(error: Any) -> str:
    """Where, and what; what was sent is not sent back."""
    place = ".".join(str(each) for each in error["loc"])[:100].encode(errors="replace").decode()
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def schema(kind: type[Asked], limits: Limits) -> dict[str, Any]:
    """The JSON schema of a request, as strict as this server's limits."""
    table = kind.model_json_schema()
    assert "$defs" not in table, "requests are flat, so that their schemas need no names"
    for name in ("source", "target"):
        for each in table["properties"].get(name, {}).get("anyOf", ()):
            if each["type"] == "string":
                each["maxLength"] = limits.characters
            else:
                each["maxItems"] = limits.sentences
    for name in ("beam", "nbest", "mbr"):
        for each in table["properties"].get(name, {}).get("anyOf", ()):
            if each["type"] == "integer":
                each["maximum"] = limits.beam
    return table
