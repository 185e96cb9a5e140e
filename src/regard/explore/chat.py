"""Answer questions about a chatbot: a reply to a conversation, its attention, and the effects of turns and words on it.

Attention weights are not explanations, so the page shows beside each of them how much the log-probability of the reply
changes without this turn or word.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.explore.adapters import MAX_INPUT
from regard.explore.frames import Message
from regard.explore.info import ModelInfo, is_right_to_left
from regard.explore.model import ResultCache
from regard.explore.passes import IsStale, StaleQuestionError
from regard.explore.questions import (
    MAX_CHARACTERS,
    AnyQuestion,
    DialogueQuestion,
    DropTurns,
    InputField,
    ReplyEffectsQuestion,
    ReplyQuestion,
)
from regard.predict import Chatbot
from regard.predict.chat_attention import has_attention, reply_attention
from regard.text import END, words

BLOCK = 32
"""Words whose effects are computed before the next frame; a question that became stale stops between two frames."""

Span = tuple[int, int]
Table = NDArray[np.float64]


@dataclass(frozen=True)
class ReadDialogue:
    """A conversation under changes, and which of its turns the chatbot reads."""

    history: tuple[str, ...]
    """All turns; those that are dropped are empty, so that the speakers of the others stay the same."""
    first: int
    """The number of the first turn that is read."""
    limit: int
    """The number of turns of the conversation that may be read."""

    @property
    def read(self) -> tuple[str, ...]:
        """The turns from the first one that is read; dropped ones are empty."""
        return self.history[self.first :]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the turns that are read."""
        return [number for number, turn in enumerate(self.history) if turn and number >= self.first]

    def without(self, turn: int, word: Span | None = None) -> tuple[str, ...]:
        """Return what is read without a turn, or without a word of it."""
        text, place = self.history[turn], turn - self.first
        rest = "" if word is None else " ".join(f"{text[: word[0]]} {text[word[1] :]}".split())
        return (*self.read[:place], rest, *self.read[place + 1 :])


@dataclass(frozen=True, eq=False)
class ReadReply:
    """A reply to a conversation, with its log-probabilities and its attention."""

    text: str
    words: tuple[Span, ...]
    turn_words: tuple[tuple[Span, ...], ...]
    """The words of each turn that is read."""
    logprobs: Table
    """Of each token, and of the end symbol."""
    turn_weights_QU: Table
    """The weights of turns for each word of the reply; without columns if the model has no attention."""
    word_weights_QK: Table
    """The weights of all words of the turns, likewise."""


@dataclass(frozen=True)
class LeftOut:
    """A turn that is left out of what is read, or a word of a turn."""

    rest: tuple[str, ...]
    """What is read without it."""
    turn: int
    word: int | None = None
    """The number of the word in the turn."""


