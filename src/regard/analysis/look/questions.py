"""What may be asked, and how bytes become a question.

Questions are strict: what is not known, or is not what it should be, is refused, with what is wrong and where. Nothing
in one is ever taken for a path, an address or code.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from regard.analysis.look.parts import PartName

CHARACTERS = 20_000
"""Most characters of a line."""
TOKENS = 2048
"""Most ids of a list."""
BYTES = 1 << 20
"""Most bytes of a question."""

Text = Annotated[str, Field(max_length=CHARACTERS)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Ids = Annotated[list[Count], Field(max_length=TOKENS)]
Heads = Annotated[list[Count], Field(min_length=1, max_length=256)]
Beam = Annotated[int, Field(ge=1, le=32)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Strict(BaseModel):
    """Takes what it knows, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Ablate(Strict):
    """Some heads of a layer say nothing: zero, what they say on average, or the mean of all they may see."""

    op: Literal["ablate"]
    part: PartName
    layer: Count
    heads: Heads
    how: Literal["zero", "mean", "uniform"] = "zero"


class Keep(Strict):
    """All heads of a layer but some say zero."""

    op: Literal["keep"]
    part: PartName
    layer: Count
    heads: Heads


class Block(Strict):
    """Nobody who writes looks at some source tokens."""

    op: Literal["block"]
    tokens: Annotated[list[Count], Field(min_length=1, max_length=TOKENS)]


class Row(Strict):
    """One head looks from one place as told."""

    op: Literal["row"]
    part: PartName
    layer: Count
    head: Count
    query: Count
    weights: Annotated[list[Weight], Field(min_length=1, max_length=TOKENS)]


Change = Annotated[Ablate | Keep | Block | Row, Field(discriminator="op")]
Changes = Annotated[list[Change], Field(max_length=64)]


class Question(Strict):
    """What every question has: a number to tell its answer by, a channel, and the model that is asked."""

    id: int | str | None = None
    channel: Annotated[str, Field(max_length=100)] = "main"
    model: Annotated[str, Field(max_length=200)] | None = None


class Models(Question):
    """Which models there are."""

    kind: Literal["models"]


class Tokens(Question):
    """What a line becomes."""

    kind: Literal["tokens"]
    source: Text


class First(Strict):
    """The layer that is to be seen first."""

    part: PartName
    layer: Count


class Read(Question):
    """A translation, and where everybody looked."""

    kind: Literal["read"]
    source: Text
    beam: Beam = 1
    target: Text | None = None
    target_ids: Ids | None = None
    prefix: Ids = []
    changes: Changes = []
    baseline: Ids | None = None
    candidates: Annotated[int, Field(ge=1, le=50)] = 8
    want: Annotated[list[PartName], Field(max_length=3)] = ["encoder", "decoder", "cross"]
    first: First | None = None


class Pointed(Question):
    """One query of one head."""

    source: Text
    target_ids: Ids
    changes: Changes = []
    part: PartName
    layer: Count
    head: Count
    query: Count


class ExactRow(Pointed):
    """Exact weights of one query."""

    kind: Literal["row"]


class Maths(Pointed):
    """Every number between a token and what a head made of it."""

    kind: Literal["maths"]


class Tree(Question):
    """What a beam search looked at."""

    kind: Literal["beam"]
    source: Text
    beam: Beam = 5
    nbest: Beam = 1
    prefix: Ids = []
    changes: Changes = []


class Positions(Question):
    """How places are told apart."""

    kind: Literal["positions"]
    count: Annotated[int, Field(ge=1, le=512)] = 64


class Figure(Question):
    """A picture for a paper."""

    kind: Literal["figure"]
    figure: Literal["alignment", "lines", "heads", "positions", "beam"]
    form: Literal["svg", "png", "pdf"] = "svg"
    source: Text = ""
    target: Text | None = None
    target_ids: Ids | None = None
    part: PartName | None = None
    layer: Count | None = None
    heads: Heads | None = None
    aggregate: Literal["mean", "max", "rollout"] | None = None
    words: bool | None = None
    specials: bool | None = None
    scale: Literal["linear", "sqrt", "log"] | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    beam: Beam | None = None
    count: Annotated[int, Field(ge=1, le=512)] | None = None
    title: Annotated[str, Field(max_length=500)] | None = None


AnyQuestion = Models | Tokens | Read | ExactRow | Maths | Tree | Positions | Figure

Asked = bytes | str | Mapping[str, Any] | Question
"""A question as it comes: JSON, a table, or read already."""

_ADAPTER: TypeAdapter[AnyQuestion] = TypeAdapter(Annotated[AnyQuestion, Field(discriminator="kind")])


def read_question(asked: Asked) -> AnyQuestion:
    """The question that bytes or a table are, or a `ValueError` that says what is wrong with them."""
    try:
        if isinstance(asked, AnyQuestion):
            return asked
        if isinstance(asked, Mapping):
            return _ADAPTER.validate_python(dict(asked))
        assert not isinstance(asked, Question), "every question has a kind"
        if len(asked) > BYTES:
            raise ValueError(f"a question has at most {BYTES} bytes; ask for less at once")
        return _ADAPTER.validate_json(asked)
    except ValidationError as error:
        raise ValueError("; ".join(_told(each) for each in error.errors(include_url=False)[:3])) from None


def number_of(asked: Asked) -> int | str | None:
    """The number a question carries, also where the rest of it is wrong."""
    if isinstance(asked, Question):
        return asked.id
    try:
        table = asked if isinstance(asked, Mapping) else json.loads(asked[:BYTES])
        found = table.get("id") if isinstance(table, Mapping) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, int | str) else None


def _told(error: Any) -> str:
    """Where, and what; what was sent is not sent back."""
    place = ".".join(str(each) for each in error["loc"])[:100].encode(errors="replace").decode()
    return f"{place}: {error['msg']}" if place else str(error["msg"])
