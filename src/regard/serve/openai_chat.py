"""Requests and responses in the form of OpenAI's chat completions, for the clients that are written for it.

A request is turned into one of this server's own, so that the same limits and the same search apply to it.
"""

import json
import time
from collections.abc import Mapping
from itertools import groupby
from secrets import randbits
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator
from pydantic_core import PydanticCustomError

from regard.options import ChatOptions, SamplingOptions
from regard.predict import Reply
from regard.serve.chat_requests import ChatFields, ChatRequest
from regard.serve.chat_service import ServedReply
from regard.serve.dispatch import failure_content
from regard.serve.errors import FieldError
from regard.serve.request_context import RequestContext
from regard.serve.requests import invalid_request, option_fields
from regard.serve.service import PartialOutput
from regard.serve.settings import ServerLimits

EVENT_STREAM = "text/event-stream"
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}
"""Fields of OpenAI that would change a reply as this server cannot, with the values that ask for no change."""
_SAMPLING = tuple(option.name for option in SamplingOptions.declared())


class TextPart(BaseModel):
    """A part of a message; others than text are not read."""

    model_config = ConfigDict(frozen=True, strict=True)

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A message: of the user, of the chatbot (`assistant`), or an instruction, which is ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[TextPart] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _has_only_text(cls, content: Any) -> Any:
        """Name the reason in words, which the types of a union do not."""
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] != "text":
                raise PydanticCustomError("unsupported", "this server reads only text; leave out parts of other types")
        return content

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or ())


class StreamOptions(BaseModel):
    """What a stream contains besides the reply."""

    model_config = ConfigDict(frozen=True, strict=True)

    include_usage: bool | None = Field(None, description="Send the number of tokens at the end.")


class CompletionFields(BaseModel):
    """Messages to reply to, in the form of OpenAI. Fields that are not listed are ignored.

    The decoding options of `/chat` may be given too. With a `temperature` of 0 nothing is sampled.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    messages: Annotated[list[ChatMessage], Field(min_length=1)] = Field(
        description="The dialogue so far; the last message is of the user.",
        examples=[[{"role": "user", "content": "What is my name?"}]],
    )
    model: str | None = Field(
        None, max_length=200, description="Name of a model of this server. Default: its first chatbot."
    )
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="Softmax temperature of sampling; 0 searches for the best reply instead."
    )
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = Field(None, description="The same as `max_tokens`.")
    n: Annotated[int, Field(ge=1)] | None = Field(None, description="Number of replies.")
    stop: str | list[str] | None = Field(None, description="Strings that end the reply, which does not contain them.")
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(
        None, description="Random seed of sampling. Default: a new one for each request."
    )
    logprobs: bool | None = Field(None, description="Return the log-probability of each token.")
    stream: bool | None = Field(None, description="Send the reply as it grows, as server-sent events.")
    stream_options: StreamOptions | None = None

    def own_request(self, limits: ServerLimits) -> ChatFields:
        """Return the request in this server's own form.

        Raises:
            FieldError: The request asks for something that this server cannot do.
        """
        self._check_supported(limits)
        shared = type(self).model_fields.keys() & ChatRequest.model_fields.keys()
        fields: dict[str, Any] = {name: getattr(self, name) for name in shared}
        fields |= {"history": [self._history()], "nbest": self.n, "stream": bool(self.stream)}
        fields["max_tokens"] = self.max_completion_tokens or fields.get("max_tokens")
        fields["stop"] = [self.stop] if isinstance(self.stop, str) else self.stop
        if self.temperature == 0:
            fields |= dict.fromkeys((*_SAMPLING, "seed"))
        elif self.seed is not None:
            fields["seed"] = self.seed % (1 << 31)
        elif fields.get("sample") or any(fields.get(name) is not None for name in _SAMPLING):
            fields["seed"] = randbits(31)
        try:
            return ChatRequest.model_validate({name: value for name, value in fields.items() if value is not None})
        except ValidationError as error:
            raise invalid_request(error, ChatRequest) from None

    def _check_supported(self, limits: ServerLimits) -> None:
        for name, value in (self.model_extra or {}).items():
            if name in _NEUTRAL and value is not None and value not in _NEUTRAL[name]:
                raise FieldError(f"this server does not support '{name}'; leave it out", name)
        if self.n is not None and self.n > limits.beam:
            raise FieldError(f"n is {self.n}, and this server allows {limits.beam}; use a smaller one", "n")
        if self.stream and (self.n or 1) > 1:
            raise FieldError("only one reply can be streamed; leave out 'n', or request it without 'stream'", "n")
        if self.stream and self.logprobs:
            message = "log-probabilities are not known before the end; request them without 'stream'"
            raise FieldError(message, "logprobs")

    def _history(self) -> list[str]:
        """Return the turns: messages of a speaker that follow each other are one."""
        said = [message for message in self.messages if message.role in ("user", "assistant") and message.text.strip()]
        if not said or said[-1].role != "user":
            found = f"of the role '{said[-1].role}'" if said else "missing"
            message = f"the last message with a text must be of the role 'user', but is {found}; add one to reply to"
            raise FieldError(message, "messages")
        return ["\n".join(part.text for part in turn) for _, turn in groupby(said, lambda message: message.role)]


_OWN = CompletionFields.model_fields
CompletionRequest = create_model(
    "CompletionRequest",
    __base__=CompletionFields,
    __doc__=CompletionFields.__doc__,
    **{name: field for name, field in option_fields(ChatOptions).items() if name not in _OWN and name != "nbest"},
)
"""`CompletionFields`, with the decoding options of `/chat` that have no other form there."""


class CompletionMessage(BaseModel):
    """The reply as a message."""

    role: Literal["assistant"]
    content: str


class TokenLogprob(BaseModel):
    """A token of a reply with its log-probability."""

    token: str
    logprob: float
    bytes: None
    top_logprobs: list[None]


class ChoiceLogprobs(BaseModel):
    """The tokens of a reply with their log-probabilities."""

    content: list[TokenLogprob]


class CompletionChoice(BaseModel):
    """One of the replies."""

    index: int
    message: CompletionMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: Literal["stop", "length"] = Field(description="`length`, if the maximum length ended the reply.")


class CompletionUsage(BaseModel):
    """Numbers of tokens: of the turns that were read, of all replies, and of both."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(BaseModel):
    """Response of `/v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Time of the request, in seconds since 1970.")
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class ChunkDelta(BaseModel):
    """What a chunk adds to the reply."""

    role: Literal["assistant"] | None = Field(None, description="In the first chunk.")
    content: str | None = Field(None, description="More text.")


class ChunkChoice(BaseModel):
    """The only reply of a stream."""

    index: Literal[0]
    delta: ChunkDelta
    logprobs: None
    finish_reason: Literal["stop", "length"] | None = Field(description="In the last chunk of the reply.")


class CompletionChunk(BaseModel):
    """An event of a streamed completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice] = Field(description="Empty in the chunk with the usage.")
    usage: CompletionUsage | None = Field(None, description="In the last chunk, if `include_usage` asks for it.")


