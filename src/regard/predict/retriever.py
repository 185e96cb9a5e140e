"""Retrieval of replies from a knowledge base: the questions and replies that are most similar to a history.

BM25Retriever           by the words that the history shares with the questions
DualEncoderRetriever    by the vectors of the history and the replies (`regard.predict.reply_ranker`)
FusedRetriever          by both
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.rows import Numbers
from regard.predict.bm25 import Bm25Index
from regard.predict.chatbot import Chatbot, History, turns_with_text
from regard.predict.knowledge_base import KnowledgeBase
from regard.predict.reply import Reply

CHUNK = 1 << 22  # scores that are in memory at once
EARLIER = 0.1  # weight of a turn in a query, relative to the turn after it
DENSE_WEIGHT = 0.7  # of the vectors, beside the words; docs/retrieval.md has the measurements of both numbers
NEGLIGIBLE = 0.01  # turns of less weight are not searched for
_log = logging.getLogger("regard")


@dataclass(frozen=True)
class RetrievedReply:
    """A reply that was found in a knowledge base."""

    text: str
    """The reply."""
    question: str
    """The question that it replies to in the knowledge base."""
    similarity: float
    """How well it suits the history, by the measure of the retriever."""
    line: int
    """The line of the knowledge base, counted from 1."""

    def __str__(self) -> str:
        """Return the reply."""
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return asdict(self)


class Retriever(ABC):
    """Finds replies to a history in a knowledge base.

    >>> retriever = load_retriever("faq.tsv")
    >>> retriever.retrieve(["Where can I park?"], top=1)[0].text
    """

    def __init__(self, knowledge: KnowledgeBase) -> None:
        """Retrieve from a knowledge base."""
        self.knowledge = knowledge

    @abstractmethod
    def scores(self, histories: Sequence[str | History]) -> NDArray[np.float64]:
        """Return the similarity of each history (row) and each pair of the knowledge base (column).

        Raises:
            ValueError: A history has no text.
        """

    def retrieve(self, history: str | History, top: int = 3) -> list[RetrievedReply]:
        """Return the best replies to a history, each text once; see `retrieve_batch`."""
        return self.retrieve_batch([history], top)[0]

    def retrieve_batch(self, histories: Sequence[str | History], top: int = 3) -> list[list[RetrievedReply]]:
        """Return the best replies to each of several histories, the best first.

        Of pairs with the same reply, the best counts. Of equally good pairs, the first in the knowledge base is better.

        Args:
            histories: The turns so far, the last one to be replied to; a string is the only turn.
            top: Number of replies; all of them if there are fewer.

        Raises:
            ValueError: A history has no text, or `top` is less than 1.
        """
        if top < 1:
            raise ValueError(f"top is the number of replies to retrieve, at least 1, not {top}")
        rows = max(1, CHUNK // len(self.knowledge))
        chunks = (histories[start : start + rows] for start in range(0, len(histories), rows))
        return [self._best(scores_K, top) for chunk in chunks for scores_K in self.scores(chunk)]

    def _best(self, scores_K: NDArray[np.float64], top: int) -> list[RetrievedReply]:
        """Return the best pairs with distinct replies."""
        found: dict[str, RetrievedReply] = {}
        count = min(2 * top, len(scores_K))  # enough, unless many pairs have the same reply
        while len(found) < top:
            for place in _largest(scores_K, count):
                question, reply, line = self.knowledge.pairs[place]
                found.setdefault(reply, RetrievedReply(reply, question, float(scores_K[place]), line))
            if count == len(scores_K):
                break
            count = min(4 * count, len(scores_K))
        return list(found.values())[:top]


def _largest(scores_K: NDArray[np.float64], count: int) -> Numbers:
    """Return the places of the `count` largest scores, in order; equal ones in the order of their places."""
    smallest = np.partition(scores_K, -count)[-count]
    places = np.flatnonzero(scores_K >= smallest)
    order = np.argsort(-scores_K[places], kind="stable")[:count]
    return places[order]


class BM25Retriever(Retriever):
    """Retrieves the replies whose questions share words with the history, by BM25. Replies themselves do not count."""

    def __init__(self, knowledge: KnowledgeBase, earlier: float = EARLIER) -> None:
        """Index the questions of a knowledge base.

        Args:
            knowledge: The knowledge base.
            earlier: Weight of each turn relative to the turn after it; 0 searches for the last turn only.
        """
        super().__init__(knowledge)
        self.earlier = earlier
        self._index = Bm25Index([pair.question for pair in knowledge.pairs])

    def scores(self, histories: Sequence[str | History]) -> NDArray[np.float64]:
        """Return the BM25 score of each history (row) and the question of each pair (column)."""
        return np.stack([self._index.scores(self._query(turns)) for turns in turns_with_text(histories)])

    def _query(self, turns: Sequence[str]) -> list[tuple[str, float]]:
        """Return the last turns with their weights, the last one first."""
        weights = [self.earlier**age for age in range(len(turns))]
        return [(turn, weight) for turn, weight in zip(reversed(turns), weights, strict=True) if weight >= NEGLIGIBLE]


class FusedRetriever(Retriever):
    """Retrieves by the standardised scores of two retrievers over one knowledge base, usually BM25 and a dual encoder.

    BM25 finds names and rare words, a dual encoder what is said in other words.
    """

    def __init__(self, lexical: Retriever, dense: Retriever, weight: float = DENSE_WEIGHT) -> None:
        """Combine two retrievers.

        Args:
            lexical: The first retriever.
            dense: The second retriever, over the same knowledge base.
            weight: Weight of the second, between 0 and 1; that of the first is the rest.
        """
        super().__init__(lexical.knowledge)
        if dense.knowledge is not lexical.knowledge:
            raise ValueError("the retrievers have different knowledge bases; make both with the same one")
        self.lexical, self.dense, self.weight = lexical, dense, weight

    def scores(self, histories: Sequence[str | History]) -> NDArray[np.float64]:
        """Return the weighted mean of both scores of each history (row) and pair (column), in standard deviations.

        A retriever for which all pairs are equally similar to a history has no influence.
        """
        lexical_QK, dense_QK = (standardised(part.scores(histories)) for part in (self.lexical, self.dense))
        fused_QK: NDArray[np.float64] = (1 - self.weight) * lexical_QK + self.weight * dense_QK
        return fused_QK


def standardised(scores_QK: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores minus the mean of their row, divided by its standard deviation; zeros if all are equal."""
    centred_QK = scores_QK - scores_QK.mean(-1, keepdims=True)
    deviation_Q1 = centred_QK.std(-1, keepdims=True)
    scaled_QK: NDArray[np.float64] = centred_QK / np.where(deviation_Q1 > 0, deviation_Q1, 1.0)
    return scaled_QK


