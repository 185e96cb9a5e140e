"""What the OpenAPI document has besides the routes and their schemas: access, headers, examples, events of streams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from regard import __version__
from regard.serve import libretranslate, responses
from regard.serve.chat_requests import ChatRequest
from regard.serve.chat_responses import StreamReply
from regard.serve.errors import ERRORS, error_content
from regard.serve.limits import PUBLIC_PATHS, TOKEN_IN_BODY_PATHS
from regard.serve.openai_chat import EVENT_STREAM, CompletionChunk, CompletionRequest, OpenAIErrorResponse
from regard.serve.request_context import RequestContext
from regard.serve.requests import (
    ClassifyRequest,
    FillRequest,
    ModelRequest,
    PairsRequest,
    TagRequest,
    TokensRequest,
    TranslateRequest,
    add_limits,
    request_schema,
)
from regard.serve.settings import ServerSettings

OpenApiResponses = dict[int | str, dict[str, Any]]

DESCRIPTION = """Predictions by trained models. Send `{"source": "a line"}` to `/translate`, and `{"text": "a text"}` to
`/classify`, `/tag` or `/fill`, depending on the models, or `{"history": ["a turn", "its reply", "a turn"]}` to `/chat`.

A request may have one line or many. Lines of different clients are translated in one batch.

Paths that begin with `/v1` stay compatible; the same paths without it do the same, but `/models` has a form of its own.

