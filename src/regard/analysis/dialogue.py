"""Judge chatbots: what their replies are worth, and whether they use the turns before the last one.

A chatbot that replies to the last turn alone is fluent, and has no memory. So perplexity is also measured with the
earlier turns in random order and without them (Sankar et al. 2019). In generated small talk it is known which turn, and
which words of it, decide a reply: `judge_recall` says how often the answer is right, and `judge_attention` how often
attention is there.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.smalltalk import Dialogue
from regard.predict.chat_attention import ReplyAttention, Span, has_attention, reply_attention
from regard.predict.chatbot import Chatbot, History
from regard.predict.text_generator import TextPerplexity
from regard.score import Score, bleu, exact_match
from regard.score.dialogue import distinct

Replier = Callable[[Sequence[History]], Sequence[str]]
"""Returns a reply to each history."""


@dataclass(frozen=True)
class ContextPerplexity:
    """The perplexity of replies given all that a chatbot reads, and given less."""

    full: TextPerplexity
    """Given their histories."""
    shuffled: TextPerplexity
    """Given the last turn, and the turns before it in random order."""
    last: TextPerplexity
    """Given the last turn alone."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the three as a JSON object."""
        return {name: getattr(self, name).to_json() for name in ("full", "shuffled", "last")}


@dataclass(frozen=True)
class ChatJudgement:
    """The quality of a chatbot's replies, and how much it uses its history."""

    replies: tuple[str, ...]
    """The replies to the histories, in their order."""
    perplexity: ContextPerplexity
    scores: tuple[Score, ...]
    """BLEU, distinct-1 and -2 and exact matches; with small talk also `judge_recall` and others."""

    def lines(self) -> list[str]:
        """Return a report in words and numbers."""
        explanations = {
            "full": "given the history",
            "shuffled": "given the history with the turns before the last one in random order",
            "last": "given the last turn alone",
        }
        report = [f"Perplexity of {len(self.replies):,} replies per word (per token):"]
        for name, explanation in explanations.items():
            figures = getattr(self.perplexity, name).to_json()
            report.append(f"  {figures['word_perplexity']:9.2f} ({figures['perplexity']:.2f}) {explanation}")
        return [*report, "", *(f"  {score}" for score in self.scores)]

    def to_json(self) -> dict[str, Any]:
        """Return perplexities and scores as a JSON object."""
        scores = [
            {"name": score.name, "value": score.value, "signature": score.signature, "detail": score.detail}
            for score in self.scores
        ]
        return {"replies": len(self.replies), "perplexity": self.perplexity.to_json(), "scores": scores}


def judge_chatbot(
    chatbot: Chatbot, histories: Sequence[History], references: Sequence[str], lowercase: bool = False
) -> ChatJudgement:
    """Reply to histories and score the replies, with the chatbot's own options.

    Args:
        chatbot: The chatbot.
        histories: Histories that it was not trained on.
        references: The right reply to each of them.
        lowercase: Whether BLEU and exact matches ignore case.
    """
    replies = tuple(reply.text for reply in chatbot.reply(histories))
    scores = reply_scores(replies, references, lowercase)
    return ChatJudgement(replies, context_perplexity(chatbot, histories, references), scores)


def reply_scores(replies: Sequence[str], references: Sequence[str], lowercase: bool = False) -> tuple[Score, ...]:
    """Return BLEU, distinct-1 and -2, and the percentage of exact matches of replies."""
    return (
        bleu(replies, references, lowercase=lowercase),
        distinct(replies, 1),
        distinct(replies, 2),
        exact_match(replies, references, lowercase=lowercase),
    )


def context_perplexity(
    chatbot: Chatbot, histories: Sequence[History], references: Sequence[str], seed: int = 0
) -> ContextPerplexity:
    """Return the perplexity of given replies with their histories, with shuffled ones, and with the last turn alone.

    Only the turns that the chatbot reads are shuffled. The last turn, which is replied to, stays in its place.

    Args:
        chatbot: The chatbot.
        histories: The turns before each reply.
        references: The replies.
        seed: Seed of the random orders.
    """
    random_order = random.Random(seed)
    read = [list(history)[-chatbot.turns :] for history in histories]
    shuffled = [[*random_order.sample(turns[:-1], len(turns) - 1), turns[-1]] for turns in read]
    last = [turns[-1:] for turns in read]
    return ContextPerplexity(*(chatbot.perplexity(turns, references) for turns in (read, shuffled, last)))


