"""The JSON schemas of requests, and their parsing.

Parsing is strict: unknown fields, numbers in quotes, NaN and invalid Unicode are refused with a message that names the
field. No field is ever used as a path, an address or code.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from regard.explore.questions import MAX_QUOTED, describe_errors
from regard.options import OptionError, TranslationOptions
from regard.options.option import OptionSet
from regard.predict import Translator
from regard.predict.search import EXTRA_TOKENS
from regard.recipe.decode import pydantic_field
from regard.serve.errors import FieldError
from regard.serve.settings import ServerLimits
from regard.text import Tokenizer

Phrase = Annotated[str, Field(min_length=1, max_length=200)]
Lines = str | Annotated[list[str], Field(min_length=1)]


class ModelRequest(BaseModel):
    """What every request has: lines of text, and the model to use."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    LINES: ClassVar[str]
    """Name of the field with the lines."""
    SHORTER: ClassVar[str] = "send several requests"
    """What to do if they have too many characters."""

    model: str | None = Field(
        None, max_length=200, description="Name of a model of this server. Default: its first model for this route."
    )

    @property
    def lines(self) -> list[str]:
        """The lines as a list."""
        lines = getattr(self, self.LINES)
        return [lines] if isinstance(lines, str) else lines

    def count(self) -> int:
        """Return the number of lines."""
        return len(self.lines)

    def texts(self) -> list[str]:
        """Return all text of the request, to limit its size."""
        return self.lines


class LinesRequest(ModelRequest):
    """Source lines of a translator."""

    LINES: ClassVar[str] = "source"

    source: Lines = Field(description="A source line, or a list of lines.", examples=["I can go alone"])


class SearchFields(ModelRequest):
    """What is searched for, and decoding options. An option that is not given has the value of the run's recipe."""

    OPTIONS: ClassVar[type[OptionSet]]

    stream: bool = Field(False, description="Send tokens as they become final, one JSON object per line.")

    @property
    def given(self) -> dict[str, Any]:
        """The decoding options that the request has."""
        names = [option.name for option in self.OPTIONS.declared() if option.name in self.model_fields_set]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check_rows(self, limits: ServerLimits) -> None:
        """Raise a `FieldError` if the search has more rows than a limit allows."""
        for name in ("beam", "nbest", "mbr"):
            if (count := self.given.get(name, 0)) > limits.beam:
                raise FieldError(f"{name} is {count}, and this server allows {limits.beam}; use a smaller one", name)


class TranslateFields(SearchFields, LinesRequest):
    """Lines to translate, and decoding options. An option that is not given has the value of the run's recipe."""

    OPTIONS: ClassVar[type[OptionSet]] = TranslationOptions

    def texts(self) -> list[str]:
        """Return all text of the request, to limit its size."""
        given = self.given
        terms = [phrase for term in given.get("terms", {}).items() for phrase in term]
        return [*self.lines, given.get("prefix", ""), *given.get("constraints", ()), *given.get("avoid", ()), *terms]

    def options(self, translator: Translator, limits: ServerLimits) -> TranslationOptions:
        """Return the options of this request for a model.

        Raises:
            ValueError: An option exceeds a limit, contradicts another, or is not available for this model.
        """
        given = self.given
        self.check_rows(limits)
        if "nbest" in given and "beam" not in given and not given.get("sample") and not given.get("mbr"):
            given["beam"] = max(given["nbest"], translator.options.beam)
        if self.stream and (given.get("avoid") or given.get("mbr")):
            message = "tokens are not final before the end with 'avoid' or 'mbr'; request it without 'stream'"
            raise FieldError(message, "stream")
        with option_errors():
            options = translator.options.override(**given)
            translator.search_options(options)
        # A minimum length must not make a short line cost more than the longest line that is not split.
        longest = int(translator.longest * options.longest) + EXTRA_TOKENS
        if options.min_length > longest:
            message = f"'min_length' is {options.min_length}, and this server allows {longest}; use a smaller one"
            raise FieldError(message, "min_length")
        if options.alignments and translator.alignment_head is None:
            message = "this model has no attention to read word alignments from; request no 'alignments'"
            raise FieldError(message, "alignments")
        if options.coverage_penalty and translator.alignment_head is None:
            message = "this model has no attention, so it has no coverage penalty; set 'coverage_penalty' to 0"
            raise FieldError(message, "coverage_penalty")
        return options


# Clients are not trusted: text and tables have a maximum size here, and integers fit into 32 bits.
_TYPES: dict[str, Any] = {
    "prefix": Annotated[str, Field(max_length=2000)],
    "constraints": Annotated[list[Phrase], Field(max_length=16)],
    "stop": Annotated[list[Phrase], Field(max_length=16)],
    "avoid": Annotated[list[Phrase], Field(max_length=100)],
    "terms": Annotated[dict[Phrase, Phrase], Field(max_length=500)],
}
_INTEGER = Annotated[int, Field(le=2**31 - 1)]


def option_fields(options: type[OptionSet]) -> dict[str, Any]:
    """Return a field for each option that is declared for HTTP, for `pydantic.create_model`."""
    return {
        option.name: pydantic_field(option, _INTEGER if option.kind is int else _TYPES.get(option.name))
        for option in options.declared()
        if option.http
    }


TranslateRequest = create_model(
    "TranslateRequest",
    __base__=TranslateFields,
    __doc__=TranslateFields.__doc__,
    **option_fields(TranslationOptions),
)
"""`TranslateFields`, with a field for each decoding option that `regard.options` declares for HTTP."""