def rank_candidates(chatbot: Chatbot, history: str | History, candidates: Iterable[str]) -> list[Reply]:
    """Return replies in the order of their log-probability per token, by the model of a chatbot.

    So the replies that it generates and those that were retrieved can be compared:

    >>> generated = [reply.text for reply in chatbot(history, beam=4, nbest=4).nbest]
    >>> retrieved = [reply.text for reply in retriever.retrieve(history)]
    >>> rank_candidates(chatbot, history, generated + retrieved)[0].text

    Args:
        chatbot: The chatbot.
        history: The turns so far, the last one to be replied to; a string is the only turn.
        candidates: The replies; those without text, and all but the first of equal ones, are left out.

    Returns:
        The replies, each with its mean log-probability as score. Those of equal score keep their order. A reply with
        more tokens than the model has positions for is left out, with a warning.
    """
    (turns,) = turns_with_text([history])
    texts = list(dict.fromkeys(text for candidate in candidates if (text := " ".join(candidate.split()))))
    rows = chatbot.reply_field.encode(texts) if texts else None
    ids = [] if rows is None else [part.tolist() for part in np.split(rows.ids, rows.offsets[1:-1])]
    kept = [(text, tokens) for text, tokens in zip(texts, ids, strict=True) if len(tokens) <= chatbot.max_reply]
    if len(kept) < len(texts):
        _log.warning(
            "%d of %d replies have more than the %d tokens that the model has positions for; they are left out",
            *(len(texts) - len(kept), len(texts), chatbot.max_reply),
        )
    scored = chatbot.token_logprobs([turns] * len(kept), [text for text, _ in kept])
    replies = [
        Reply(
            tuple(turns),
            text,
            score=float(logprobs.mean()),
            logprob=float(logprobs.sum()),
            tokens=tuple(map(chatbot.reply_field.tokenizer.piece, tokens)),
            token_logprobs=tuple(logprobs.tolist()),
        )
        for (text, tokens), logprobs in zip(kept, scored, strict=True)
    ]
    return sorted(replies, key=lambda reply: -reply.score)
