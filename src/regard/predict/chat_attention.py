"""The attention of a reply to the turns of its history, and to their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.fields import split_parts
from regard.data.fields.lists import on_one_line
from regard.data.rows import Rows
from regard.nn.tap import named_taps, recording
from regard.predict.chatbot import Chatbot, History
from regard.predict.teacher_forcing import cross_attention_taps, evaluating
from regard.text import START, Token, words

TURNS, WORDS = "decoder.cell.turns.weights", "decoder.cell.words.weights"
"""Taps of a hierarchical recurrent attention network: the weights of turns, and of the words within each turn."""

Weights = NDArray[np.float64]
Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class AttendedTurn:
    """A turn of a history, with its attention weights."""

    number: int
    """Its number in the history, counted from 0."""
    text: str
    """The turn; each run of white space is a space."""
    weight: float
    """The mean weight over the words of the reply."""
    weights_Q: Weights
    """The weight in the step of each word of the reply."""
    words: tuple[Span, ...]
    """Begin and end of each word that the model reads."""
    word_weights_QK: Weights
    """The weight of each word in the step of each word of the reply. The symbols of a turn have weights of their own,
    so the words of a turn may have less weight together than the turn."""

    @property
    def word_means(self) -> list[float]:
        """The mean weight of each word over the words of the reply."""
        means: list[float] = self.word_weights_QK.mean(0).tolist()
        return means

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return {
            "number": self.number,
            "text": self.text,
            "weight": self.weight,
            "weights": self.weights_Q.tolist(),
            "words": [[*span, weight] for span, weight in zip(self.words, self.word_means, strict=True)],
            "word_weights": self.word_weights_QK.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ReplyAttention:
    """What a reply attends to: the weights of turns and of words, in each step and on average."""

    turns: tuple[AttendedTurn, ...]
    """The turns that the model reads, in order; their weights sum to 1 in each step. It reads no empty turns."""
    unread: int
    """The number of turns at the beginning of the history that the model does not read."""
    reply: str
    words: tuple[Span, ...]
    """Begin and end of each word of the reply."""

    @property
    def most_attended(self) -> int:
        """The number of the turn with the highest mean weight, counted from 0 in the whole history."""
        return max(self.turns, key=lambda turn: turn.weight).number

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return {
            "turns": [turn.to_json() for turn in self.turns],
            "unread": self.unread,
            "reply": self.reply,
            "words": [list(span) for span in self.words],
        }


def reply_attention(chatbot: Chatbot, history: str | History, reply: str, turns: int | None = None) -> ReplyAttention:
    """Return the attention of a given reply to its history, in one teacher-forced pass.

    A hierarchical recurrent attention network has weights of turns, and of words within them, whose product is the
    weight of a word. In other models, the weight of a turn is the sum over its tokens, and the weights are the mean
    over all layers and heads.

    Args:
        chatbot: The chatbot.
        history: The turns before the reply; a single string is the only turn.
        reply: The reply, which the model need not have written.
        turns: Maximum number of turns to read. Default: as in training.

    Raises:
        ValueError: The model has no attention, or history or reply have no text.
    """
    reply_tokens, tokenizer = chatbot.reply_field.tokenizer.tokens(reply), chatbot.history_field.tokenizer
    if not reply_tokens:
        raise ValueError("the reply has no text, so that nothing attends to the history; give a reply")
    given = [history] if isinstance(history, str) else history
    rows = chatbot.encode([given], turns)
    sizes = split_parts(rows)[1].ids.tolist()
    by_turn_TU, by_token = _weights(chatbot, rows, reply, sizes)
    spans, membership_QT = _words(reply, reply_tokens, len(reply_tokens))
    membership_QT /= membership_QT.sum(1, keepdims=True)  # means over the tokens of a word
    read = [(number, text) for number, turn in enumerate(given) if (text := on_one_line(turn))][-len(sizes) :]
    attended = []
    for part, ((number, text), weights_TK) in enumerate(zip(read, by_token, strict=True)):
        # The first token is the symbol of the speaker; of a turn that is too long, the first tokens are not read.
        word_spans, membership_WK = _words(text, tokenizer.tokens(text), weights_TK.shape[1] - 1)
        weights_Q = membership_QT @ by_turn_TU[:, part]
        word_weights_QK = membership_QT @ weights_TK[:, 1:] @ membership_WK.T
        weight = float(weights_Q.mean())
        attended.append(AttendedTurn(number, text, weight, weights_Q, word_spans, word_weights_QK))
    return ReplyAttention(tuple(attended), attended[0].number, reply, spans)


def has_attention(chatbot: Chatbot) -> bool:
    """Return whether a chatbot attends to its history."""
    return TURNS in named_taps(chatbot.model) or bool(cross_attention_taps(chatbot.model))


def _weights(chatbot: Chatbot, rows: Rows, reply: str, sizes: Sequence[int]) -> tuple[Weights, list[Weights]]:
    """Return the weights of turns in the steps of a reply, and for each turn those of its tokens, `END` left out."""
    if not has_attention(chatbot):
        raise ValueError("this model has no attention to its history; use a family with attention, such as hran")
    target = chatbot.reply_field.encode([reply]).prepend(START).to_ragged().to(chatbot.device)
    layered = TURNS in named_taps(chatbot.model)
    with evaluating(chatbot.model), recording(chatbot.model, "decoder*.weights") as recorded:
        chatbot.model.states(chatbot.inputs(rows), target)
    seen = {name: values[0][0].double().cpu() for name, values in recorded.items() if values}
    # The last step predicts the end of the reply.
    if layered:
        by_turn_TU = seen[TURNS][0].numpy()[:-1]
        weights_TS = seen[WORDS][0].numpy()[:-1]
        parts = np.split(weights_TS[:, : sum(sizes)], np.cumsum(sizes)[:-1], axis=1)
        return by_turn_TU, [part * by_turn_TU[:, [number]] for number, part in enumerate(parts)]
    taps = [seen[name].mean(0) for name in cross_attention_taps(chatbot.model)]
    weights_TS = torch.stack(taps).mean(0).numpy()[:-1]
    ended = [size if chatbot.hierarchical else size + 1 for size in sizes]
    parts = np.split(weights_TS[:, : sum(ended)], np.cumsum(ended)[:-1], axis=1)
    by_turn_TU = np.stack([part.sum(1) for part in parts], 1)
    return by_turn_TU, [part[:, :size] for part, size in zip(parts, sizes, strict=True)]


def _words(text: str, tokens: Sequence[Token], read: int) -> tuple[tuple[Span, ...], Weights]:
    """Return the words of a text, and which of its last `read` tokens belong to each of them.

    A text that normalisation removes has no tokens, but one unknown token stands for it.
    """
    kept = tokens[len(tokens) - read :] if read <= len(tokens) else []
    spans = words(text)
    found: dict[Span, list[int]] = {} if kept else {(0, len(text)): list(range(read))}
    for number, token in enumerate(kept):
        found.setdefault((token.start, token.end) if token.word is None else spans[token.word], []).append(number)
    membership = np.zeros((len(found), read))
    for row, numbers in enumerate(found.values()):
        membership[row, numbers] = 1
    return tuple(found), membership
