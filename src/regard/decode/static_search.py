"""Greedy and plain beam search in tensors of fixed shape, which a `MultiStepper` can capture in a CUDA graph.

They find what `GreedySearch` and `IncrementalSearch` find, by operations that are the same in every step: nothing is
skipped because it is not needed, and lines without a sentence are computed too. All sentences have the same length.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.decode.beams import Beams
from regard.decode.candidates import Candidates, best_candidates
from regard.decode.greedy import CHECK_INTERVAL, check_number, hypothesis_of
from regard.decode.hypothesis import Hypothesis
from regard.decode.options import LengthLimits, SearchOptions, SentenceOptions, begin_of
from regard.decode.ranking import Ranker, length_divisors
from regard.decode.stepper import MultiStepper, State
from regard.decode.topk import greatest

Bounds = Sequence[tuple[int, int]]
"""Minimum and maximum length of each sentence."""

SHRINK = 4
"""The search moves to fewer lines when only one in so many sentences is left."""


@torch.inference_mode()
def search_statically(
    stepper: MultiStepper[State],
    state: State,
    sentences: Sequence[SentenceOptions],
    options: SearchOptions,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence; only for rules and selectors that are `static`."""

    def make(lines: int, steps: int) -> StaticGreedySearch | StaticBeamSearch:
        kind = StaticGreedySearch if options.beam == 1 else StaticBeamSearch
        return kind(lines, steps, options, device)

    bounds = [options.limits.bounds(sentence) for sentence in sentences]
    begin = [begin_of(sentence, options) for sentence in sentences]
    # Bounds belong to the sentences; everything else is captured.
    key = replace(options, limits=LengthLimits())
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    numbers, staying, running, steps = list(range(len(sentences))), list(range(len(sentences))), None, 0
    while numbers:
        # One more than the maximum length, because a step appends the end symbol.
        remaining = max(bounds[number][1] for number in numbers) + 1 - steps
        state = stepper.reserve(state, min(CHECK_INTERVAL, remaining))
        # The tables of a search belong to the tensors of the state, over which steps are captured. If the stepper has
        # moved the sentences to other tensors, for more steps or for fewer lines, the search moves to their tables.
        search = stepper.static_search(state, key, make)
        if running is None:
            search.begin(bounds, begin)
        elif search is not running:
            search.take(running, torch.tensor(staying, device=device))
        running, state = search, stepper.run_steps(state, search, min(CHECK_INTERVAL, remaining))
        steps += min(CHECK_INTERVAL, remaining)
        own_bounds = [bounds[number] for number in numbers]
        leaving, staying = _leaving(running, own_bounds, steps, last=remaining <= CHECK_INTERVAL)
        if leaving:
            hypotheses = running.hypotheses(leaving, [own_bounds[line] for line in leaving], steps)
            for line, best in zip(leaving, hypotheses, strict=True):
                results[numbers[line]] = best
            numbers = [numbers[line] for line in staying]
            if numbers:
                rows = [line * options.beam + row for line in staying for row in range(options.beam)]
                state = stepper.select(state, torch.tensor(rows, device=device))
    return results


def _leaving(
    running: "StaticGreedySearch | StaticBeamSearch", bounds: Bounds, steps: int, last: bool
) -> tuple[list[int], list[int]]:
    """Return the lines that leave after so many steps, and those that stay; while many are unfinished, all stay."""
    lines = list(range(len(bounds)))
    if last:
        return lines, []
    if steps <= min(least for least, _ in bounds):  # no sentence can be finished, so the device is not asked
        return [], lines
    done = running.done_B[: len(bounds)].tolist()
    staying = [line for line in lines if not done[line]]
    return ([line for line in lines if done[line]], staying) if SHRINK * len(staying) <= len(lines) else ([], lines)


