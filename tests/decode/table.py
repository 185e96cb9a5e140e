"""A stepper whose logits are random numbers that depend on the history, and a search that enumerates all sequences."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from regard.decode import Hypothesis, SearchOptions, SentenceOptions, WordBoundaries

BEGIN, END = 0, 1
ATTENTION = -7
"""Appended to a history, it gives the numbers of its attention weights instead of its logits."""


@dataclass(frozen=True)
class TableState:
    """The tokens that each row has read, after the seed and the number of its sentence."""

    histories: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=100_000)
def numbers(history: tuple[int, ...], size: int, sharpness: float) -> tuple[float, ...]:
    """Return random numbers that depend on every token of a history, and on nothing else."""
    generator = torch.Generator().manual_seed(hash((history, size)) % 2**62)
    return tuple((torch.randn(size, generator=generator, dtype=torch.float64) * sharpness).tolist())


class Table:
    """A stepper with log-probabilities that depend on the whole history; that of sentence b begins with (seed, b)."""

    def __init__(self, vocabulary: int = 5, seed: int = 0, sharpness: float = 1.5, sources: Sequence[int] = ()) -> None:
        self.vocabulary, self.seed, self.sharpness = vocabulary, seed, sharpness
        self.sources = tuple(sources)
        self.steps, self.computed_rows = 0, 0

    def start(self, sentences: Sequence[int], beams: int) -> TableState:
        return TableState(tuple((self.seed, sentence) for sentence in sentences for _ in range(beams)))

    def rows(self, histories: Sequence[tuple[int, ...]]) -> Tensor:
        logits = [numbers(history, self.vocabulary, self.sharpness) for history in histories]
        return torch.tensor(logits, dtype=torch.float64).log_softmax(1)

    def logprobs(self, history: tuple[int, ...]) -> Tensor:
        return self.rows([history])[0]

    def step(self, tokens_R: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        assert tokens_R.shape == (len(state.histories),)
        after = tuple((*past, token) for past, token in zip(state.histories, tokens_R.tolist(), strict=True))
        self.steps, self.computed_rows = self.steps + 1, self.computed_rows + len(after)
        return self.rows(after), TableState(after)

    def select(self, state: TableState, rows_R: Tensor) -> TableState:
        return TableState(tuple(state.histories[row] for row in rows_R.tolist()))

    def join(self, states: Sequence[TableState]) -> TableState:
        return TableState(tuple(history for state in states for history in state.histories))

    def attention(self, state: TableState) -> Tensor:
        widest = max(self.sources[history[1]] for history in state.histories)
        weights = torch.zeros(len(state.histories), widest, dtype=torch.float64)
        for row, history in enumerate(state.histories):
            size = self.sources[history[1]]
            weights[row, :size] = torch.tensor(numbers((*history, ATTENTION), size, 2.0), dtype=torch.float64).softmax(
                0
            )
        return weights


def forced(table: Table, sentence: int, tokens: Sequence[int]) -> list[float]:
    """Return the log-probability of each token and of the end symbol (teacher forcing)."""
    history: tuple[int, ...] = (table.seed, sentence, BEGIN)
    logprobs = []
    for token in (*tokens, END):
        logits = numbers(history, table.vocabulary, table.sharpness)
        logprobs.append(logits[token] - math.log(sum(map(math.exp, logits))))
        history = (*history, token)
    return logprobs


def sequences(vocabulary: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield every sequence of at most `most` tokens without the end symbol."""
    tokens = [token for token in range(vocabulary) if token != END]
    for length in range(most + 1):
        yield from itertools.product(tokens, repeat=length)


def contains(tokens: Sequence[int], phrase: Sequence[int], start: int = 0) -> bool:
    """Return whether a sequence contains a phrase that ends after the first `start` tokens."""
    ends = range(max(len(phrase), start + 1), len(tokens) + 1)
    return any(tuple(tokens[end - len(phrase) : end]) == tuple(phrase) for end in ends)


def contains_whole(tokens: Sequence[int], phrase: Sequence[int], boundaries: WordBoundaries | None) -> bool:
    """Return whether a sequence contains a phrase, at word boundaries if there are any."""

    def joined(at: int) -> bool:
        if boundaries is None or not 0 < at < len(tokens):
            return False
        return bool(boundaries.joins[boundaries.last[tokens[at - 1]]][boundaries.first[tokens[at]]])

    starts = range(len(tokens) - len(phrase) + 1)
    return any(
        tuple(tokens[start : start + len(phrase)]) == tuple(phrase)
        and not joined(start)
        and not joined(start + len(phrase))
        for start in starts
    )


def allowed(tokens: Sequence[int], requested: SentenceOptions, options: SearchOptions) -> bool:
    """Return whether a sequence satisfies the options, by looking at the whole sequence."""
    start = len(requested.prefix)
    least, most = options.limits.bounds(requested)
    repeats = any(
        tuple(tokens[first : first + options.no_repeat]) == tuple(tokens[end - options.no_repeat : end])
        for end in range(max(start + 1, options.no_repeat), len(tokens) + 1)
        for first in range(end - options.no_repeat)
    )
    return (
        least <= len(tokens) <= most
        and tuple(tokens[:start]) == requested.prefix
        and not set(tokens[start:]) & set(options.banned)
        and not (options.no_repeat and repeats)
        and not any(contains(tokens, phrase, start) for phrase in requested.avoid)
        and all(contains_whole(tokens, phrase, requested.boundaries) for phrase in requested.constraints)
    )


def enumerated(
    table: Table, sentence: int, requested: SentenceOptions, options: SearchOptions
) -> list[tuple[tuple[int, ...], float]]:
    """Return every allowed sequence with its score, the best first."""
    most = options.limits.bounds(requested)[1]
    candidates = [tokens for tokens in sequences(table.vocabulary, most) if allowed(tokens, requested, options)]
    return sorted(
        ((tokens, scored(table, sentence, tokens, requested, options)) for tokens in candidates),
        key=lambda pair: -pair[1],
    )


def scored(
    table: Table, sentence: int, tokens: Sequence[int], requested: SentenceOptions, options: SearchOptions
) -> float:
    """Return the score of a sequence by the formulas of the paper, in plain floats."""
    length = len(tokens) + 1
    base = (5 + length) / 6 if options.normalise == "gnmt" else length
    score = sum(forced(table, sentence, tokens)) / math.pow(base, options.length_penalty)
    if options.coverage_penalty:
        received = [0.0] * requested.source_length
        for position in range(length):
            history = (table.seed, sentence, BEGIN, *tokens[:position])
            exponentials = [math.exp(logit) for logit in numbers((*history, ATTENTION), requested.source_length, 2.0)]
            received = [total + value / sum(exponentials) for total, value in zip(received, exponentials, strict=True)]
        score += options.coverage_penalty * sum(math.log(min(total, 1.0)) for total in received)
    return score


def assert_same_hypotheses(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Compare the n-best lists of all sentences: equal tokens, and scores up to rounding."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [(one.tokens, one.truncated) for one in ours] == [(other.tokens, other.truncated) for other in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert (one.score, one.logprob) == pytest.approx((other.score, other.logprob))
            assert one.token_logprobs == pytest.approx(other.token_logprobs)
