"""What may not come next: each rule sets the log-probabilities of forbidden tokens to minus infinity.

The others stay what the stepper said: a rule takes choices away, it does not change what a choice is worth. Rules are
made anew whenever sentences leave or join, from the wishes of those that are there, one wish a beam.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.live import Live
from regard.decode.options import Options, Wish
from regard.decode.topk import top


@runtime_checkable
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

    def strike(self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"]) -> Float[Tensor, "R K"]:
        """Forbid them in a list of tokens."""
        return logprob_RK.masked_fill((token_RK[:, :, None] == self.ids).any(2), -torch.inf)


class NoRepeat:
    """No sequence of n tokens appears twice (Paulus et al. 2018, §2.5)."""

    looks_back = True

    def __init__(self, size: int) -> None:
        """Sequences of this size."""
        self.size = size

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid what followed wherever the last n - 1 tokens stood before."""
        history_RT = live.history_BWT.flatten(0, 1)
        starts = history_RT.shape[1] - self.size + 1
        if starts <= 0:
            return
        length_R = rows_of(live.length_B, live)
        tail_RT = tail(history_RT, length_R, self.size - 1)
        next_RT = history_RT[:, self.size - 1 :]
        # A place not yet written is no token; it stands where the row's length ends.
        same_RT = torch.arange(self.size - 1, history_RT.shape[1], device=length_R.device) < length_R[:, None]
        for j in range(self.size - 1):
            same_RT &= history_RT[:, j : j + starts] == tail_RT[:, j : j + 1]
        _forbid(logprobs_RV, next_RT, same_RT)


class Avoid:
    """Phrases that must not appear, other ones for each sentence."""

    looks_back = True

    def __init__(self, wishes: Sequence[Wish], device: torch.device | str) -> None:
        """The phrases of each beam, right-aligned, so that the last tokens stand in one column."""
        longest = max(len(phrase) for wish in wishes for phrase in wish.avoid)
        most = max(len(wish.avoid) for wish in wishes)
        filled = [
            [[ANY] * (longest - len(phrase)) + list(phrase) for phrase in wish.avoid]
            + [[NEVER] * longest] * (most - len(wish.avoid))
            for wish in wishes
        ]
        self.phrases_BKT = torch.tensor(filled, device=device)

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid the last token of each phrase whose other tokens have just been said."""
        phrases_RKT = rows_of(self.phrases_BKT, live)
        start_RKT, last_RK = phrases_RKT[:, :, :-1], phrases_RKT[:, :, -1]
        said_RT = tail(live.history_BWT.flatten(0, 1), rows_of(live.length_B, live), start_RKT.shape[2])
        near_RK = ((start_RKT == ANY) | (start_RKT == said_RT[:, None])).all(-1) & (last_RK != NEVER)
        _forbid(logprobs_RV, last_RK.clamp(min=0), near_RK)


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
        # So many steps from now every beam has its fewest, and none before has its most: until or from then there is
        # nothing to do, and no device need be asked.
        self.short: int = max(one - length for one, length in zip(least, lengths, strict=True))
        self.free: int = min(one - length for one, length in zip(most, lengths, strict=True))

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid the end, or everything else."""
        if self.short > 0:
            short_R = rows_of(live.length_B < self.least_B, live)
            logprobs_RV[:, self.end].masked_fill_(short_R, -torch.inf)
        if self.free <= 0:
            full_R = rows_of(live.length_B >= self.most_B, live)
            end_R = logprobs_RV[:, self.end].clone()
            logprobs_RV.masked_fill_(full_R[:, None], -torch.inf)
            logprobs_RV[:, self.end] = end_R
        self.pass_by()

    @property
    def spare(self) -> int | None:
        """How many tokens of a list might be forbidden in this step; None where all but the end is."""
        return None if self.free <= 0 else int(self.short > 0)

    def strike(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], live: Live
    ) -> Float[Tensor, "R K"]:
        """Forbid an end that comes too early in a list of tokens."""
        if self.short <= 0:
            return logprob_RK
        short_R1 = rows_of(live.length_B < self.least_B, live)[:, None]
        return logprob_RK.masked_fill((token_RK == self.end) & short_R1, -torch.inf)

    def pass_by(self) -> None:
        """One more step is over."""
        self.short, self.free = self.short - 1, self.free - 1


