"""Define the questions of the explorer's protocol, and parse them.

Parsing is strict: unknown names and wrong types are refused with a message that says where and why. Nothing in a
question is ever used as a path, an address or code.
"""

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from regard.explore.attention import AttentionPart

MAX_CHARACTERS = 20_000
"""Longest text of a question."""
MAX_TOKENS = 2048
"""Longest list of token ids."""
MAX_BYTES = 1 << 20
"""Largest question."""
MAX_QUOTED = 40
"""Characters of a question or request that an error message quotes."""

MAX_TURNS = 200
"""Longest conversation of a question."""

InputField = Literal["source", "text", "history"]
"""Name of a model's input: `source` of a translator, `text` of a language model or a classifier, `history` of a
chatbot."""
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Ids = Annotated[list[Count], Field(max_length=MAX_TOKENS)]
Heads = Annotated[list[Count], Field(min_length=1, max_length=256)]
Beam = Annotated[int, Field(ge=1, le=32)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class StrictModel(BaseModel):
    """Base of everything in a question: immutable, without conversions, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AblateHeads(StrictModel):
    """Replace the output of some heads: by zero, by its mean over the sentence, or by a uniform average."""

    op: Literal["ablate"]
    part: AttentionPart
    layer: Count
    heads: Heads
    how: Literal["zero", "mean", "uniform"] = "zero"


class KeepHeads(StrictModel):
    """Replace the output of all other heads of a layer by zero."""

    op: Literal["keep"]
    part: AttentionPart
    layer: Count
    heads: Heads


class BlockTokens(StrictModel):
    """Hide some source tokens from cross-attention."""

    op: Literal["block"]
    tokens: Annotated[list[Count], Field(min_length=1, max_length=MAX_TOKENS)]


class SetWeights(StrictModel):
    """Replace the attention weights of one query of one head."""

    op: Literal["row"]
    part: AttentionPart
    layer: Count
    head: Count
    query: Count
    weights: Annotated[list[Weight], Field(min_length=1, max_length=MAX_TOKENS)]


Change = Annotated[AblateHeads | KeepHeads | BlockTokens | SetWeights, Field(discriminator="op")]
Changes = Annotated[list[Change], Field(max_length=64)]


class EraseParts(StrictModel):
    """Erase some sentences or words of a text that is classified."""

    op: Literal["erase"]
    level: Literal["sentence", "word"]
    numbers: Annotated[list[Count], Field(min_length=1, max_length=MAX_CHARACTERS)]


class DropTurns(StrictModel):
    """Drop some turns of a conversation."""

    op: Literal["drop"]
    numbers: Annotated[list[Count], Field(min_length=1, max_length=MAX_TURNS)]


class EditTurn(StrictModel):
    """Replace the text of a turn of a conversation."""

    op: Literal["edit"]
    number: Count
    text: Text


TurnChange = Annotated[DropTurns | EditTurn, Field(discriminator="op")]
Turns = Annotated[list[Text], Field(max_length=MAX_TURNS)]


class Question(StrictModel):
    """Fields of every question: an id that its answer repeats, a channel, and the model it is about."""

    id: int | str | None = None
    channel: Annotated[str, Field(max_length=100)] = "main"
    model: Annotated[str, Field(max_length=200)] | None = None


class InputQuestion(Question):
    """A question about an input text, under the name of the model's input field."""

    source: Text | None = None
    text: Text | None = None

    def input_text(self, field: InputField) -> str:
        """Return the text of an input field, or raise a `ValueError` if the question does not have exactly this one."""
        texts: dict[InputField, str | None] = {"source": self.source, "text": self.text}
        for name, text in texts.items():
            if name != field and text is not None:
                raise ValueError(f"{name}: this model does not read '{name}'; give its input as '{field}'")
        text = texts.get(field)
        if text is None:
            raise ValueError(f"{field}: this model reads a text under this name; add it to the question")
        return text


class ModelsQuestion(Question):
    """Ask which models there are."""

    kind: Literal["models"]


class TokensQuestion(InputQuestion):
    """Ask for the tokens of a text."""

    kind: Literal["tokens"]


class FirstLayer(StrictModel):
    """The layer whose weights are sent first."""

    part: AttentionPart
    layer: Count


class ReadQuestion(InputQuestion):
    """Ask for an output and for the attention weights of the whole pass."""

    kind: Literal["read"]
    beam: Beam = 1
    target: Text | None = None
    target_ids: Ids | None = None
    prefix: Ids = []
    changes: Changes = []
    baseline: Ids | None = None
    candidates: Annotated[int, Field(ge=1, le=50)] = 8
    want: Annotated[list[AttentionPart], Field(max_length=3)] = ["encoder", "decoder", "cross"]
    first: FirstLayer | None = None


class QueryQuestion(InputQuestion):
    """A question about one query of one head."""

    target_ids: Ids
    changes: Changes = []
    part: AttentionPart
    layer: Count
    head: Count
    query: Count


class RowQuestion(QueryQuestion):
    """Ask for the exact attention weights of one query."""

    kind: Literal["row"]


class MathsQuestion(QueryQuestion):
    """Ask for every intermediate value between a token and the output of a head."""

    kind: Literal["maths"]


class BeamQuestion(InputQuestion):
    """Ask for all nodes of a beam search."""

    kind: Literal["beam"]
    beam: Beam = 5
    nbest: Beam = 1
    prefix: Ids = []
    changes: Changes = []


class ClassifyQuestion(InputQuestion):
    """Ask for the classes of a text, and for the attention weights of its sentences and words."""

    kind: Literal["classify"]
    changes: Annotated[list[EraseParts], Field(max_length=64)] = []


class EffectsQuestion(InputQuestion):
    """Ask how the probabilities of the classes change if one more sentence or word is erased, for all of them."""

    kind: Literal["effects"]
    changes: Annotated[list[EraseParts], Field(max_length=64)] = []


class DialogueQuestion(Question):
    """A question about a conversation: its turns, the last one to be replied to, and how many of them are read."""

    history: Turns
    changes: Annotated[list[TurnChange], Field(max_length=MAX_TURNS)] = []
    turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] | None = None