class InspectedChatbot:
    """A chatbot under inspection; its latest results are cached."""

    input_field: ClassVar[InputField] = "history"

    def __init__(self, name: str, predictor: Chatbot, info: ModelInfo) -> None:
        """Inspect a chatbot; nothing else may record or change its model at the same time."""
        self.name, self.predictor, self.info, self.cache = name, predictor, info, ResultCache()
        self.attends = has_attention(predictor)

    def describe(self) -> dict[str, Any]:
        """Return what the page needs to know about the model before the first question."""
        chatbot = self.predictor
        tokenizers = {"source": chatbot.history_field.tokenizer, "target": chatbot.reply_field.tokenizer}
        return {
            "name": self.name,
            "task": "chat",
            "input": self.input_field,
            "family": self.info.family,
            "parts": [],
            "levels": ["turn", "word"] if self.attends else [],
            "turns": chatbot.turns,
            "width": chatbot.model.output.weight.shape[1],
            "vocabulary": len(tokenizers["target"]),
            "parameters": sum(parameter.numel() for parameter in chatbot.model.parameters()),
            "rtl": {side: is_right_to_left(None, tokenizer) for side, tokenizer in tokenizers.items()},
            "examples": list(self.info.examples),
            "longest": chatbot.longest,
            "learned_positions": False,
        }

    def answer(self, question: AnyQuestion, is_stale: IsStale) -> Iterator[Message]:
        """Yield the messages that answer a question, or raise a `ValueError` if a chatbot cannot answer it."""
        match question:
            case ReplyQuestion():
                return self._reply(question, is_stale)
            case ReplyEffectsQuestion():
                return self._effects(question, is_stale)
        raise ValueError(
            f"{self.name} is a chatbot, which does not answer '{question.kind}'; ask 'reply' or 'reply_effects'"
        )

    def read(self, question: DialogueQuestion) -> ReadDialogue:
        """Return the conversation of a question under its changes, or raise a `ValueError` if there is none."""
        turns = [" ".join(turn.split()) for turn in question.history]
        if (size := sum(map(len, turns))) > MAX_CHARACTERS:
            raise ValueError(
                f"the conversation has {size} characters, but at most {MAX_CHARACTERS} are read; shorten it"
            )
        if not any(turns):
            raise ValueError("the conversation is empty; give at least one turn that is not empty")
        for change in question.changes:
            for number in change.numbers if isinstance(change, DropTurns) else [change.number]:
                if number >= len(turns):
                    raise ValueError(f"there is no turn {number} in this conversation; they are 0 to {len(turns) - 1}")
                turns[number] = "" if isinstance(change, DropTurns) else " ".join(change.text.split())
        limit = question.turns or self.predictor.turns
        last = [number for number, turn in enumerate(turns) if turn and number >= len(turns) - limit]
        if not last:
            raise ValueError("all turns that would be read are dropped; put one back, or read more turns")
        rows = self.predictor.encode([turns[last[0] :]], limit)
        first = last[-int((rows.ids == END).sum())]  # the model does not read turns that have too many tokens together
        return ReadDialogue(tuple(turns), first, limit)

    def read_reply(self, dialogue: ReadDialogue, text: str) -> ReadReply:
        """Return the log-probabilities and the attention of a reply to a conversation."""

        def run() -> ReadReply:
            (logprobs,) = self.predictor.token_logprobs([dialogue.read], [text], dialogue.limit)
            turns = tuple(tuple(words(dialogue.history[number])) for number in dialogue.numbers)
            if not self.attends or not text.strip():
                spans = tuple(words(text))
                return ReadReply(text, spans, turns, logprobs, np.zeros((len(spans), 0)), np.zeros((len(spans), 0)))
            attention = reply_attention(self.predictor, dialogue.read, text, dialogue.limit)
            by_turn = np.stack([turn.weights_Q for turn in attention.turns], 1)
            by_word = np.concatenate([turn.word_weights_QK for turn in attention.turns], 1)
            turns = tuple(turn.words for turn in attention.turns)
            return ReadReply(text, attention.words, turns, logprobs, by_turn, by_word)

        return self.cache.get(("reply", dialogue, text), run, lambda reply: reply.word_weights_QK.nbytes)

    def _reply(self, question: ReplyQuestion, is_stale: IsStale) -> Iterator[Message]:
        """Yield a reply as it grows, and then with its log-probabilities and its attention."""
        dialogue = self.read(question)
        if question.reply is None:
            text = yield from self._generate(question, dialogue, is_stale)
        else:
            text = self._given_reply(question.reply)
        if is_stale():
            raise StaleQuestionError
        reply = self.read_reply(dialogue, text)
        message = reply_message(reply, dialogue, self.predictor) | {"given": question.reply is not None, "last": True}
        arrays = {"logprobs": reply.logprobs}
        if self.attends:
            arrays |= {"turns": reply.turn_weights_QU, "words": reply.word_weights_QK}
        yield message, {name: array.astype(np.float32) for name, array in arrays.items()}

    def _generate(
        self, question: ReplyQuestion, dialogue: ReadDialogue, is_stale: IsStale
    ) -> Generator[Message, None, str]:
        """Yield a reply as it grows, unless it is cached or found by beam search; return it."""
        options: dict[str, Any] = {"turns": dialogue.limit}
        if question.seed is None and question.temperature is None:
            options["beam"] = question.beam
        else:
            options |= {"sample": True, "seed": question.seed or 0, "temperature": question.temperature or 1.0}
        key = ("generated", dialogue, tuple(options.items()))
        cached = self.cache.peek(key)
        if isinstance(cached, str):
            return cached
        text = ""
        if question.beam > 1 and "beam" in options:
            text = self.predictor(dialogue.read, **options).text
        else:
            with closing(self.predictor.stream(dialogue.read, **options)) as pieces:
                for piece in pieces:
                    if is_stale():
                        raise StaleQuestionError
                    text += piece
                    yield {"kind": "partial", "text": text}, {}
        self.cache.put(key, text)
        return text

    def _given_reply(self, text: str) -> str:
        """Return a given reply, or raise a `ValueError` if it is empty or too long."""
        text, most = " ".join(text.split()), min(MAX_INPUT, self.predictor.max_reply)
        if not text:
            raise ValueError("the given reply is empty; type some words, or leave it out")
        if (count := len(self.predictor.reply_field.tokenizer.encode(text))) > most:
            raise ValueError(f"the given reply has {count} tokens, but at most {most} are shown; shorten it")
        return text

    def _effects(self, question: ReplyEffectsQuestion, is_stale: IsStale) -> Iterator[Message]:
        """Yield how the log-probability of each token of a reply changes without a turn, and without each word.

        The turns come first, each in a frame of its own, then the words, those with the largest weights first.
        """
        dialogue, text = self.read(question), question.reply
        if text:
            text = self._given_reply(text)
        reply = self.read_reply(dialogue, text)
        blocks = _blocks(_parts(dialogue, reply))
        for place, block in enumerate(blocks):
            if is_stale():
                raise StaleQuestionError
            after = self.predictor.token_logprobs([part.rest for part in block], [text] * len(block), dialogue.limit)
            level = "turn" if block[0].word is None else "word"
            numbers = [part.turn if part.word is None else [part.turn, part.word] for part in block]
            message = {"kind": "reply_effects", "level": level, "numbers": numbers, "last": place == len(blocks) - 1}
            yield message, {"change": (np.stack(after) - reply.logprobs).astype(np.float32)}
        if not blocks:
            change = np.zeros((0, len(reply.logprobs)), np.float32)
            yield {"kind": "reply_effects", "level": "turn", "numbers": [], "last": True}, {"change": change}