Every response has the header `X-Request-ID`: the one of the request if it is a short name, else a new one."""

TAGS = [
    {"name": "translation", "description": "Translate lines, by own fields or by those of LibreTranslate."},
    {"name": "scoring", "description": "Score, align and tokenise given text."},
    {"name": "prediction", "description": "Classify texts, tag their words, and fill their masks."},
    {"name": "chat", "description": "Reply to the turns of a dialogue, by own fields or by those of OpenAI."},
    {"name": "models", "description": "The models of this server and their languages."},
    {"name": "operations", "description": "Health checks and metrics."},
]
SERVERS = [{"url": "/", "description": "The server that this document comes from."}]

INFO: dict[str, Any] = {
    "title": "regard",
    "version": __version__,
    "description": DESCRIPTION,
    "openapi_tags": TAGS,
    "servers": SERVERS,
    "license_info": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}
"""What the document says about the whole API, as arguments of `FastAPI`."""

NDJSON = "application/x-ndjson"
_TOKEN = "token"
_REF = "#/components/schemas/"
Events = tuple[type[BaseModel], ...]
TRANSLATION_EVENTS: Events = (responses.StreamTokens, responses.StreamTranslation, responses.StreamError)
CHAT_EVENTS: Events = (responses.StreamTokens, StreamReply, responses.StreamError)
_REQUESTS: tuple[type[ModelRequest], ...] = (
    TranslateRequest,
    PairsRequest,
    TokensRequest,
    ClassifyRequest,
    TagRequest,
    FillRequest,
    ChatRequest,
)
_LINE, _TARGET = "I can go alone", "Ich kann allein gehen"
_TURNS = ["My name is Anna.", "Nice to meet you, Anna.", "What is my name?"]
_MESSAGES = [{"role": role, "content": turn} for role, turn in zip(("user", "assistant", "user"), _TURNS, strict=True)]
_EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "TranslateRequest": {
        "line": {"source": _LINE},
        "lines": {"source": [_LINE, "the shirt costs twelve euros"], "beam": 4, "nbest": 2, "alignments": True},
        "stream": {"source": _LINE, "stream": True},
    },
    "LibreTranslateRequest": {"libretranslate": {"q": _LINE, "source": "auto", "target": "de"}},
    "PairsRequest": {"pair": {"source": _LINE, "target": _TARGET}},
    "TokensRequest": {"line": {"source": _LINE}},
    "ClassifyRequest": {"texts": {"text": ["the food was not good", "we liked the hotel"], "attention": True}},
    "TagRequest": {"sentence": {"text": _LINE}},
    "FillRequest": {"text": {"text": "the animal did not [MASK] the street", "top": 3}},
    "ChatRequest": {
        "history": {"history": _TURNS},
        "histories": {"history": [_TURNS, _TURNS[:1]], "beam": 4, "nbest": 2, "attention": True},
        "stream": {"history": _TURNS, "stream": True, "temperature": 0.7, "seed": 1},
    },
    "CompletionRequest": {
        "messages": {"messages": _MESSAGES, "temperature": 0.7, "max_tokens": 40},
        "stream": {"messages": _MESSAGES, "stream": True, "stream_options": {"include_usage": True}},
    },
}
_HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {
        "description": "Id of the request: the one that the client sent, or a new one.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
    },
    "Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer", "minimum": 1}},
    "WWW-Authenticate": {"description": "The scheme of the token.", "schema": {"type": "string", "const": "Bearer"}},
}
_HEADERS_OF = {"401": ("WWW-Authenticate",), "429": ("Retry-After",), "503": ("Retry-After",)}


def error_responses(*statuses: int, openai: bool = False) -> OpenApiResponses:
    """Return the documentation of some errors; without statuses, of all that a POST request can have."""
    model = OpenAIErrorResponse if openai else responses.ErrorResponse
    chosen = statuses or [status for status in ERRORS if status != 405]
    return {status: {"model": model, "description": ERRORS[status][1]} for status in chosen}


def request_body(*names: str, form: str | None = None) -> dict[str, Any]:
    """Return the documentation of a JSON body that has one of some schemas, and perhaps of the same as a form."""
    schemas: list[dict[str, Any]] = [{"$ref": _REF + name} for name in names]
    examples = {key: {"value": value} for name in names for key, value in _EXAMPLES[name].items()}
    json = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, "examples": examples}
    content = {"application/json": json}
    if form is not None:
        values = {key: {"value": value} for key, value in _EXAMPLES[form].items()}
        content[libretranslate.FORM_TYPE] = {"schema": {"$ref": _REF + form}, "examples": values}
    return {"requestBody": {"required": True, "content": content}}


def stream_content(events: Events) -> dict[str, Any]:
    """Return the documentation of a stream: each of its lines is one of the events."""
    choices = [{"$ref": _REF + event.__name__} for event in events]
    return {NDJSON: {"schema": {"description": "One JSON object per line, each one of these.", "anyOf": choices}}}


def event_stream_content() -> dict[str, Any]:
    """Return the documentation of a stream of server-sent events."""
    choices = [{"$ref": _REF + event.__name__} for event in (CompletionChunk, OpenAIErrorResponse)]
    event = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": choices}}
    end = {"type": "string", "const": "[DONE]"}
    data = {"description": "A chunk or an error as JSON, or `[DONE]` at the end.", "anyOf": [event, end]}
    return {EVENT_STREAM: {"schema": {"type": "object", "properties": {"data": data}, "required": ["data"]}}}


def complete(document: dict[str, Any], settings: ServerSettings) -> dict[str, Any]:
    """Add to the document of FastAPI what it does not know: schemas, access control, headers and examples."""
    components = document.setdefault("components", {})
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(CompletionRequest, "validation")]
    events: Events = (*TRANSLATION_EVENTS, *CHAT_EVENTS, CompletionChunk)
    modes += [(event, "serialization") for event in dict.fromkeys(events)]
    _, defined = models_json_schema(modes, ref_template=_REF + "{model}")
    add_limits(defined["$defs"]["CompletionRequest"], settings.limits)
    components["schemas"] = {
        **{kind.__name__: request_schema(kind, settings.limits) for kind in _REQUESTS},
        "LibreTranslateRequest": libretranslate.request_schema(settings.limits),
        **components.get("schemas", {}),
        **defined["$defs"],
    }
    components["headers"] = _HEADERS
    scheme = {"type": "http", "scheme": "bearer", "description": "The token that the server was started with, if any."}
    components["securitySchemes"] = {_TOKEN: scheme}
    for path, method, operation in operations(document):
        operation["security"] = _security(path, bool(settings.token))
        for status, response in operation["responses"].items():
            names = ("X-Request-ID", *_HEADERS_OF.get(status, ()))
            response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
            if int(status) >= 400 and method != "head":
                _add_error_example(int(status), response)
    return document


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and description of every operation of a document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _security(path: str, has_token: bool) -> Sequence[Mapping[str, Sequence[str]]]:
    """Return which tokens an operation requires; an empty object means that none is needed."""
    if path in PUBLIC_PATHS:
        return []
    return [{_TOKEN: []}] if has_token and path not in TOKEN_IN_BODY_PATHS else [{_TOKEN: []}, {}]


def _add_error_example(status: int, response: Mapping[str, Any]) -> None:
    content = response.get("content", {}).get("application/json")
    schema = None if content is None else content["schema"].get("$ref")
    if schema not in (f"{_REF}ErrorResponse", f"{_REF}OpenAIErrorResponse"):
        return
    context = RequestContext("a1b2c3", is_openai=schema.endswith("OpenAIErrorResponse"))
    content["example"] = error_content(status, ERRORS[status][1], None, context)
