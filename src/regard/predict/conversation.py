"""A conversation with a chatbot: the exchanges so far, the next reply, and another one in its place."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_origin

from regard.data.fields.lists import join_list
from regard.options import ChatOptions, Option, OptionError
from regard.options.decoding import SAMPLING
from regard.predict.chat_attention import ReplyAttention, reply_attention
from regard.predict.chatbot import Chatbot
from regard.predict.reply import Reply
from regard.predict.retriever import RetrievedReply, Retriever

USER, BOT = "user", "bot"
"""The speakers of a saved conversation."""
DEFAULT = "default"
"""The value that sets an option back to its default."""
_SEARCHING = {"beam", "groups", "diversity"}
_SAMPLING = {declared.name for declared in ChatOptions.declared() if declared.panel == SAMPLING}
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_ENDINGS = (".jsonl", ".json")


@dataclass(frozen=True)
class Exchange:
    """A message of the user, and the reply to it."""

    message: str
    text: str
    """The reply. It may be the beginning of one that was stopped."""
    reply: Reply | None
    """The reply with its scores; None if it was streamed, or comes from a knowledge base."""
    retrieved: tuple[RetrievedReply, ...]
    """Replies of the knowledge base, best first."""
    history: tuple[str, ...]
    """The turns that it replies to, the message last."""
    options: ChatOptions
    """The options of the reply."""
    earlier: tuple[str, ...] = ()
    """The texts of earlier replies to the message with these options, which `retry` has replaced."""

    def to_json(self) -> dict[str, Any]:
        """Return message, reply and retrieved replies as a JSON object."""
        table: dict[str, Any] = {
            "message": self.message,
            "reply": {"text": self.text} if self.reply is None else self.reply.to_json(),
        }
        if self.retrieved:
            table["retrieved"] = [found.to_json() for found in self.retrieved]
        return table


class Conversation:
    """A conversation with a chatbot, with a knowledge base, or with a chatbot beside a knowledge base.

    >>> conversation = Conversation(regard.load("runs/smalltalk"), beam=4)
    >>> conversation.send("My name is Anna.").text
    >>> conversation.send("What is my name?").text
    """

    def __init__(
        self, chatbot: Chatbot | None, retriever: Retriever | None = None, top: int = 3, **options: Any
    ) -> None:
        """Begin a conversation.

        Args:
            chatbot: Writes the replies. None takes each from a knowledge base.
            retriever: Retrieves replies from a knowledge base to each message.
            top: Number of replies to retrieve.
            **options: Options of the replies; see `ChatOptions`.
        """
        assert chatbot is not None or retriever is not None
        self.chatbot, self.retriever, self.top = chatbot, retriever, top
        self.exchanges: list[Exchange] = []
        self.defaults = ChatOptions() if chatbot is None else chatbot.options
        self.changes = options
        self.options = self.defaults.override(**options)

    @property
    def last(self) -> Exchange:
        """The last exchange.

        Raises:
            ValueError: Nothing has been said yet.
        """
        if not self.exchanges:
            raise ValueError("nothing has been said yet; write a message first")
        return self.exchanges[-1]

    @property
    def streams(self) -> bool:
        """Whether replies are final word by word: whether they are sampled, or searched for greedily."""
        single = self.options.nbest == 1 and (self.options.sample or self.options.beam == 1)
        return self.chatbot is not None and self.chatbot.reverse is None and single

    def history(self, message: str, exchanges: Sequence[Exchange] | None = None) -> list[str]:
        """Return the turns that a reply to a message would reply to: by turns of user and chatbot, the message last.

        Args:
            message: The message.
            exchanges: What was said before. Default: the conversation so far.
        """
        turns, open_message = [], ""
        for exchange in self.exchanges if exchanges is None else exchanges:
            said = f"{open_message} {exchange.message}".strip()
            # An empty reply is no turn. Messages with nothing between them are one turn, as in training data.
            open_message = "" if exchange.text.strip() else said
            if not open_message:
                turns += [said, exchange.text]
        return [*turns, f"{open_message} {message}".strip()]

    def send(self, message: str, emit: Callable[[str], None] | None = None) -> Exchange:
        """Say something, and return it with the reply.

        Args:
            message: Any text. White space becomes a space, and lone surrogates U+FFFD.
            emit: Called with pieces of the reply, as soon as they are final. If a `KeyboardInterrupt` ends a reply of
                which some text has been emitted, the conversation continues with this text as the reply; if nothing
                has, the message is not part of the conversation.

        Raises:
            ValueError: The message has no text.
        """
        paired = message.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = " ".join(paired.split())
        if not text:
            raise ValueError("the message has no text; write a word")
        return self._respond(text, self.exchanges, (), emit)

    def retry(self, emit: Callable[[str], None] | None = None) -> Exchange:
        """Replace the last reply by another one: with sampling that of the next seed, else the next best one.

        After a change of options, the reply is the best one by the new options.

        Raises:
            ValueError: Nothing has been said yet, or there is no other reply.
        """
        last = self.last
        earlier = (*last.earlier, last.text) if last.options == self.options else ()
        return self._respond(last.message, self.exchanges[:-1], earlier, emit)

    def undo(self) -> Exchange:
        """Remove the last exchange, and return it.

        Raises:
            ValueError: Nothing has been said yet.
        """
        last = self.last
        self.exchanges.pop()
        return last

    def reset(self) -> None:
        """Begin a new conversation with the same options."""
        self.exchanges.clear()

    def set(self, name: str, value: str) -> None:
        """Change an option of the replies that follow.

        An option of beam search ends sampling, and an option of sampling ends beam search.

        Args:
            name: Name of the option, as in `top_k` or `top-k`.
            value: Its value as a text; `default` sets it back.

        Raises:
            ValueError: If there is no option of that name, the value is not allowed, or replies are retrieved.
        """
        if self.chatbot is None:
            raise ValueError("these replies are retrieved from a knowledge base, on which options have no effect")
        name = name.replace("-", "_")
        option = next((declared for declared in ChatOptions.declared() if declared.name == name), None)
        changes = {other: kept for other, kept in self.changes.items() if other != name}
        if value != DEFAULT or option is None:
            parsed = value if option is None else _parse(option, value)
            if name in _SEARCHING or (name == "sample" and parsed is False):
                changes = {other: kept for other, kept in changes.items() if other not in _SAMPLING}
            elif name in _SAMPLING:
                changes = {other: kept for other, kept in changes.items() if other not in {*_SEARCHING, "sample"}}
            changes[name] = parsed
        self.options = self.defaults.override(**changes)
        self.changes = changes

    def unread_tokens(self, message: str) -> int:
        """Return how many tokens at the beginning of a message the chatbot would not read, because it is too long."""
        if self.chatbot is None or not message.split():
            return 0
        tokens = self.chatbot.history_field.encode([join_list([" ".join(message.split())])])
        return max(0, int(tokens.lengths[0]) - self.chatbot.longest)

    def attention(self) -> ReplyAttention:
        """Return what the last reply attends to.

        Raises:
            ValueError: There is no reply with text yet, or it comes from no model, or from one without attention.
        """
        last = self.last
        if self.chatbot is None:
            raise ValueError("this reply was retrieved from a knowledge base; nothing attends to the conversation")
        return reply_attention(self.chatbot, last.history, last.text, last.options.turns)

    def to_json(self) -> dict[str, Any]:
        """Return the conversation as a dialogue of a training corpus."""
        turns = [
            {"speaker": speaker, "text": text}
            for exchange in self.exchanges
            for speaker, text in ((USER, exchange.message), (BOT, exchange.text))
        ]
        return {"turns": turns}

    def save(self, path: str | Path) -> None:
        """Append the conversation to a file of dialogues, which a recipe can train on.

        Raises:
            ValueError: Nothing has been said yet, or the name of the file is not that of JSON lines.
        """
        path = Path(path).expanduser()
        if not self.last or not path.name.endswith(_ENDINGS):
            raise ValueError(f"the name of a file of dialogues ends in .jsonl, but this is '{path.name}'; add .jsonl")
        line = json.dumps(self.to_json(), ensure_ascii=False).encode() + b"\n"
        with path.open("ab+") as file:
            if file.tell():  # the last line of the file may lack its end
                file.seek(-1, 2)
                line = (b"" if file.read(1) == b"\n" else b"\n") + line
            file.write(line)

    def _respond(
        self, message: str, before: Sequence[Exchange], earlier: tuple[str, ...], emit: Callable[[str], None] | None
    ) -> Exchange:
        """Reply to a message after the exchanges before it, with no text of `earlier`, and add both to these."""
        history, before = self.history(message, before), list(before)
        top = self.top if self.chatbot is not None else max(self.top, len(earlier) + 1)
        retrieved = () if self.retriever is None else tuple(self.retriever.retrieve(history, top))
        complete = partial(
            Exchange,
            message,
            retrieved=retrieved[: self.top],
            history=tuple(history),
            options=self.options,
            earlier=earlier,
        )
        if self.chatbot is None:
            exchange = complete(self._next_retrieved(retrieved, earlier), None)
        elif emit is not None and self.streams and (self.options.sample or not earlier):
            text = ""
            try:
                with closing(self.chatbot.stream(history, **self._keywords(earlier))) as pieces:
                    for piece in pieces:
                        text += piece
                        emit(piece)
            except KeyboardInterrupt:
                if text.strip():
                    self.exchanges = [*before, complete(text, None)]
                raise
            emit, exchange = None, complete(text, None)
        else:
            reply = self._search(self.chatbot, history, earlier)
            exchange = complete(reply.text, reply)
        self.exchanges = [*before, exchange]
        if emit is not None:
            emit(exchange.text)
        return exchange

    def _keywords(self, earlier: tuple[str, ...]) -> dict[str, Any]:
        """Return the options for the chatbot; another sample has the next seed."""
        seed = {"seed": self.options.seed + len(earlier)} if self.options.sample else {}
        return {**self.changes, **seed}

    def _search(self, chatbot: Chatbot, history: Sequence[str], earlier: tuple[str, ...]) -> Reply:
        """Return the best reply, or the best one whose text is not among earlier ones."""
        changes = self._keywords(earlier)
        if not earlier or self.options.sample:
            return chatbot(history, **changes)
        count = self.options.beam if chatbot.reverse is None else self.options.with_candidates().beam
        found = chatbot(history, **{**changes, "beam": count, "nbest": count}).nbest
        others = [reply for reply in found if reply.text not in earlier]
        if not others:
            raise OptionError(
                f"the search has found no other reply; widen it with {{beam:{2 * count}}}, or sample with "
                "{temperature:0.8}"
            )
        return others[0]

    def _next_retrieved(self, retrieved: Sequence[RetrievedReply], earlier: tuple[str, ...]) -> str:
        """Return the best retrieved text that is not among earlier ones."""
        others = [found.text for found in retrieved if found.text not in earlier]
        if not others:
            raise ValueError("the knowledge base has no other reply to this message; write another message")
        return others[0]


def _parse(option: Option, value: str) -> Any:
    """Return the value of an option that is written as a text."""
    try:
        if option.kind is bool:
            return _BOOLEANS[value.lower()]
        if get_origin(option.kind) is tuple:
            return (value,)
        return option.kind(value) if option.kind in (int, float) else value
    except (KeyError, ValueError) as error:
        raise OptionError(f"{{{option.name}}} must be {{0}}, but is {{1!r}}", option.allowed, value) from error
