"""A plain search by a `Runner`: many steps in a row, and only now and then a look at who is done."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from regard.decode.boards import BeamBoard, StraightBoard
from regard.decode.greedy import GLANCE
from regard.decode.hypothesis import Hypothesis
from regard.decode.options import Limits, Options, Wish
from regard.decode.stepper import Runner, State

FEW = 4
"""Sentences move to a smaller board when only one in so many is left."""


@torch.inference_mode()
def run(
    runner: Runner[State], state: State, wishes: Sequence[Wish], options: Options, device: torch.device | str
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, the best first, in the order of the wishes, which ask for nothing."""

    def make(lines: int, steps: int) -> StraightBoard | BeamBoard:
        kind = StraightBoard if options.beam == 1 else BeamBoard
        return kind(lines, steps, options, device)

    bounds = [options.limits.of(wish) for wish in wishes]
    key = replace(options, limits=Limits())  # bounds are the sentences' own, all else is the board's
    found: list[list[Hypothesis]] = [[] for _ in wishes]
    numbers, kept, board, steps = list(range(len(wishes))), list(range(len(wishes))), None, 0
    while numbers:
        left = max(bounds[number][1] for number in numbers) + 1 - steps
        state = runner.ready(state, min(GLANCE, left))
        here = runner.board(state, key, make)
        if board is None:
            here.begin(bounds)
        elif here is not board:
            here.take(board, torch.tensor(kept, device=device))
        board, state = here, runner.run(state, here, min(GLANCE, left))
        steps += min(GLANCE, left)
        over, kept = _parted(board, [bounds[number] for number in numbers], steps, last=left <= GLANCE)
        if over:
            for at, each in zip(over, board.hypotheses(over, [bounds[numbers[at]] for at in over], steps), strict=True):
                found[numbers[at]] = each
            numbers = [numbers[at] for at in kept]
            if numbers:
                rows = [at * options.beam + row for at in kept for row in range(options.beam)]
                state = runner.select(state, torch.tensor(rows, device=device))
    return found


def _parted(
    board: StraightBoard | BeamBoard, bounds: Sequence[tuple[int, int]], steps: int, last: bool
) -> tuple[list[int], list[int]]:
    """The lines that leave after so many steps, and those that stay: all, while many are not done."""
    every = list(range(len(bounds)))
    if last:
        return every, []
    if steps <= min(least for least, _ in bounds):  # nobody can be done, so nobody is waited for
        return [], every
    done = board.done_B[: len(bounds)].tolist()
    kept = [at for at in every if not done[at]]
    return ([at for at in every if done[at]], kept) if FEW * len(kept) <= len(every) else ([], every)