class OpenAIErrorFields(BaseModel):
    """An error in the form of OpenAI."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="The same as `field`.")
    code: str


class OpenAIErrorResponse(BaseModel):
    """Response of `/v1/chat/completions` to a request that fails."""

    code: str = Field(description="What is wrong, as a name that does not change.")
    message: str = Field(description="What is wrong, what was found and what to do.")
    field: str | None = Field(description="The field of the request that is wrong, if it is one.")
    request_id: str = Field(description="The same as in the header `X-Request-ID`.")
    error: OpenAIErrorFields


def parse_completion_request(body: bytes) -> CompletionFields:
    """Parse the body of a request.

    Raises:
        FieldError: A field is missing or invalid.
    """
    try:
        return CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(error, CompletionRequest) from None


class Completion:
    """The response to one request: whole, or as events of a stream."""

    def __init__(self, asked: CompletionFields, model: str, context: RequestContext) -> None:
        """Respond to a request to a model now."""
        self.asked, self.context = asked, context
        self._common = {"id": f"chatcmpl-{context.id}", "created": int(time.time()), "model": model}
        self._sent: str | None = None
        """The text that was sent, once a stream has begun."""

    def whole(self, served: ServedReply) -> dict[str, Any]:
        """Return the response as a JSON object."""
        replies = served.reply.nbest[: self.asked.n or 1]
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": reply.text},
                "logprobs": _logprobs(reply) if self.asked.logprobs else None,
                "finish_reason": _finish_reason(reply),
            }
            for index, reply in enumerate(replies)
        ]
        usage = _usage(served, sum(len(reply.tokens) for reply in replies))
        return {**self._common, "object": "chat.completion", "choices": choices, "usage": usage}

    def encode_event(self, index: int | None, result: Any) -> bytes:
        """Encode a partial or final reply, or an error, as server-sent events."""
        match result:
            case PartialOutput(_, text):
                return self._grow(text)
            case ServedReply():
                events = self._grow(result.reply.text) + self._chunk({}, _finish_reason(result.reply))
                if self._includes_usage:
                    usage = _usage(result, len(result.tokens))
                    events += _event({**self._chunk_fields, "choices": [], "usage": usage})
                return events + _DONE
            case _:
                return _event(failure_content(result, self.context)) + _DONE

    @property
    def _chunk_fields(self) -> dict[str, Any]:
        return {**self._common, "object": "chat.completion.chunk"}

    @property
    def _includes_usage(self) -> bool:
        return self.asked.stream_options is not None and bool(self.asked.stream_options.include_usage)

    def _grow(self, text: str) -> bytes:
        """Return the chunk with what a text has more than what was sent, and at the beginning one with the role."""
        events = b"" if self._sent is not None else self._chunk({"role": "assistant", "content": ""})
        sent = self._sent or ""
        if len(text) > len(sent):
            events += self._chunk({"content": text[len(sent) :]})
        self._sent = max(sent, text, key=len)
        return events

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._includes_usage else {}
        return _event({**self._chunk_fields, "choices": [choice], **usage})


_DONE = b"data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> bytes:
    # ASCII, because some clients also end a line at U+2028 and the like, which JSON allows in strings.
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _finish_reason(reply: Reply) -> str:
    return "length" if reply.truncated else "stop"


def _usage(served: ServedReply, tokens: int) -> dict[str, int]:
    read = served.history_tokens
    return {"prompt_tokens": read, "completion_tokens": tokens, "total_tokens": read + tokens}


def _logprobs(reply: Reply) -> dict[str, Any]:
    """Return the log-probabilities of the tokens, without that of the end symbol."""
    content: list[dict[str, Any]] = [
        {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(reply.tokens, reply.token_logprobs, strict=False)
    ]
    return {"content": content}
