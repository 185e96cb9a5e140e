"""Greedy search of a whole batch: a step is the stepper, the rules, and the most probable token of each row.

It finds what `IncrementalSearch` finds with a beam of one, without a trellis, candidates and ranking, which cost a
third of the time with a small model on a CPU. The rules are those of every other search.
"""

import math
from collections.abc import Sequence
from typing import Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.beams import Beams
from regard.decode.candidates import greatest_among
from regard.decode.hypothesis import Hypothesis
from regard.decode.inference import in_inference_mode
from regard.decode.options import SearchOptions, SentenceOptions, begin_of
from regard.decode.ranking import length_divisors
from regard.decode.rules import RuleSet
from regard.decode.stepper import State, Stepper, TopKStepper
from regard.decode.topk import greatest

CHECK_INTERVAL = 8
"""Steps after which the host asks a device which sentences are finished, and waits for it. A CPU is asked each step."""


class GreedySearch(Generic[State]):
    """A greedy search in progress: one row for each sentence, all of the same length."""

    def __init__(
        self,
        stepper: Stepper[State],
        state: State,
        sentences: Sequence[SentenceOptions],
        options: SearchOptions,
        device: torch.device | str = "cpu",
    ) -> None:
        """Begin with a state that has one row for each sentence."""
        self.stepper, self.state, self.options, self.device = stepper, state, options, torch.device(device)
        self.topk_stepper = stepper if isinstance(stepper, TopKStepper) else None
        self.sentences = list(sentences)
        self.numbers = list(range(len(sentences)))
        self.bounds = [options.limits.bounds(sentence) for sentence in sentences]
        self.longest = max(maximum for _, maximum in self.bounds)
        self.divisors = length_divisors(self.longest + 1, options)
        begin = [begin_of(sentence, options) for sentence in sentences]
        self.token_R = torch.tensor(begin, device=device)
        self.done_R = torch.zeros(len(sentences), dtype=torch.bool, device=device)
        self.steps = 0
        self.beams = Beams.begin((len(sentences), 1, 1), begin, True, device)
        """Only lengths and history are kept up to date, for the rules."""
        self._make_rules()
        self._history: list[tuple[Tensor, Tensor]] = []
        """Tokens and log-probabilities of all rows, step by step; the first entry may hold many steps."""

    @in_inference_mode
    def advance(self) -> None:
        """Add one token to every sentence."""
        spare = self.rules.spare
        # Where the rules may forbid `spare` tokens, the best allowed one is among the 1 + spare best.
        if self.topk_stepper is not None and spare is not None and 1 + spare <= self.topk_stepper.max_top_k:
            logprob_RK, token_RK, self.state = self.topk_stepper.top_k(self.token_R, self.state, 1 + spare)
            logprob_RK = self.rules.forbid_listed(logprob_RK, token_RK, self.beams)
            logprob_R, self.token_R = (
                greatest_among(logprob_RK, token_RK) if spare else (logprob_RK[:, 0], token_RK[:, 0])
            )
        else:
            logprobs_RV, self.state = self.stepper.step(self.token_R, self.state)
            self.rules.forbid(logprobs_RV, self.beams)
            logprob_R, self.token_R = greatest(logprobs_RV)
        self._history.append((self.token_R, logprob_R))
        self.done_R |= self.token_R == self.options.end
        self.beams.append(self.token_R[:, None], self.beams.total_BW)
        self.steps += 1

    @in_inference_mode
    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """Return finished sentences by number, and drop them; they stay while they are few."""
        last = self.steps > self.longest
        if not last and self.device.type != "cpu" and self.steps % CHECK_INTERVAL:
            return []
        done = self.done_R.tolist()
        if not last and sum(done) < max(1, len(done) // 8):
            return []
        leaving = [row for row, is_done in enumerate(done) if is_done or last]
        staying = [row for row, is_done in enumerate(done) if not is_done and not last]
        token_RT, logprob_RT = (torch.column_stack(tables) for tables in zip(*self._history, strict=True))
        hypotheses = self._hypotheses(leaving, token_RT, logprob_RT)
        self.numbers = [self.numbers[row] for row in staying]
        self.sentences = [self.sentences[row] for row in staying]
        if staying:
            rows_R = torch.tensor(staying, device=self.device)
            self.state = self.stepper.select(self.state, rows_R)
            self.token_R, self.done_R = self.token_R[rows_R], self.done_R[rows_R]
            self._history = [(token_RT[rows_R], logprob_RT[rows_R])]
            self.beams = self.beams.select(rows_R)
            self._make_rules()
        return hypotheses

    def _make_rules(self) -> None:
        count = len(self.sentences)
        self.rules = RuleSet(self.sentences, [self.steps] * count, [self.options] * count, self.device)
        if self.rules.looks_back:
            self.beams.keep_history(self.longest + 2)

    def _hypotheses(
        self, rows: list[int], token_RT: Int[Tensor, "R T"], logprob_RT: Float[Tensor, "R T"]
    ) -> list[tuple[int, list[Hypothesis]]]:
        """Return the hypotheses of some rows, with the numbers of their sentences."""
        rows_N = torch.tensor(rows, device=self.device)
        tokens, logprobs = token_RT[rows_N].tolist(), logprob_RT[rows_N].double().tolist()
        numbers = [self.numbers[row] for row in rows]
        return [
            (number, hypothesis_of(ids, values, self.bounds[number][1], self.divisors, self.options.end))
            for number, ids, values in zip(numbers, tokens, logprobs, strict=True)
        ]


def hypothesis_of(
    tokens: list[int], logprobs: list[float], maximum: int, divisors: Sequence[float], end: int
) -> list[Hypothesis]:
    """Return the hypothesis up to the first end symbol, which is there; none if everything was forbidden at a step."""
    length = tokens.index(end)
    token_logprobs = tuple(logprobs[: length + 1])
    total = sum(token_logprobs)
    check_number(total)
    if total == -math.inf:
        return []
    return [Hypothesis(tuple(tokens[:length]), total / divisors[length + 1], total, token_logprobs, length >= maximum)]


def check_number(score: float) -> None:
    """Raise a `ValueError` if a score is not a number."""
    if math.isnan(score):
        raise ValueError("the model's log-probabilities are NaN; check its weights, or use a higher precision")