class ReplyQuestion(DialogueQuestion):
    """Ask for a reply, and for its attention to turns and words."""

    kind: Literal["reply"]
    reply: Text | None = None
    beam: Beam = 1
    seed: Count | None = None
    temperature: Annotated[float, Field(gt=0, le=100)] | None = None


class ReplyEffectsQuestion(DialogueQuestion):
    """Ask how the log-probability of a reply changes without each turn, and without each word."""

    kind: Literal["reply_effects"]
    reply: Text


class PositionsQuestion(Question):
    """Ask for the position vectors."""

    kind: Literal["positions"]
    count: Annotated[int, Field(ge=1, le=512)] = 64


class FigureQuestion(InputQuestion):
    """Ask for a figure as a file."""

    kind: Literal["figure"]
    figure: Literal["alignment", "lines", "heads", "positions", "beam", "document", "dialogue"]
    form: Literal["svg", "png", "pdf"] = "svg"
    history: Turns | None = None
    turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] | None = None
    target: Text | None = None
    target_ids: Ids | None = None
    part: AttentionPart | None = None
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


AnyQuestion = (
    ModelsQuestion
    | TokensQuestion
    | ReadQuestion
    | RowQuestion
    | MathsQuestion
    | BeamQuestion
    | ClassifyQuestion
    | EffectsQuestion
    | ReplyQuestion
    | ReplyEffectsQuestion
    | PositionsQuestion
    | FigureQuestion
)

RawQuestion = bytes | str | Mapping[str, Any] | Question
"""A question as it arrives: JSON, a mapping, or parsed already."""

_NAMES = frozenset(
    name
    for kind in (
        *get_args(AnyQuestion),
        *(AblateHeads, KeepHeads, BlockTokens, SetWeights, EraseParts, DropTurns, EditTurn, FirstLayer),
    )
    for field_name, field in kind.model_fields.items()
    for name in (field_name, *(get_args(field.annotation) if field_name in ("kind", "op") else ()))
)
_ADAPTER: TypeAdapter[AnyQuestion] = TypeAdapter(Annotated[AnyQuestion, Field(discriminator="kind")])


def parse_question(raw: RawQuestion) -> AnyQuestion:
    """Parse JSON or a mapping, or raise a `ValueError` that says what is wrong with it."""
    try:
        if isinstance(raw, AnyQuestion):
            return raw
        if isinstance(raw, Mapping):
            return _ADAPTER.validate_python(dict(raw))
        assert not isinstance(raw, Question), "every question class has a kind"
        if len(raw) > MAX_BYTES:
            raise ValueError(f"the question has {len(raw)} bytes, but at most {MAX_BYTES} are read; send less at once")
        return _ADAPTER.validate_json(raw)
    except ValidationError as error:
        raise ValueError(describe_errors(error, _NAMES)) from None


def question_id(raw: RawQuestion) -> int | str | None:
    """Return the id of a question, even if the rest of the question is wrong."""
    if isinstance(raw, Question):
        return raw.id
    try:
        table = raw if isinstance(raw, Mapping) else json.loads(raw[:MAX_BYTES])
        number = table.get("id") if isinstance(table, Mapping) else None
    except (ValueError, RecursionError):
        return None
    return number if isinstance(number, int | str) else None


def describe_errors(error: ValidationError, known: Collection[str], count: int = 3) -> str:
    """Return where and what is wrong. Of what was sent, at most `MAX_QUOTED` characters are quoted.

    Args:
        error: What pydantic found.
        known: Names of fields; any other name in the location of an error was chosen by the sender.
        count: Maximum number of errors to describe.
    """
    messages, left = [], MAX_QUOTED
    for problem in error.errors(include_url=False)[:count]:
        location = []
        for part in problem["loc"]:
            name = str(part).encode(errors="replace").decode()
            if isinstance(part, str) and name not in known:
                name = name[:left]
                left -= len(name)
            location.append(name)
        messages.append(f"{'.'.join(location)}: {problem['msg']}" if location else str(problem["msg"]))
    return "; ".join(messages)