class StaticLimits:
    """Banned tokens, minimum and maximum lengths, in tensors of fixed shape."""

    def __init__(self, lines: int, options: SearchOptions, device: torch.device | str) -> None:
        """Make room for the bounds of so many lines."""
        self.end = options.end
        self.banned = torch.tensor(options.banned, device=device) if options.banned else None
        self.minimum_B, self.maximum_B = (torch.zeros(lines, dtype=torch.int64, device=device) for _ in range(2))
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        """Number of steps so far."""

    def begin(self, bounds: Bounds) -> None:
        """Begin with sentences that have these bounds; lines without a sentence end at once."""
        self.step.zero_()
        filled = [*bounds, *[(0, 0)] * (self.minimum_B.shape[0] - len(bounds))]
        bounds_BK = torch.tensor(filled, device=self.step.device)
        self.minimum_B.copy_(bounds_BK[:, 0])
        self.maximum_B.copy_(bounds_BK[:, 1])

    def forbid(self, logprobs_RV: Float[Tensor, "R V"]) -> Float[Tensor, " R"]:
        """Forbid banned tokens and early ends, in place; return the log-probability of the end symbol before that."""
        if self.banned is not None:
            logprobs_RV.index_fill_(1, self.banned, -torch.inf)
        end_R = logprobs_RV[:, self.end].clone()
        short_B1 = self.short_B[:, None]
        short_R = short_B1.expand(-1, end_R.shape[0] // short_B1.shape[0]).flatten()
        logprobs_RV[:, self.end].masked_fill_(short_R, -torch.inf)
        return end_R

    @property
    def short_B(self) -> Bool[Tensor, " B"]:
        """Whether a line is below its minimum length."""
        return self.step < self.minimum_B

    @property
    def full_B(self) -> Bool[Tensor, " B"]:
        """Whether a line has its maximum length."""
        return self.step >= self.maximum_B

    def take(self, other: "StaticLimits", lines_B: Int[Tensor, " B"]) -> None:
        """Continue with these lines of another search."""
        self.step.copy_(other.step)
        for own, others in ((self.minimum_B, other.minimum_B), (self.maximum_B, other.maximum_B)):
            own.zero_()
            own[: lines_B.shape[0]] = others[lines_B]


class StaticGreedySearch:
    """Greedy search: every line continues with its most probable token."""

    def __init__(self, lines: int, steps: int, options: SearchOptions, device: torch.device | str) -> None:
        """Make room for so many lines and steps."""
        self.options, self.limits = options, StaticLimits(lines, options, device)
        self.token_R = torch.zeros(lines, dtype=torch.int64, device=device)
        self.done_B = torch.zeros(lines, dtype=torch.bool, device=device)
        self.token_TB = torch.zeros(steps, lines, dtype=torch.int64, device=device)
        self.logprob_TB = torch.zeros(steps, lines, dtype=torch.float64, device=device)

    @property
    def buffers(self) -> Sequence[Tensor]:
        """All tensors that a step changes."""
        return self.token_R, self.done_B, self.token_TB, self.logprob_TB, self.limits.step

    def begin(self, bounds: Bounds, begin: Sequence[int]) -> None:
        """Begin with sentences that have these bounds and begin tokens."""
        self.limits.begin(bounds)
        self.token_R.fill_(self.options.begin)
        self.token_R[: len(begin)] = torch.tensor(begin, dtype=torch.int64, device=self.token_R.device)
        self.done_B.zero_()

    def take(self, other: "StaticGreedySearch", lines_B: Int[Tensor, " B"]) -> None:
        """Continue with these lines of another search."""
        count, steps = lines_B.shape[0], min(self.token_TB.shape[0], other.token_TB.shape[0])
        self.limits.take(other.limits, lines_B)
        self.token_R[:count], self.done_B[:count] = other.token_R[lines_B], other.done_B[lines_B]
        self.token_TB[:steps, :count] = other.token_TB[:steps, lines_B]
        self.logprob_TB[:steps, :count] = other.logprob_TB[:steps, lines_B]

    def advance(self, logprobs_RV: Float[Tensor, "R V"]) -> None:
        """Append the most probable token that is allowed."""
        end_B = self.limits.forbid(logprobs_RV)
        logprob_B, token_B = greatest(logprobs_RV)
        self.append(token_B, logprob_B, end_B)

    def append(self, token_B: Int[Tensor, " B"], logprob_B: Float[Tensor, " B"], end_B: Float[Tensor, " B"]) -> None:
        """Append the most probable tokens that are allowed; a line of maximum length ends instead."""
        # A line that has ended goes on like all others; `hypotheses` reads its tokens up to the first end symbol.
        full_B = self.limits.full_B
        token_B = token_B.masked_fill(full_B, self.options.end)
        logprob_B = torch.where(full_B, torch.zeros_like(end_B) if self.options.free_cut else end_B, logprob_B)
        self.token_TB.index_copy_(0, self.limits.step, token_B[None])
        self.logprob_TB.index_copy_(0, self.limits.step, logprob_B.double()[None])
        self.token_R.copy_(token_B)
        self.done_B.logical_or_(token_B == self.options.end)
        self.limits.step.add_(1)

    def hypotheses(self, lines: list[int], bounds: Bounds, steps: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of some lines, with their bounds, after so many steps."""
        lines_B = torch.tensor(lines, device=self.token_R.device)
        tables = (table[:steps].index_select(1, lines_B).t().cpu() for table in (self.token_TB, self.logprob_TB))
        tokens, logprobs = (table.numpy().tolist() for table in tables)  # ten times as fast as torch's own tolist
        divisors = length_divisors(steps, self.options)
        maxima = [maximum for _, maximum in bounds]
        return [hypothesis_of(*line, divisors, self.options.end) for line in zip(tokens, logprobs, maxima, strict=True)]


class StaticBeamSearch:
    """Plain beam search, one beam for each line."""

    def __init__(self, lines: int, steps: int, options: SearchOptions, device: torch.device | str) -> None:
        """Make room for so many lines and steps."""
        self.options, self.limits = options, StaticLimits(lines, options, device)
        self.fresh = Beams.begin((lines, options.beam, options.ended_slots), [options.begin] * lines, False, device)
        self.held = {field.name: getattr(self.fresh, field.name).clone() for field in fields(Beams)}
        """The table of beams between steps, always in the same tensors."""
        self.beams = Beams(**self.held)
        longest = replace(options, limits=LengthLimits(maximum=steps))
        self.ranker = Ranker(self.beams, [longest] * lines, [SentenceOptions()] * lines, False, no_sync=True)
        self.ranker.first_row_B1.zero_()  # rows are counted within their beam, so that beams can move to other lines
        self.token_R = self.held["token_BW"].view(-1)
        shape = steps, lines, options.beam
        self.parent_TBW, self.token_TBW = (torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(2))
        self.logprob_TBW = torch.zeros(shape, dtype=torch.float64, device=device)

    @property
    def history(self) -> tuple[Tensor, Tensor, Tensor]:
        """For each step and row, the row it continues, its token, and the token's log-probability."""
        return self.parent_TBW, self.token_TBW, self.logprob_TBW

    @property
    def buffers(self) -> Sequence[Tensor]:
        """All tensors that a step changes."""
        return *self.held.values(), *self.history, self.limits.step

    @property
    def done_B(self) -> Tensor:
        """Whether each line is finished."""
        done_B: Tensor = self.held["done_B"]
        return done_B

    def begin(self, bounds: Bounds, begin: Sequence[int]) -> None:
        """Begin with sentences that have these bounds and begin tokens."""
        self.limits.begin(bounds)
        for name, table in self.held.items():
            table.copy_(getattr(self.fresh, name))
        self.held["token_BW"][: len(begin)] = torch.tensor(begin, dtype=torch.int64, device=self.token_R.device)[
            :, None
        ]
        divisors = length_divisors(max((maximum for _, maximum in bounds), default=0) + 1, self.options)
        limits = [divisors[maximum + 1] for _, maximum in bounds]
        limits += [divisors[1]] * (self.ranker.limit_divisor_B.shape[0] - len(limits))
        self.ranker.limit_divisor_B.copy_(torch.tensor(limits, dtype=torch.float64))

    def take(self, other: "StaticBeamSearch", lines_B: Int[Tensor, " B"]) -> None:
        """Continue with these lines of another search."""
        self.begin([], [])
        count, steps = lines_B.shape[0], min(self.token_TBW.shape[0], other.token_TBW.shape[0])
        self.limits.take(other.limits, lines_B)
        for name, table in self.held.items():
            table[:count] = other.held[name][lines_B]
        for own, others in zip(self.history, other.history, strict=True):
            own[:steps, :count] = others[:steps, lines_B]
        self.ranker.limit_divisor_B[:count] = other.ranker.limit_divisor_B[lines_B]

    def advance(self, logprobs_RV: Float[Tensor, "R V"]) -> Int[Tensor, "B W"]:
        """Continue with the best of all that the rows of a beam may continue with."""
        beams = self.beams
        end_R = self.limits.forbid(logprobs_RV)
        if self.options.free_cut:
            end_R = torch.zeros_like(end_R)
        candidates = best_candidates(logprobs_RV, beams.total_BW, 2 * beams.total_BW.shape[1])
        candidates = self._end_full_lines(candidates, beams.total_BW, end_R.double().view_as(beams.total_BW))
        layer = self.ranker.step(candidates, self.limits.step)
        for table, column_R in zip(self.history, layer, strict=True):
            table.index_copy_(0, self.limits.step, column_R.view(1, *table.shape[1:]))
        # The ranker has put new tensors into `beams`. A captured step must read and write the same memory each time, so
        # their values are copied into the tensors that are held.
        for name, table in self.held.items():
            table.copy_(getattr(beams, name))
            setattr(beams, name, table)
        self.limits.step.add_(1)
        return layer[0].view_as(beams.total_BW)

    def _end_full_lines(
        self, candidates: Candidates, total_BW: Float[Tensor, "B W"], end_BW: Float[Tensor, "B W"]
    ) -> Candidates:
        """Replace the candidates of lines of maximum length by the ends of all their rows.

        Both sets of candidates are computed for every line, because a step may not depend on what is on the device.
        """
        missing = candidates.token_BK.shape[1] - total_BW.shape[1]
        sum_BW, row_BW = (total_BW + end_BW).sort(dim=1, descending=True, stable=True)
        ends = Candidates(
            pad(row_BW, (0, missing)),
            torch.full_like(candidates.token_BK, self.options.end),
            pad(end_BW.gather(1, row_BW), (0, missing)),
            pad(sum_BW, (0, missing), value=-torch.inf),
        )
        full_B1 = self.limits.full_B[:, None]
        pairs = zip(ends.tables(), candidates.tables(), strict=True)
        return Candidates(*(torch.where(full_B1, end, other) for end, other in pairs))

    def hypotheses(self, lines: list[int], bounds: Bounds, steps: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of some lines, with their bounds, after so many steps."""
        lines_B = torch.tensor(lines, device=self.token_R.device)
        parent_TBW, token_TBW, logprob_TBW = (table[:steps, lines_B].cpu().numpy() for table in self.history)
        names = ("ended_score_BN", "ended_total_BN", "ended_logprob_BN", "ended_layer_BN", "ended_row_BN")
        score_BN, total_BN, end_BN, length_BN, row_BN = (self.held[name][lines_B].cpu().numpy() for name in names)
        tokens, logprobs = np.zeros((2, *score_BN.shape, steps))
        line_B1 = np.arange(len(lines))[:, None]
        # Follow the back-pointers of all ended hypotheses together, from the last step to the first. A hypothesis that
        # ended earlier stays at its row until its last step is reached; what is read until then is cut off below.
        for step in reversed(range(steps)):
            tokens[:, :, step] = token_TBW[step, line_B1, row_BN]
            logprobs[:, :, step] = logprob_TBW[step, line_B1, row_BN]
            row_BN = np.where(step < length_BN, parent_TBW[step, line_B1, row_BN], row_BN)
        check_number(float(score_BN.sum()))
        tables = (x.tolist() for x in (score_BN, total_BN, end_BN, length_BN, tokens.astype(np.int64), logprobs))
        return [
            [
                Hypothesis(tuple(ids[:length]), score, total, (*values[:length], end), length >= maximum)
                for score, total, end, length, ids, values in zip(*line, strict=True)
                if score != -math.inf
            ]
            for (_, maximum), *line in zip(bounds, *tables, strict=True)
        ]
