"""What a search gives: sequences of tokens with what they score."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A complete sequence and its score."""

    tokens: tuple[int, ...]
    """Ids, neither the begin symbol nor the end symbol among them."""
    score: float
    """What hypotheses are ranked by: the log-probability, with length and coverage penalties applied."""
    logprob: float
    """Log-probability of the sequence and its end, as the stepper gave it."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token, and at last that of the end symbol: one more than there are tokens."""
    cut: bool = False
    """Whether it ended because it was as long as it may be."""
