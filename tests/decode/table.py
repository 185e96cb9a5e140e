"""A full stepper made of numbers alone, and the plainest search there is: look at every sequence."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from regard.decode import SearchOptions, SentenceOptions

BEGIN, END = 0, 1
LOOK = -7
"""Behind a history, what makes its numbers those of where it looks."""


@dataclass(frozen=True)
class TableState:
    """What each row has read, its sentence first."""

    histories: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=100_000)
def numbers(history: tuple[int, ...], size: int, sharpness: float) -> tuple[float, ...]:
    """Numbers that depend on every token of a history, and on nothing else."""
    generator = torch.Generator().manual_seed(hash((history, size)) % 2**62)
    return tuple((torch.randn(size, generator=generator, dtype=torch.float64) * sharpness).tolist())


class Table:
    """Log-probabilities that depend on the whole history; sentence b begins with (seed, b)."""

    def __init__(self, vocabulary: int = 5, seed: int = 0, sharpness: float = 1.5, sources: Sequence[int] = ()) -> None:
        self.vocabulary, self.seed, self.sharpness = vocabulary, seed, sharpness
        self.sources = tuple(sources)
        self.steps, self.asked = 0, 0

    def start(self, sentences: Sequence[int], beams: int) -> TableState:
        return TableState(tuple((self.seed, sentence) for sentence in sentences for _ in range(beams)))

    def rows(self, histories: Sequence[tuple[int, ...]]) -> Tensor:
        said = [numbers(history, self.vocabulary, self.sharpness) for history in histories]
        return torch.tensor(said, dtype=torch.float64).log_softmax(1)

    def logprobs(self, history: tuple[int, ...]) -> Tensor:
        return self.rows([history])[0]

    def step(self, tokens_R: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        assert tokens_R.shape == (len(state.histories),)
        after = tuple((*past, token) for past, token in zip(state.histories, tokens_R.tolist(), strict=True))
        self.steps, self.asked = self.steps + 1, self.asked + len(after)
        return self.rows(after), TableState(after)

    def select(self, state: TableState, rows_R: Tensor) -> TableState:
        return TableState(tuple(state.histories[row] for row in rows_R.tolist()))

    def join(self, states: Sequence[TableState]) -> TableState:
        return TableState(tuple(history for state in states for history in state.histories))

    def attention(self, state: TableState) -> Tensor:
        weights = torch.zeros(len(state.histories), max(self.sources, default=0), dtype=torch.float64)
        for row, history in enumerate(state.histories):
            size = self.sources[history[1]]
            weights[row, :size] = torch.tensor(numbers((*history, LOOK), size, 2.0), dtype=torch.float64).softmax(0)
        return weights


def forced(table: Table, sentence: int, tokens: Sequence[int]) -> list[float]:
    """The log-probability of each token and of the end, read off one by one."""
    history: tuple[int, ...] = (table.seed, sentence, BEGIN)
    said = []
    for token in (*tokens, END):
        each = numbers(history, table.vocabulary, table.sharpness)
        said.append(each[token] - math.log(sum(map(math.exp, each))))
        history = (*history, token)
    return said


def sequences(vocabulary: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every sequence of up to so many tokens, the end symbol not among them."""
    tokens = [token for token in range(vocabulary) if token != END]
    for length in range(most + 1):
        yield from itertools.product(tokens, repeat=length)


def stands_in(phrase: Sequence[int], tokens: Sequence[int], behind: int = 0) -> bool:
    """Whether a phrase stands in a sequence so that its last token is not among the first ones."""
    ends = range(max(len(phrase), behind + 1), len(tokens) + 1)
    return any(tuple(tokens[end - len(phrase) : end]) == tuple(phrase) for end in ends)


def allowed(tokens: Sequence[int], requested: SentenceOptions, options: SearchOptions) -> bool:
    """Whether a sequence is one that may be found, read off it as a person would."""
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
        and not any(stands_in(phrase, tokens, start) for phrase in requested.avoid)
        and all(stands_in(phrase, tokens) for phrase in requested.constraints)
    )


def enumerated(
    table: Table, sentence: int, requested: SentenceOptions, options: SearchOptions
) -> list[tuple[tuple[int, ...], float]]:
    """Every sequence that may be found, with its score, the best first."""
    most = options.limits.bounds(requested)[1]
    every = [each for each in sequences(table.vocabulary, most) if allowed(each, requested, options)]
    return sorted(
        ((each, scored(table, sentence, each, requested, options)) for each in every), key=lambda pair: -pair[1]
    )


def scored(
    table: Table, sentence: int, tokens: Sequence[int], requested: SentenceOptions, options: SearchOptions
) -> float:
    """The score of one sequence, from the formulas of the paper and plain floats."""
    length = len(tokens) + 1
    base = (5 + length) / 6 if options.normalise == "gnmt" else length
    score = sum(forced(table, sentence, tokens)) / math.pow(base, options.length_penalty)
    if options.coverage_penalty:
        received = [0.0] * requested.source_length
        for place in range(length):
            history = (table.seed, sentence, BEGIN, *tokens[:place])
            raised = [math.exp(each) for each in numbers((*history, LOOK), requested.source_length, 2.0)]
            received = [one + each / sum(raised) for one, each in zip(received, raised, strict=True)]
        score += options.coverage_penalty * sum(math.log(min(each, 1.0)) for each in received)
    return score