class Fork:
    """The groups of a sentence part where its prefix ends: each may only take its own of the most probable tokens."""

    looks_back = False

    def __init__(self, wishes: Sequence[Wish], lengths: Sequence[int], groups: int, device: torch.device | str) -> None:
        """The first group takes the most probable token, the second the next, and so on."""
        self.place_B = torch.tensor([len(wish.prefix) for wish in wishes], device=device)
        self.group_B = torch.arange(len(wishes), device=device) % groups
        self.groups = groups
        self.left = max(len(wish.prefix) - length for wish, length in zip(wishes, lengths, strict=True))

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Where the prefix ends, forbid all but one token."""
        if self.left >= 0:
            here_R = rows_of(live.length_B == self.place_B, live)
            nothing = live.total_BW.new_zeros(logprobs_RV.shape[0], 1)
            _, value_RK, _, token_RK = top(logprobs_RV, nothing, self.groups)
            mine_R = rows_of(self.group_B, live)[:, None].clamp(max=value_RK.shape[1] - 1)
            only(logprobs_RV, token_RK.gather(1, mine_R)[:, 0], value_RK.gather(1, mine_R)[:, 0], here_R)
        self.left -= 1


class Prefix:
    """Hypotheses begin with given tokens, whatever other rules say of those."""

    def __init__(self, wishes: Sequence[Wish], lengths: Sequence[int], device: torch.device | str) -> None:
        """The prefix of each beam, and how many tokens it has now."""
        longest = max(len(wish.prefix) for wish in wishes)
        filled = [list(wish.prefix) + [NEVER] * (longest + 1 - len(wish.prefix)) for wish in wishes]
        self.prefix_BT = torch.tensor(filled, device=device)
        self.left = max(len(wish.prefix) - length for wish, length in zip(wishes, lengths, strict=True))

    def token(self, live: Live) -> Int[Tensor, " R"]:
        """The token each row must go on with; `NEVER` where its prefix is over."""
        place_B1 = live.length_B.clamp(max=self.prefix_BT.shape[1] - 1)[:, None]
        return rows_of(self.prefix_BT.gather(1, place_B1)[:, 0], live)


class Rules:
    """All rules of a step, in order; a prefix goes before them all."""

    def __init__(
        self, wishes: Sequence[Wish], lengths: Sequence[int], options: Options, device: torch.device | str
    ) -> None:
        """The rules for beams with these wishes and so many tokens so far; only what was asked for costs anything."""
        self.lengths = Lengths([options.limits.of(wish) for wish in wishes], lengths, options.end, device)
        self.banned = Banned(options.banned, device) if options.banned else None
        every: list[Rule | None] = [
            self.banned,
            NoRepeat(options.no_repeat) if options.no_repeat else None,
            Avoid(wishes, device) if any(wish.avoid for wish in wishes) else None,
            self.lengths,
            Fork(wishes, lengths, options.groups, device) if options.fork else None,
        ]
        self.rules = [rule for rule in every if rule is not None]
        self.prefix = Prefix(wishes, lengths, device) if any(wish.prefix for wish in wishes) else None
        self.look_back = any(rule.looks_back for rule in self.rules)
        self.few = all(isinstance(rule, Banned | Lengths) for rule in self.rules)

    def strike(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], live: Live
    ) -> Float[Tensor, "R K"]:
        """Forbid in a list of tokens, in a step where that is enough."""
        if self.banned is not None:
            logprob_RK = self.banned.strike(logprob_RK, token_RK)
        logprob_RK = self.lengths.strike(logprob_RK, token_RK, live)
        self.lengths.pass_by()
        return logprob_RK

    @property
    def spare(self) -> int | None:
        """How many tokens might be struck from a list; None if this step needs more than striking."""
        early = self.lengths.spare
        if not self.few or early is None or (self.prefix is not None and self.prefix.left > 0):
            return None
        return early + (0 if self.banned is None else len(self.banned.ids))

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> None:
        """Forbid, in place."""
        if self.prefix is None or self.prefix.left <= 0:
            for rule in self.rules:
                rule(logprobs_RV, live)
            return
        self.prefix.left -= 1
        token_R = self.prefix.token(live)
        value_R = logprobs_RV.gather(1, token_R.clamp(min=0)[:, None])[:, 0]
        for rule in self.rules:
            rule(logprobs_RV, live)
        only(logprobs_RV, token_R.clamp(min=0), value_R, token_R != NEVER)


ANY, NEVER = -1, -2
"""In tables of tokens: what matches all, and what matches nothing."""


def rows_of(beams: Tensor, live: Live) -> Tensor:
    """What is said of beams, said of their rows."""
    return beams.repeat_interleave(live.total_BW.shape[1], 0)


def tail(history_RT: Int[Tensor, "R T"], length_R: Int[Tensor, " R"], count: int) -> Int[Tensor, "R T2"]:
    """The last tokens of each row, right-aligned; `NEVER` where it has fewer."""
    place_RT = length_R[:, None] + torch.arange(-count, 0, device=length_R.device)
    return history_RT.gather(1, place_RT.clamp(min=0)).masked_fill_(place_RT < 0, NEVER)


def only(
    logprobs_RV: Float[Tensor, "R V"],
    token_R: Int[Tensor, " R"],
    value_R: Float[Tensor, " R"],
    here_R: Bool[Tensor, " R"],
) -> None:
    """In these rows, forbid everything but one token, which has that log-probability; in place."""
    logprobs_RV.masked_fill_(here_R[:, None], -torch.inf)
    kept_R = logprobs_RV.gather(1, token_R[:, None])[:, 0]
    logprobs_RV.scatter_(1, token_R[:, None], torch.where(here_R, value_R.to(kept_R.dtype), kept_R)[:, None])


def _forbid(logprobs_RV: Float[Tensor, "R V"], token_RK: Int[Tensor, "R K"], where_RK: Bool[Tensor, "R K"]) -> None:
    """Forbid some tokens of each row; a token may stand there twice, and twice minus infinity is still that."""
    logprobs_RV.scatter_add_(
        1, token_RK, torch.zeros_like(token_RK, dtype=logprobs_RV.dtype).masked_fill_(where_RK, -torch.inf)
    )
