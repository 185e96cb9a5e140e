"""Greedy search of a plain batch, with nothing in a step but the step, its most probable token, and whether that ends.

It finds what `Search` finds with a beam of one; it is what a beam's machinery costs that is left out.
"""

import math
from collections.abc import Sequence
from typing import Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.hypothesis import Hypothesis
from regard.decode.options import Options, Wish
from regard.decode.penalty import divisor
from regard.decode.stepper import Shortlister, State, Stepper
from regard.decode.topk import greatest

GLANCE = 8
"""Steps between two looks at what a device has done: each look waits for it. A CPU is looked at every step."""


def is_plain(wishes: Sequence[Wish], options: Options) -> bool:
    """Whether these sentences ask for nothing but the most probable."""
    if options.sampling is not None or options.coverage_penalty or options.no_repeat or options.groups > 1:
        return False
    return not any(wish.prefix or wish.phrases or wish.avoid for wish in wishes)


class GreedySearch(Generic[State]):
    """Sentences on their way, one row each, all equally far."""

    def __init__(
        self,
        stepper: Stepper[State],
        state: State,
        wishes: Sequence[Wish],
        options: Options,
        device: torch.device | str = "cpu",
    ) -> None:
        """Begin with a state of one row for each wish."""
        self.stepper, self.state, self.options, self.device = stepper, state, options, torch.device(device)
        self.shortlister = stepper if isinstance(stepper, Shortlister) else None
        self.numbers = list(range(len(wishes)))
        self.bounds = [options.limits.of(wish) for wish in wishes]
        self.least, self.most = max(least for least, _ in self.bounds), min(most for _, most in self.bounds)
        self.longest = max(most for _, most in self.bounds)
        self.divisors: list[float] = divisor(torch.arange(self.longest + 2), options).tolist()
        self.banned = torch.tensor(options.banned, device=device) if options.banned else None
        self.token_R = torch.full((len(wishes),), options.begin, device=device)
        self.done_R = torch.zeros(len(wishes), dtype=torch.bool, device=device)
        self.steps = 0
        self._said: list[tuple[Tensor, Tensor]] = []
        """Tokens and log-probabilities of all that are still there, step by step; tables of earlier steps lead."""

    @torch.inference_mode()
    def advance(self) -> None:
        """One more token for every sentence."""
        # As many more as might be forbidden: what is left then has the best in it.
        spare = len(self.options.banned) + (self.steps < self.least)
        if self.shortlister is not None and self.steps < self.most and 1 + spare <= self.shortlister.listed:
            logprob_RK, token_RK, self.state = self.shortlister.top(self.token_R, self.state, 1 + spare)
            logprob_R, self.token_R = self._best(logprob_RK, token_RK) if spare else (logprob_RK[:, 0], token_RK[:, 0])
        else:
            logprobs_RV, self.state = self.stepper.step(self.token_R, self.state)
            self._forbid(logprobs_RV)
            logprob_R, self.token_R = greatest(logprobs_RV)
        self._said.append((self.token_R, logprob_R))
        self.done_R |= self.token_R == self.options.end
        self.steps += 1

    @torch.inference_mode()
    def leave(self) -> list[tuple[int, list[Hypothesis]]]:
        """The sentences that are done, by number; while few are, they stay."""
        last = self.steps > self.longest
        if not last and self.device.type != "cpu" and self.steps % GLANCE:
            return []
        done = self.done_R.tolist()
        if not last and sum(done) < max(1, len(done) // 8):
            return []
        over = [row for row, is_done in enumerate(done) if is_done or last]
        kept = [row for row, is_done in enumerate(done) if not is_done and not last]
        told = torch.column_stack([tokens for tokens, _ in self._said]), torch.column_stack([p for _, p in self._said])
        hypotheses = self._hypotheses(over, told)
        self.numbers = [self.numbers[row] for row in kept]
        if kept:
            rows_R = torch.tensor(kept, device=self.device)
            self.state = self.stepper.select(self.state, rows_R)
            self.token_R, self.done_R = self.token_R[rows_R], self.done_R[rows_R]
            self._said = [(told[0][rows_R], told[1][rows_R])]
        return hypotheses

    def _best(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"]
    ) -> tuple[Float[Tensor, " R"], Int[Tensor, " R"]]:
        """The greatest of a list that may be."""
        for token in self.options.banned:
            logprob_RK = logprob_RK.masked_fill(token_RK == token, -torch.inf)
        if self.steps < self.least:
            early_RK = (token_RK == self.options.end) & self._short_R()[:, None]
            logprob_RK = logprob_RK.masked_fill(early_RK, -torch.inf)
        logprob_R, at_R = logprob_RK.max(1)
        return logprob_R, token_RK.gather(1, at_R[:, None])[:, 0]

    def _short_R(self) -> Bool[Tensor, " R"]:
        """Which sentences may not end yet."""
        return torch.tensor([self.steps < self.bounds[number][0] for number in self.numbers], device=self.device)

    def _forbid(self, logprobs_RV: Float[Tensor, "R V"]) -> None:
        """Banned tokens, no end too early, and nothing but the end where there is no room."""
        if self.banned is not None:
            logprobs_RV.index_fill_(1, self.banned, -torch.inf)
        if self.steps < self.least:
            logprobs_RV[:, self.options.end].masked_fill_(self._short_R(), -torch.inf)
        if self.steps >= self.most:
            full_R = torch.tensor([self.steps >= self.bounds[number][1] for number in self.numbers], device=self.device)
            end_R = logprobs_RV[:, self.options.end].clone()
            logprobs_RV.masked_fill_(full_R[:, None], -torch.inf)
            logprobs_RV[:, self.options.end] = end_R

    def _hypotheses(
        self, rows: list[int], told: tuple[Int[Tensor, "R T"], Float[Tensor, "R T"]]
    ) -> list[tuple[int, list[Hypothesis]]]:
        """What was said in some rows up to their ends, with the numbers of their sentences."""
        rows_N = torch.tensor(rows, device=self.device)
        tokens, logprobs = told[0][rows_N].tolist(), told[1][rows_N].double().tolist()
        numbers = [self.numbers[row] for row in rows]
        return [
            (number, said(ids, each, self.bounds[number][1], self.divisors, self.options.end))
            for number, ids, each in zip(numbers, tokens, logprobs, strict=True)
        ]


def said(tokens: list[int], logprobs: list[float], most: int, divisors: list[float], end: int) -> list[Hypothesis]:
    """What was said up to the end, which is there; nothing, if all was forbidden at some place."""
    length = tokens.index(end)
    each = tuple(logprobs[: length + 1])
    total = sum(each)
    if math.isnan(total):
        raise ValueError("the stepper gave log-probabilities that are not numbers; look at the model's weights")
    if total == -math.inf:
        return []
    return [Hypothesis(tuple(tokens[:length]), total / divisors[length + 1], total, each, length >= most)]
