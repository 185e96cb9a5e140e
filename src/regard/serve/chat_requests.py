"""The JSON schema of a request to a chatbot, in this server's own form."""

from typing import Annotated, ClassVar

from pydantic import Field, create_model

from regard.options import ChatOptions
from regard.options.option import OptionSet
from regard.predict import Chatbot
from regard.predict.chat_attention import has_attention
from regard.serve.errors import FieldError
from regard.serve.requests import SearchFields, option_errors, option_fields
from regard.serve.settings import ServerLimits

MAX_REPLY_TOKENS = 1 << 15
"""Tokens that all replies to a request may have together, which bounds the size of a response."""

Turns = Annotated[list[str], Field(min_length=1)]


class ChatFields(SearchFields):
    """Histories to reply to, and decoding options. An option that is not given has the value of the run's recipe."""

    LINES: ClassVar[str] = "history"
    SHORTER: ClassVar[str] = "send only the last turns, or several requests"
    OPTIONS: ClassVar[type[OptionSet]] = ChatOptions

    history: str | Turns | Annotated[list[Turns], Field(min_length=1)] = Field(
        description="The turns of a dialogue, the last one to be replied to; a string is the only turn. A list of "
        "such lists gives several replies.",
        examples=[["My name is Anna.", "Nice to meet you, Anna.", "What is my name?"]],
    )
    attention: bool = Field(False, description="Return what the reply attends to: turns, and words in them.")

    @property
    def histories(self) -> list[tuple[str, ...]]:
        """The turns of each history."""
        turns = [self.history] if isinstance(self.history, str) else self.history
        if any(isinstance(turn, str) for turn in turns):
            return [tuple(turn for turn in turns if isinstance(turn, str))]
        return [tuple(history) for history in turns]

    def count(self) -> int:
        """Return the number of histories."""
        return len(self.histories)

    def texts(self) -> list[str]:
        """Return all text of the request, to limit its size."""
        return [*(turn for history in self.histories for turn in history), *self.given.get("stop", ())]

    def options(self, chatbot: Chatbot, limits: ServerLimits) -> ChatOptions:
        """Return the options of this request for a chatbot.

        Raises:
            ValueError: An option exceeds a limit, contradicts another, or is not available for this model.
        """
        self.check_rows(limits)
        given = {"max_tokens": min(chatbot.options.max_tokens, limits.tokens), **self.given}
        if given["max_tokens"] > limits.tokens:
            message = f"max_tokens is {given['max_tokens']}, and this server allows {limits.tokens}; use a smaller one"
            raise FieldError(message, "max_tokens")
        with option_errors():
            options = chatbot.options.override(**{name: given[name] for name in given if name != "nbest"})
            if "beam" not in given and not options.sample:
                given["beam"] = max(given.get("nbest", 1), options.beam)
            options = chatbot.options.override(**given)
            chatbot.search_options(options)
        if self.stream and chatbot.reverse is not None:
            message = "a reply that is chosen among several is not known before the end; request it without 'stream'"
            raise FieldError(message, "stream")
        if self.attention and not has_attention(chatbot):
            raise FieldError("this model has no attention to its history; request no 'attention'", "attention")
        self._check_length(options, limits)
        return options

    def _check_length(self, options: ChatOptions, limits: ServerLimits) -> None:
        """Raise a `FieldError` if all replies together may have too many tokens; attention has numbers for each."""
        most = limits.tokens if self.attention else MAX_REPLY_TOKENS
        replies = self.count() if self.attention else self.count() * options.nbest
        if replies > 1 and replies * options.max_tokens > most:
            raise FieldError(
                f"{replies} replies of up to {options.max_tokens} tokens may have {replies * options.max_tokens} "
                f"together, and this server allows {most}{' with attention' if self.attention else ''}; use a smaller "
                "'max_tokens', or send several requests",
                "max_tokens",
            )


ChatRequest = create_model("ChatRequest", __base__=ChatFields, __doc__=ChatFields.__doc__, **option_fields(ChatOptions))
"""`ChatFields`, with a field for each decoding option that `regard.options` declares for HTTP."""
