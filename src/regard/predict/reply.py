"""What a chatbot returns: a reply with its scores."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """A reply: the best one, and in `nbest` all of them."""

    history: tuple[str, ...]
    """The turns that it replies to, as they were given."""
    text: str
    score: float
    """The score by which replies are ranked; with reranking, that of mutual information."""
    logprob: float
    """Log-probability given the history, in nats."""
    tokens: tuple[str, ...]
    """The subwords of the reply."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token, and of the end symbol if the model has generated it."""
    nbest: tuple["Reply", ...] = field(default=(), repr=False)
    truncated: bool = False
    """Whether it ended because it reached the maximum length."""

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return everything but the history as a JSON object."""
        table: dict[str, Any] = {
            "text": self.text,
            "score": self.score,
            "logprob": self.logprob,
            "tokens": list(self.tokens),
            "token_logprobs": list(self.token_logprobs),
        }
        if len(self.nbest) > 1:
            table["nbest"] = [reply.to_json() for reply in self.nbest]
        return table