def reply_message(reply: ReadReply, dialogue: ReadDialogue, chatbot: Chatbot) -> dict[str, Any]:
    """Return the message with a reply, its tokens and words, and the turns that are read with their words."""
    tokenizer, ends = chatbot.reply_field.tokenizer, [end for _, end in reply.words]
    tokens = [
        {"piece": token.piece, "text": reply.text[token.start : token.end], "word": bisect_right(ends, token.start)}
        for token in tokenizer.tokens(reply.text)
    ]
    return {
        "kind": "reply",
        "text": reply.text,
        "logprob": float(reply.logprobs.sum()),
        "tokens": [*tokens, {"piece": tokenizer.piece(END), "text": "", "word": None}],
        "words": [list(span) for span in reply.words],
        "turns": [
            {"number": number, "text": dialogue.history[number], "words": [list(span) for span in spans]}
            for number, spans in zip(dialogue.numbers, reply.turn_words, strict=True)
        ],
    }


def _parts(dialogue: ReadDialogue, reply: ReadReply) -> list[LeftOut]:
    """Return the turns of a conversation and then their words, the largest weights first, without those alone in it."""
    places = [
        (turn, number, span)
        for turn, spans in zip(dialogue.numbers, reply.turn_words, strict=True)
        for number, span in enumerate(spans)
    ]
    weights = reply.word_weights_QK.mean(0) if reply.word_weights_QK.size else np.zeros(len(places))
    ordered = [places[place] for place in np.argsort(-weights, kind="stable")]
    parts = [LeftOut(dialogue.without(turn), turn) for turn in dialogue.numbers]
    parts += [LeftOut(dialogue.without(turn, span), turn, number) for turn, number, span in ordered]
    return [part for part in parts if any(part.rest)]


def _blocks(parts: Sequence[LeftOut]) -> list[Sequence[LeftOut]]:
    """Return the parts whose effects are computed together: each turn alone, and many words."""
    turns = [part for part in parts if part.word is None]
    return [[turn] for turn in turns] + [parts[at : at + BLOCK] for at in range(len(turns), len(parts), BLOCK)]
