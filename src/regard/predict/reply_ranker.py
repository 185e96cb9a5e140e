"""Ranking and retrieval of replies by a trained dual encoder."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.bundle import Bundle
from regard.data.fields import Fields, TextField, TurnsField
from regard.data.fields.lists import join_list
from regard.data.fields.nested import keep_last_parts
from regard.data.rows import Rows
from regard.models.dual_encoder import DualEncoder
from regard.nn.ragged import Ragged
from regard.predict.chatbot import History, turns_with_text
from regard.predict.forward_pass import plain_precision, token_batches
from regard.predict.knowledge_base import KnowledgeBase
from regard.predict.retriever import Retriever
from regard.predict.teacher_forcing import evaluating
from regard.text import END, START


def history_tokens(rows: Rows, longest: int) -> Rows:
    """Return encoded histories as a dual encoder reads them; the beginnings of long ones are cut off."""
    return keep_last_parts(rows, longest).prepend(START)


def reply_tokens(rows: Rows, longest: int) -> Rows:
    """Return encoded replies as a dual encoder reads them; the ends of long ones are cut off."""
    return rows.cut(longest).prepend(START).append(END)


class ReplyRanker:
    """A trained dual encoder: vectors of histories and replies, whose inner product is their similarity.

    >>> ranker = regard.load("runs/dailydialog-retrieval")
    >>> ranker.rank(["Where is the bank?"], ["I like tea.", "Around the corner."])
    [('Around the corner.', 0.61), ('I like tea.', 0.04)]
    >>> retriever = ranker.with_knowledge("faq.tsv")
    """

    def __init__(
        self, model: DualEncoder, fields: Fields, *, longest: int = 256, turns: int = 6, precision: str = "float32"
    ) -> None:
        """Rank replies with a model as it is now.

        Args:
            model: The dual encoder.
            fields: The fields `history` and `reply` that it was trained with.
            longest: Tokens of a history or a reply that the model reads.
            turns: Turns of a history that the model reads.
            precision: Precision of matrix products: `float32` or `bfloat16`.
        """
        history, reply = fields["history"], fields["reply"]
        assert isinstance(history, TurnsField)
        assert isinstance(reply, TextField)
        self.model, self.history_field, self.reply_field = model, history, reply
        self.turns, self.precision = turns, precision
        limit = model.max_positions
        self.longest = longest if limit is None else min(longest, limit - 2)

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "ReplyRanker":
        """Rank replies with a trained run, on the device it was loaded to."""
        model, data = bundle.model, bundle.recipe.data
        assert isinstance(model, DualEncoder)
        chosen = plain_precision(precision, model.device)
        return cls(model, bundle.fields, longest=data.longest, turns=data.turns, precision=chosen)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.device

    def with_knowledge(self, knowledge: str | Path | KnowledgeBase) -> "DualEncoderRetriever":
        """Return a retriever of replies from a knowledge base, or from the file of one."""
        return DualEncoderRetriever(
            self, knowledge if isinstance(knowledge, KnowledgeBase) else KnowledgeBase.read(knowledge)
        )

    def rank(self, history: str | History, replies: Sequence[str]) -> list[tuple[str, float]]:
        """Return replies with their cosine similarity to a history, the most similar first.

        Args:
            history: The turns so far, the last one to be replied to; a string is the only turn.
            replies: The replies to choose from. Equally similar ones keep their order.

        Raises:
            ValueError: The history has no text.
        """
        similarity = self.reply_vectors(replies) @ self.history_vectors([history])[0]
        return [(replies[place], float(similarity[place])) for place in np.argsort(-similarity, kind="stable")]

    def history_vectors(self, histories: Sequence[str | History]) -> NDArray[np.floating]:
        """Return a vector of length 1 for each history.

        Raises:
            ValueError: A history has no text.
        """
        values = [join_list(turns[-self.turns :]) for turns in turns_with_text(histories)]
        rows = history_tokens(self.history_field.encode(values), self.longest) if values else None
        return self._vectors(rows, self.model.history_vectors)

    def reply_vectors(self, replies: Sequence[str]) -> NDArray[np.floating]:
        """Return a vector of length 1 for each reply."""
        rows = reply_tokens(self.reply_field.encode(list(replies)), self.longest) if replies else None
        return self._vectors(rows, self.model.reply_vectors)

    def _vectors(self, rows: Rows | None, encode: Callable[[Ragged], Tensor]) -> NDArray[np.floating]:
        """Return the vectors of encoded texts, many of similar length at a time."""
        vectors: NDArray[np.floating] = np.zeros((0, self.model.reply_output.out_features), np.float32)
        if rows is None:
            return vectors
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        for number, indices in enumerate(token_batches(rows.lengths.tolist())):
            with evaluating(self.model), half:
                part = encode(rows.take(np.array(indices)).to_ragged().to(self.device)).cpu().numpy()
            if number == 0:
                vectors = np.empty((len(rows), part.shape[1]), part.dtype)
            vectors[indices] = part
        return vectors


class DualEncoderRetriever(Retriever):
    """Retrieves the replies whose vectors are the most similar to that of the history; their questions do not count.

    All replies are encoded once, when it is made.
    """

    def __init__(self, ranker: ReplyRanker, knowledge: KnowledgeBase) -> None:
        """Encode the replies of a knowledge base."""
        super().__init__(knowledge)
        self.ranker = ranker
        # Equal replies have one vector, so that rounding cannot tell them apart.
        replies, self._reply_of_pair = knowledge.distinct_replies()
        self._vectors = ranker.reply_vectors(replies)

    def scores(self, histories: Sequence[str | History]) -> NDArray[np.float64]:
        """Return the cosine similarity of each history (row) and the reply of each pair (column)."""
        similarity = self.ranker.history_vectors(histories) @ self._vectors.T
        return similarity.astype(np.float64)[:, self._reply_of_pair]