def replies_of(unseen: Sequence[Dialogue]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the replies of the second speaker of generated dialogues, and the history of each."""
    examples = [
        (dialogue.turns[:number], dialogue.turns[number])
        for dialogue in unseen
        for number in range(1, len(dialogue.turns), 2)
    ]
    return [history for history, _ in examples], [reply for _, reply in examples]


def recall_questions(dialogues: Sequence[Dialogue]) -> Iterator[tuple[Dialogue, int]]:
    """Yield each reply to a question about an earlier turn, as a dialogue and the number of the reply's turn."""
    for dialogue in dialogues:
        yield from ((dialogue, number) for number in range(len(dialogue.turns)) if dialogue.is_recalled(number))


def judge_recall(reply: Replier, dialogues: Sequence[Dialogue], lowercase: bool = False) -> tuple[Score, ...]:
    """Return the percentage of right replies to questions about earlier turns of small talk, letter by letter."""
    questions = _questions(dialogues)
    replies = reply([dialogue.turns[:number] for dialogue, number in questions])
    exact = exact_match(replies, [dialogue.turns[number] for dialogue, number in questions], lowercase=lowercase)
    return (replace(exact, name="recalled"),)


def judge_attention(chatbot: Chatbot, dialogues: Sequence[Dialogue]) -> tuple[Score, ...]:
    """Judge the attention of a chatbot in its replies to questions about earlier turns of small talk.

    Returns:
        The percentages of replies in which the most attended turn is the one that decides, and in which the most
        attended word is one of those that decide; nothing for a model without attention. Both are counted at the words
        of the reply that come from there, with the right reply as the decoder's input.
    """
    if not has_attention(chatbot):
        return ()
    hits = [_is_attended(chatbot, dialogue, number) for dialogue, number in _questions(dialogues)]
    scores = []
    for name, found in zip(("gold turn", "gold word"), zip(*hits, strict=True), strict=True):
        value = 100 * sum(found) / len(found)
        scores.append(Score(name, value, f"argmax:1|turns:{chatbot.turns}", f"({sum(found)} of {len(found)})"))
    return tuple(scores)


def _questions(dialogues: Sequence[Dialogue]) -> list[tuple[Dialogue, int]]:
    """Return the questions about earlier turns, of which there must be some."""
    questions = list(recall_questions(dialogues))
    if not questions:
        raise ValueError("no reply of these dialogues depends on an earlier turn; give more dialogues")
    return questions


def _is_attended(chatbot: Chatbot, dialogue: Dialogue, number: int) -> tuple[bool, bool]:
    """Return whether the turn and the words that decide a reply are the most attended ones at the words they decide."""
    evidence = dialogue.evidence[number]
    assert evidence is not None, "the reply to a question about an earlier turn has evidence"
    attention = reply_attention(chatbot, dialogue.turns[:number], dialogue.turns[number])
    rows = np.array([_overlaps(span, evidence.reply_words) for span in attention.words])
    turn = attention.unread + int(np.argmax([turn.weights_Q[rows].sum() for turn in attention.turns]))
    where, word = _most_attended_word(attention, rows)
    return turn == evidence.turn, where == evidence.turn and _overlaps(word, evidence.words)


def _most_attended_word(attention: ReplyAttention, rows: NDArray[np.bool_]) -> tuple[int, Span]:
    """Return the turn and the span of the word with the largest weight in some steps of a reply."""
    weights = [
        (float(weight), attention.unread + number, span)
        for number, turn in enumerate(attention.turns)
        for span, weight in zip(turn.words, turn.word_weights_QK[rows].sum(0), strict=True)
    ]
    _, where, word = max(weights)
    return where, word


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    return any(span[0] < end and begin < span[1] for begin, end in others)
