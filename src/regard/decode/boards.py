"""Searches in tables of fixed shape, which a `Runner` can capture and repeat: greedy, and a plain beam.

They find what `GreedySearch` and `Search` find, by operations that are the same in every step: nothing is left out that
happens not to be needed, and lines without a sentence are computed as well. All sentences are equally far.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.decode.choose import Candidates, best
from regard.decode.greedy import said
from regard.decode.hypothesis import Hypothesis
from regard.decode.judge import Judge
from regard.decode.live import Live
from regard.decode.options import Limits, Options, Wish
from regard.decode.penalty import divisor
from regard.decode.topk import greatest

Bounds = Sequence[tuple[int, int]]
"""The fewest and the most tokens of each sentence."""


class Limit:
    """What no search may do: banned tokens, an end too early, anything but an end where there is no room."""

    def __init__(self, lines: int, options: Options, device: torch.device | str) -> None:
        """Room for the bounds of so many lines."""
        self.end = options.end
        self.banned = torch.tensor(options.banned, device=device) if options.banned else None
        self.least_B, self.most_B = (torch.zeros(lines, dtype=torch.int64, device=device) for _ in range(2))
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        """How many steps there have been."""

    def begin(self, bounds: Bounds) -> None:
        """Begin with sentences that have these bounds; other lines end at once."""
        self.step.zero_()
        filled = [*bounds, *[(0, 0)] * (self.least_B.shape[0] - len(bounds))]
        bounds_BK = torch.tensor(filled, device=self.step.device)
        self.least_B.copy_(bounds_BK[:, 0])
        self.most_B.copy_(bounds_BK[:, 1])

    def forbid(self, logprobs_RV: Float[Tensor, "R V"]) -> Float[Tensor, " R"]:
        """Forbid banned tokens and ends that come too early, in place; gives what an end is worth where it is due."""
        if self.banned is not None:
            logprobs_RV.index_fill_(1, self.banned, -torch.inf)
        end_R = logprobs_RV[:, self.end].clone()
        short_B1 = self.short_B[:, None]
        short_R = short_B1.expand(-1, end_R.shape[0] // short_B1.shape[0]).flatten()
        logprobs_RV[:, self.end].masked_fill_(short_R, -torch.inf)
        return end_R

    @property
    def short_B(self) -> Bool[Tensor, " B"]:
        """Which lines may not end yet."""
        return self.step < self.least_B

    def take(self, other: "Limit", lines_B: Int[Tensor, " B"]) -> None:
        """Go on with these lines of another."""
        self.step.copy_(other.step)
        for mine, theirs in ((self.least_B, other.least_B), (self.most_B, other.most_B)):
            mine.zero_()
            mine[: lines_B.shape[0]] = theirs[lines_B]


class StraightBoard:
    """Every row goes on with its most probable token."""

    def __init__(self, lines: int, steps: int, options: Options, device: torch.device | str) -> None:
        """Room for so many lines and steps."""
        self.options, self.limit = options, Limit(lines, options, device)
        self.token_R = torch.zeros(lines, dtype=torch.int64, device=device)
        self.done_B = torch.zeros(lines, dtype=torch.bool, device=device)
        self.token_TB = torch.zeros(steps, lines, dtype=torch.int64, device=device)
        self.logprob_TB = torch.zeros(steps, lines, dtype=torch.float64, device=device)

    @property
    def tables(self) -> Sequence[Tensor]:
        """All that a step changes."""
        return self.token_R, self.done_B, self.token_TB, self.logprob_TB, self.limit.step

    def begin(self, bounds: Bounds) -> None:
        """Begin with sentences that have these bounds."""
        self.limit.begin(bounds)
        self.token_R.fill_(self.options.begin)
        self.done_B.zero_()

    def take(self, other: "StraightBoard", lines_B: Int[Tensor, " B"]) -> None:
        """Go on with these lines of another board."""
        many, steps = lines_B.shape[0], min(self.token_TB.shape[0], other.token_TB.shape[0])
        self.limit.take(other.limit, lines_B)
        self.token_R[:many], self.done_B[:many] = other.token_R[lines_B], other.done_B[lines_B]
        self.token_TB[:steps, :many] = other.token_TB[:steps, lines_B]
        self.logprob_TB[:steps, :many] = other.logprob_TB[:steps, lines_B]

    def decide(self, logprobs_RV: Float[Tensor, "R V"]) -> None:
        """Take the most probable token that is allowed."""
        end_B = self.limit.forbid(logprobs_RV)
        logprob_B, token_B = greatest(logprobs_RV)
        self.go_on(token_B, logprob_B, end_B)

    def go_on(self, token_B: Int[Tensor, " B"], logprob_B: Float[Tensor, " B"], end_B: Float[Tensor, " B"]) -> None:
        """Go on with these tokens, the most probable that are allowed; where a line is full, with its end."""
        full_B = self.limit.step >= self.limit.most_B
        token_B = token_B.masked_fill(full_B, self.options.end)
        logprob_B = torch.where(full_B, end_B, logprob_B)
        self.token_TB.index_copy_(0, self.limit.step, token_B[None])
        self.logprob_TB.index_copy_(0, self.limit.step, logprob_B.double()[None])
        self.token_R.copy_(token_B)
        self.done_B.logical_or_(token_B == self.options.end)
        self.limit.step.add_(1)

    def hypotheses(self, lines: list[int], bounds: Bounds, steps: int) -> list[list[Hypothesis]]:
        """What was found for some lines, with their bounds, after so many steps."""
        lines_B = torch.tensor(lines, device=self.token_R.device)
        tables = (table[:steps].index_select(1, lines_B).t().cpu() for table in (self.token_TB, self.logprob_TB))
        tokens, logprobs = (table.numpy().tolist() for table in tables)  # which is ten times as quick as torch's own
        divisors: list[float] = divisor(torch.arange(steps + 1), self.options).tolist()
        most = [each for _, each in bounds]
        return [said(*line, divisors, self.options.end) for line in zip(tokens, logprobs, most, strict=True)]


class BeamBoard:
    """A plain beam for each line."""

    def __init__(self, lines: int, steps: int, options: Options, device: torch.device | str) -> None:
        """Room for so many lines and steps."""
        self.options, self.limit = options, Limit(lines, options, device)
        self.fresh = Live.begin((lines, options.beam, options.places), options.begin, False, device)
        names = [field.name for field in fields(Live)]
        self.held = {name: getattr(self.fresh, name).clone() for name in names}
        """The tables between steps, always the same tensors."""
        self.live = Live(**self.held)
        most = replace(options, limits=Limits(most=steps))
        self.judge = Judge(self.live, most, [Wish()] * lines, False, blind=True)
        self.judge.first_B1.zero_()  # rows are counted within their beam here, so that beams may move
        self.token_R = self.held["token_BW"].view(-1)
        shape = steps, lines, options.beam
        self.parent_TBW, self.token_TBW = (torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(2))
        self.logprob_TBW = torch.zeros(shape, dtype=torch.float64, device=device)

    @property
    def history(self) -> tuple[Tensor, Tensor, Tensor]:
        """For each step and row the row it goes on from, its token, and the token's log-probability."""
        return self.parent_TBW, self.token_TBW, self.logprob_TBW

    @property
    def tables(self) -> Sequence[Tensor]:
        """All that a step changes."""
        return *self.held.values(), *self.history, self.limit.step

    @property
    def done_B(self) -> Tensor:
        """Which lines are done."""
        done_B: Tensor = self.held["done_B"]
        return done_B

    def begin(self, bounds: Bounds) -> None:
        """Begin with sentences that have these bounds."""
        self.limit.begin(bounds)
        for name, table in self.held.items():
            table.copy_(getattr(self.fresh, name))
        self.judge.limit_divisor_B.copy_(divisor(self.limit.most_B + 1, self.options))

    def take(self, other: "BeamBoard", lines_B: Int[Tensor, " B"]) -> None:
        """Go on with these lines of another board."""
        self.begin([])
        many, steps = lines_B.shape[0], min(self.token_TBW.shape[0], other.token_TBW.shape[0])
        self.limit.take(other.limit, lines_B)
        for name, table in self.held.items():
            table[:many] = other.held[name][lines_B]
        for mine, theirs in zip(self.history, other.history, strict=True):
            mine[:steps, :many] = theirs[:steps, lines_B]
        self.judge.limit_divisor_B[:many] = other.judge.limit_divisor_B[lines_B]

    def decide(self, logprobs_RV: Float[Tensor, "R V"]) -> Int[Tensor, "B W"]:
        """Go on with the best of all that the rows of a beam might go on with."""
        live = self.live
        end_R = self.limit.forbid(logprobs_RV)
        found = best(logprobs_RV, live.total_BW, 2 * live.total_BW.shape[1])
        found = self._ended(found, live.total_BW, end_R.double().view_as(live.total_BW))
        layer = self.judge.decide(found, self.limit.step)
        for table, column_R in zip(self.history, layer, strict=True):
            table.index_copy_(0, self.limit.step, column_R.view(1, *table.shape[1:]))
        for name, table in self.held.items():
            table.copy_(getattr(live, name))
            setattr(live, name, table)
        self.limit.step.add_(1)
        return layer[0].view_as(live.total_BW)

    def _ended(self, found: Candidates, total_BW: Float[Tensor, "B W"], end_BW: Float[Tensor, "B W"]) -> Candidates:
        """Where there is no room for more, the candidates are the ends of all rows."""
        missing = found.token_BK.shape[1] - total_BW.shape[1]
        sum_BW, row_BW = (total_BW + end_BW).sort(dim=1, descending=True, stable=True)
        ends = Candidates(
            pad(row_BW, (0, missing)),
            torch.full_like(found.token_BK, self.options.end),
            pad(end_BW.gather(1, row_BW), (0, missing)),
            pad(sum_BW, (0, missing), value=-torch.inf),
        )
        full_B1 = (self.limit.step >= self.limit.most_B)[:, None]
        pairs = zip(ends.parts(), found.parts(), strict=True)
        return Candidates(*(torch.where(full_B1, end, other) for end, other in pairs))

    def hypotheses(self, lines: list[int], bounds: Bounds, steps: int) -> list[list[Hypothesis]]:
        """What was found for some lines, with their bounds, after so many steps."""
        lines_B = torch.tensor(lines, device=self.token_R.device)
        parent_TBW, token_TBW, logprob_TBW = (table[:steps, lines_B].cpu().numpy() for table in self.history)
        names = ("score_BN", "sum_BN", "last_BN", "layer_BN", "row_BN")
        score_BN, sum_BN, last_BN, layer_BN, row_BN = (self.held[name][lines_B].cpu().numpy() for name in names)
        tokens, logprobs = np.zeros((2, *score_BN.shape, steps))
        line_B1 = np.arange(len(lines))[:, None]
        for step in reversed(range(steps)):
            tokens[:, :, step] = token_TBW[step, line_B1, row_BN]
            logprobs[:, :, step] = logprob_TBW[step, line_B1, row_BN]
            row_BN = np.where(step < layer_BN, parent_TBW[step, line_B1, row_BN], row_BN)
        if np.isnan(score_BN).any():
            raise ValueError("the stepper gave log-probabilities that are not numbers; look at the model's weights")
        parts = (each.tolist() for each in (score_BN, sum_BN, last_BN, layer_BN, tokens.astype(np.int64), logprobs))
        return [
            [
                Hypothesis(tuple(said[:length]), score, total, (*each[:length], last), length >= most)
                for score, total, last, length, said, each in zip(*line, strict=True)
                if score != -math.inf
            ]
            for (_, most), *line in zip(bounds, *parts, strict=True)
        ]
