"""What may not come next: each rule sets the log-probabilities of forbidden tokens to minus infinity.

The others stay what the stepper said: a rule takes choices away, it does not change what a choice is worth.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.decode.live import Live
from regard.decode.options import Options, Wish


class Rule(Protocol):
    """Forbids tokens, in place."""

    looks_back: bool
    """Whether it reads the tokens a hypothesis already has."""

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid what may not come next in each row."""
        ...


class Banned:
    """Some ids never appear."""

    looks_back = False

    def __init__(self, ids: Sequence[int], device: torch.device | str) -> None:
        """These ids."""
        self.ids = torch.tensor(ids, device=device)

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid them everywhere."""
        logprobs_RV.index_fill_(1, self.ids, -torch.inf)


class Lengths:
    """No end before a hypothesis is long enough; nothing but the end where there is room for no other token."""

    looks_back = False

    def __init__(
        self, bounds: Sequence[tuple[int, int]], lengths: Sequence[int], end: int, device: torch.device | str
    ) -> None:
        """The fewest and the most tokens of each beam, and how many it has now."""
        least, most = zip(*bounds, strict=True)
        self.least_B, self.most_B = torch.tensor(least, device=device), torch.tensor(most, device=device)
        self.end = end
        # So many steps from now every beam has its fewest, and none has its most: until or from then there is
        # nothing to do, and no device need be asked.
        self.short = max(one - length for one, length in zip(least, lengths, strict=True))
        self.free = min(one - length for one, length in zip(most, lengths, strict=True))

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid the end, or everything else."""
        rows = live.total_BW.shape[1]
        if self.short > 0:
            logprobs_RV[:, self.end].masked_fill_(_rows(live.length_B < self.least_B, rows), -torch.inf)
        if self.free <= 0:
            full_R = _rows(live.length_B >= self.most_B, rows)
            end_R = logprobs_RV[:, self.end].clone()
            logprobs_RV.masked_fill_(full_R[:, None], -torch.inf)
            logprobs_RV[:, self.end] = end_R
        self.short, self.free = self.short - 1, self.free - 1


def _rows(beams_B: Bool[Tensor, " B"], rows: int) -> Bool[Tensor, " R"]:
    """What is said of beams, said of their rows."""
    return beams_B[:, None].expand(-1, rows).flatten()


def rules(wishes: Sequence[Wish], lengths: Sequence[int], options: Options, device: torch.device | str) -> list[Rule]:
    """The rules for beams with these wishes and so many tokens so far; only what was asked for costs anything."""
    found: list[Rule] = []
    if options.banned:
        found.append(Banned(options.banned, device))
    found.append(Lengths([options.limits.of(wish) for wish in wishes], lengths, options.end, device))
    return found