class PairsRequest(LinesRequest):
    """Sentence pairs: source lines and their translations, in the same order."""

    target: Lines = Field(description="The translation of each source line.", examples=["Ich kann allein gehen"])

    def texts(self) -> list[str]:
        """Return all text of the request, to limit its size."""
        return [line for pair in self.pairs for line in pair]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The sentence pairs as a list."""
        targets = [self.target] if isinstance(self.target, str) else self.target
        if len(self.lines) != len(targets):
            message = f"there are {len(self.lines)} sources and {len(targets)} targets; send as many of each"
            raise FieldError(message, "target")
        return list(zip(self.lines, targets, strict=True))


class TokensRequest(LinesRequest):
    """Lines to tokenise."""

    side: Literal["source", "target"] = Field("source", description="Tokenizer to use.")


class TextsRequest(ModelRequest):
    """Texts to predict something about."""

    LINES: ClassVar[str] = "text"

    text: Lines = Field(description="A text, or a list of texts.", examples=["the food was not good"])

    @property
    def options(self) -> dict[str, Any]:
        """The options of the prediction."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in ("model", "text")}


class ClassifyRequest(TextsRequest):
    """Texts to classify."""

    attention: bool = Field(False, description="Return the attention weights of words and sentences too.")


class TagRequest(TextsRequest):
    """Sentences to tag, their words separated by white space."""


class FillRequest(TextsRequest):
    """Texts with `[MASK]` in place of the words to fill in."""

    top: int = Field(5, ge=1, le=100, description="Number of candidates for each mask.")


RequestType = TypeVar("RequestType", bound=ModelRequest)


def parse_request(kind: type[RequestType], body: bytes, limits: ServerLimits) -> RequestType:
    """Parse a request body.

    Raises:
        ValueError: The body is not a valid request of this kind, or exceeds a limit.
    """
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(error, kind) from None
    check_size(request, limits)
    return request


def check_size(request: ModelRequest, limits: ServerLimits) -> None:
    """Raise a `ValueError` if a request has more lines or characters than a limit allows."""
    characters = sum(map(len, request.texts()))
    if (count := request.count()) > limits.sentences:
        message = f"there are {count} lines, and this server allows {limits.sentences}; send several requests"
        raise FieldError(message, request.LINES)
    if characters > limits.characters:
        raise FieldError(
            f"there are {characters} characters, and this server allows {limits.characters}; {request.SHORTER}",
            request.LINES,
        )


@contextmanager
def option_errors() -> Iterator[None]:
    """Raise errors about options as errors of the fields that they have in a request."""
    try:
        yield
    except OptionError as error:
        raise FieldError(error.spelled(_spell_field), error.option) from None


def _spell_field(name: str, value: str) -> str:
    """Return how a request gives an option, for `OptionError.spelled`."""
    if not value:
        return f"'{name}'"
    is_plain = value.lstrip("-").isdecimal() or value in ("True", "False")
    return f'"{name}": {value.lower()}' if is_plain else f'"{name}": "{value}"'


def invalid_request(error: ValidationError, kind: type[BaseModel]) -> FieldError:
    """Return an error with the messages of the first invalid fields, and the name of the first of them."""
    location = error.errors(include_url=False)[0]["loc"]
    field = str(location[0])[:MAX_QUOTED].encode(errors="replace").decode() if location else None
    return FieldError(describe_errors(error, kind.model_fields, count=5), field)


def check_normalised(request: ModelRequest, tokenizers: Iterable[Tokenizer], limits: ServerLimits) -> None:
    """Count the characters and tokens of a request after normalisation, which may turn one character into eighteen.

    Raises:
        ValueError: There are more than the limit of characters allows.
    """
    for tokenizer in set(tokenizers):
        for unit, measure in (("characters after normalisation", tokenizer.normalise), ("tokens", tokenizer.encode)):
            # Plain ASCII does not grow, and has at most one token for each character.
            count = sum(len(text) if text.isascii() else len(measure(text)) for text in request.texts())
            if count > limits.characters:
                message = f"there are {count} {unit}, and this server allows {limits.characters}; {request.SHORTER}"
                raise FieldError(message, request.LINES)


def request_schema(kind: type[ModelRequest], limits: ServerLimits) -> dict[str, Any]:
    """Return the JSON schema of a request, with the limits of this server in it."""
    schema = kind.model_json_schema()
    assert "$defs" not in schema, "an inline schema of OpenAPI cannot refer to definitions"
    add_limits(schema, limits)
    return schema


def add_limits(schema: dict[str, Any], limits: ServerLimits) -> None:
    """Add the limits of this server to the JSON schema of a request."""
    maxima = dict.fromkeys(("beam", "nbest", "mbr", "n"), limits.beam)
    maxima |= dict.fromkeys(("max_tokens", "max_completion_tokens"), limits.tokens)
    for name, field in schema["properties"].items():
        for choice in field.get("anyOf", ()):
            kind = choice.get("type")
            if name in ("source", "target", "text", "history") and kind == "string":
                choice["maxLength"] = limits.characters
            elif name in ("source", "target", "text") or choice.get("items", {}).get("type") == "array":
                choice["maxItems"] = limits.sentences
            elif kind == "integer" and name in maxima:
                choice["maximum"] = maxima[name]
