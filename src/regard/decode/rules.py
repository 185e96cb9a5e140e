"""Rules of a search: what may not come next. A rule sets the log-probabilities of forbidden tokens to minus infinity.

All other log-probabilities stay those of the stepper: a rule removes choices and does not change their value. The rules
are rebuilt whenever sentences join or leave, from the options of the sentences that are there, one for each beam.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.beams import Beams, rows_of
from regard.decode.options import SearchOptions, SentenceOptions, length_bounds
from regard.decode.topk import top

ANY, NEVER = -1, -2
"""In tables of tokens: what matches every token, and what matches none."""


class TokenRule(ABC):
    """Forbids tokens. Every rule says itself in which searches it works, so that none is ever ignored."""

    looks_back = False
    """Whether the rule reads the tokens of the hypotheses; the search then keeps them."""
    static = False
    """Whether a static search applies the rule by itself (`decode/static_search.py`)."""

    @abstractmethod
    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid tokens in each row, in place."""

    @property
    def spare(self) -> int | None:
        """How many of the best tokens of a row this step may forbid; None if the rule must see the whole row."""
        return None

    def forbid_listed(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], beams: Beams
    ) -> Float[Tensor, "R K"]:
        """Forbid tokens in a list of the best tokens of each row, where `spare` is not None."""
        raise NotImplementedError(f"{type(self).__name__} must see all tokens: its `spare` is None")


class BannedTokens(TokenRule):
    """Some ids never appear."""

    static = True

    def __init__(self, ids: Sequence[int], device: torch.device | str) -> None:
        """Ban these ids."""
        self.ids = torch.tensor(ids, device=device)

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid the ids in every row."""
        logprobs_RV.index_fill_(1, self.ids, -torch.inf)

    @property
    def spare(self) -> int:
        """All of the ids may be among the best tokens."""
        return len(self.ids)

    def forbid_listed(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], beams: Beams
    ) -> Float[Tensor, "R K"]:
        """Forbid the ids in a list."""
        return logprob_RK.masked_fill((token_RK[:, :, None] == self.ids).any(2), -torch.inf)


class NoRepeatedNgrams(TokenRule):
    """No n-gram appears twice in a hypothesis (Paulus et al. 2018, §2.5)."""

    looks_back = True

    def __init__(self, size: int) -> None:
        """Forbid to repeat n-grams of this size."""
        self.size = size

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid every token that followed an earlier occurrence of the last n - 1 tokens."""
        history_RT = beams.history_BWT.flatten(0, 1)
        starts = history_RT.shape[1] - self.size + 1
        if starts <= 0:
            return
        length_R = rows_of(beams.length_B, beams)
        tail_RT = _tail(history_RT, length_R, self.size - 1)
        next_RT = history_RT[:, self.size - 1 :]
        # Places behind the length of a row hold no token yet.
        same_RT = torch.arange(self.size - 1, history_RT.shape[1], device=length_R.device) < length_R[:, None]
        for j in range(self.size - 1):
            same_RT &= history_RT[:, j : j + starts] == tail_RT[:, j : j + 1]
        _forbid(logprobs_RV, next_RT, same_RT)


class AvoidedPhrases(TokenRule):
    """Phrases that must not appear, of each sentence its own."""

    looks_back = True

    def __init__(self, sentences: Sequence[SentenceOptions], device: torch.device | str) -> None:
        """Collect the phrases of each beam, right-aligned, so that their last tokens are in one column."""
        longest = max(len(phrase) for sentence in sentences for phrase in sentence.avoid)
        most = max(len(sentence.avoid) for sentence in sentences)
        filled = [
            [[ANY] * (longest - len(phrase)) + list(phrase) for phrase in sentence.avoid]
            + [[NEVER] * longest] * (most - len(sentence.avoid))
            for sentence in sentences
        ]
        self.phrases_BKT = torch.tensor(filled, device=device)

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid the last token of each phrase whose other tokens are the last tokens of the row."""
        phrases_RKT = rows_of(self.phrases_BKT, beams)
        start_RKT, last_RK = phrases_RKT[:, :, :-1], phrases_RKT[:, :, -1]
        tail_RT = _tail(beams.history_BWT.flatten(0, 1), rows_of(beams.length_B, beams), start_RKT.shape[2])
        matches_RK = ((start_RKT == ANY) | (start_RKT == tail_RT[:, None])).all(-1) & (last_RK != NEVER)
        _forbid(logprobs_RV, last_RK.clamp(min=0), matches_RK)


class LengthRule(TokenRule):
    """No end before the minimum length; nothing but the end at the maximum length."""

    static = True

    def __init__(
        self,
        bounds: Sequence[tuple[int, int]],
        lengths: Sequence[int],
        options: SearchOptions,
        device: torch.device | str,
    ) -> None:
        """Take the minimum, maximum and present length of each beam."""
        minimum, maximum = zip(*bounds, strict=True)
        self.minimum_B, self.maximum_B = torch.tensor(minimum, device=device), torch.tensor(maximum, device=device)
        self.end, self.free_cut = options.end, options.free_cut
        # The number of steps until every beam has its minimum, and until the first has its maximum: they are counted on
        # the host, so that a step in which the rule has nothing to do never waits for a device.
        self.short: int = max(least - length for least, length in zip(minimum, lengths, strict=True))
        self.free: int = min(most - length for most, length in zip(maximum, lengths, strict=True))

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid the end, or everything else."""
        if self.short > 0:
            short_R = rows_of(beams.length_B < self.minimum_B, beams)
            logprobs_RV[:, self.end].masked_fill_(short_R, -torch.inf)
        if self.free <= 0:
            full_R = rows_of(beams.length_B >= self.maximum_B, beams)
            end_R = logprobs_RV[:, self.end].clone()
            if self.free_cut:
                end_R = end_R.masked_fill(full_R, 0.0)
            logprobs_RV.masked_fill_(full_R[:, None], -torch.inf)
            logprobs_RV[:, self.end] = end_R
        self._count()

    @property
    def spare(self) -> int | None:
        """The end may be forbidden; None where everything but the end is."""
        return None if self.free <= 0 else int(self.short > 0)

    def forbid_listed(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], beams: Beams
    ) -> Float[Tensor, "R K"]:
        """Forbid an early end in a list of tokens."""
        if self.short > 0:
            short_R1 = rows_of(beams.length_B < self.minimum_B, beams)[:, None]
            logprob_RK = logprob_RK.masked_fill((token_RK == self.end) & short_R1, -torch.inf)
        self._count()
        return logprob_RK

    def _count(self) -> None:
        self.short, self.free = self.short - 1, self.free - 1


class ForkRule(TokenRule):
    """After the prefix of a sentence, each of its groups takes another one of the most probable tokens."""

    def __init__(
        self, sentences: Sequence[SentenceOptions], lengths: Sequence[int], groups: int, device: torch.device | str
    ) -> None:
        """Give the most probable token to the first group, the next one to the second, and so on."""
        self.position_B = torch.tensor([len(sentence.prefix) for sentence in sentences], device=device)
        self.group_B = torch.arange(len(sentences), device=device) % groups
        self.groups = groups
        self.left = _prefix_left(sentences, lengths)

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid all but one token at the position after the prefix."""
        if self.left >= 0:
            here_R = rows_of(beams.length_B == self.position_B, beams)
            zero_R1 = beams.total_BW.new_zeros(logprobs_RV.shape[0], 1)
            _, value_RK, _, token_RK = top(logprobs_RV, zero_R1, self.groups)
            group_R1 = rows_of(self.group_B, beams)[:, None].clamp(max=value_RK.shape[1] - 1)
            _allow_only(logprobs_RV, token_RK.gather(1, group_R1)[:, 0], value_RK.gather(1, group_R1)[:, 0], here_R)
        self.left -= 1


class StopRule(TokenRule):
    """A hypothesis that `SentenceOptions.is_complete` accepts ends at once, and at no cost."""

    looks_back = True

    def __init__(self, sentences: Sequence[SentenceOptions], options: SearchOptions) -> None:
        """Take the options of each beam."""
        self.tests = [sentence.is_complete for sentence in sentences]
        self.end = options.end

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Forbid everything but the end in rows that are complete."""
        lengths, histories = beams.length_B.tolist(), beams.history_BWT.tolist()
        complete = [
            test is not None and test(tokens[:length])
            for test, length, rows in zip(self.tests, lengths, histories, strict=True)
            for tokens in rows
        ]
        if any(complete):
            complete_R = torch.tensor(complete, device=logprobs_RV.device)
            end_R = torch.full_like(complete_R, self.end, dtype=torch.int64)
            _allow_only(logprobs_RV, end_R, torch.zeros_like(logprobs_RV[:, 0]), complete_R)


class Prefix:
    """Tokens that hypotheses start with; no rule applies to them."""

    def __init__(
        self, sentences: Sequence[SentenceOptions], lengths: Sequence[int], device: torch.device | str
    ) -> None:
        """Take the prefix of each beam, and its present length."""
        longest = max(len(sentence.prefix) for sentence in sentences)
        filled = [list(sentence.prefix) + [NEVER] * (longest + 1 - len(sentence.prefix)) for sentence in sentences]
        self.prefix_BT = torch.tensor(filled, device=device)
        self.left = _prefix_left(sentences, lengths)
        """Steps until the prefixes of all beams are over."""

    def token(self, beams: Beams) -> Int[Tensor, " R"]:
        """Return the token with which each row must continue; `NEVER` after its prefix."""
        position_B1 = beams.length_B.clamp(max=self.prefix_BT.shape[1] - 1)[:, None]
        return rows_of(self.prefix_BT.gather(1, position_B1)[:, 0], beams)


class RuleSet:
    """The rules of a search, in order; only those that are needed exist."""

    def __init__(
        self,
        sentences: Sequence[SentenceOptions],
        lengths: Sequence[int],
        searches: Sequence[SearchOptions],
        device: torch.device | str,
        bounds: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Make the rules for beams with these options and present lengths.

        Args:
            sentences: Options of the sentence of each beam.
            lengths: Present length of each beam.
            searches: Options of the search of each beam. Only their limits may differ.
            device: Where the tensors are.
            bounds: Minimum and maximum length of each beam, if they are known already.
        """
        options = searches[0]
        bounds = bounds or length_bounds(searches, sentences)
        rules: list[TokenRule | None] = [
            BannedTokens(options.banned, device) if options.banned else None,
            NoRepeatedNgrams(options.no_repeat) if options.no_repeat else None,
            AvoidedPhrases(sentences, device) if any(sentence.avoid for sentence in sentences) else None,
            LengthRule(bounds, lengths, options, device),
            ForkRule(sentences, lengths, options.groups, device) if options.fork else None,
            StopRule(sentences, options) if any(sentence.is_complete for sentence in sentences) else None,
        ]
        self.rules = [rule for rule in rules if rule is not None]
        self.prefix = Prefix(sentences, lengths, device) if any(sentence.prefix for sentence in sentences) else None
        self.looks_back = any(rule.looks_back for rule in self.rules)
        self.static = self.prefix is None and all(rule.static for rule in self.rules)

    @property
    def spare(self) -> int | None:
        """How many of the best tokens of a row this step may forbid; None if a rule must see the whole row."""
        if self.prefix is not None and self.prefix.left > 0:
            return None
        total = 0
        for rule in self.rules:
            spare = rule.spare
            if spare is None:
                return None
            total += spare
        return total

    def forbid_listed(
        self, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"], beams: Beams
    ) -> Float[Tensor, "R K"]:
        """Return a list of the best tokens of each row without forbidden ones, where `spare` is not None."""
        for rule in self.rules:
            logprob_RK = rule.forbid_listed(logprob_RK, token_RK, beams)
        return logprob_RK

    def forbid(self, logprobs_RV: Float[Tensor, "R V"], beams: Beams) -> None:
        """Apply all rules, in place."""
        if self.prefix is None or self.prefix.left <= 0:
            for rule in self.rules:
                rule.forbid(logprobs_RV, beams)
            return
        self.prefix.left -= 1
        token_R = self.prefix.token(beams)
        value_R = logprobs_RV.gather(1, token_R.clamp(min=0)[:, None])[:, 0]
        for rule in self.rules:
            rule.forbid(logprobs_RV, beams)
        _allow_only(logprobs_RV, token_R.clamp(min=0), value_R, token_R != NEVER)


def _prefix_left(sentences: Sequence[SentenceOptions], lengths: Sequence[int]) -> int:
    """Return the number of steps until the prefixes of all beams are over."""
    return max(len(sentence.prefix) - length for sentence, length in zip(sentences, lengths, strict=True))


def _tail(history_RT: Int[Tensor, "R T"], length_R: Int[Tensor, " R"], count: int) -> Int[Tensor, "R T2"]:
    """Return the last tokens of each row, right-aligned; `NEVER` where a row has fewer."""
    position_RT = length_R[:, None] + torch.arange(-count, 0, device=length_R.device)
    return history_RT.gather(1, position_RT.clamp(min=0)).masked_fill_(position_RT < 0, NEVER)


def _allow_only(
    logprobs_RV: Float[Tensor, "R V"],
    token_R: Int[Tensor, " R"],
    value_R: Float[Tensor, " R"],
    here_R: Bool[Tensor, " R"],
) -> None:
    """Forbid everything but one token in these rows, and give it this log-probability; in place."""
    logprobs_RV.masked_fill_(here_R[:, None], -torch.inf)
    other_R = logprobs_RV.gather(1, token_R[:, None])[:, 0]
    logprobs_RV.scatter_(1, token_R[:, None], torch.where(here_R, value_R.to(other_R.dtype), other_R)[:, None])


def _forbid(logprobs_RV: Float[Tensor, "R V"], token_RK: Int[Tensor, "R K"], where_RK: Bool[Tensor, "R K"]) -> None:
    """Forbid some tokens of each row, in place."""
    # A token may be listed twice, once allowed and once forbidden: adding 0 or minus infinity forbids it either way.
    logprobs_RV.scatter_add_(
        1, token_RK, torch.zeros_like(token_RK, dtype=logprobs_RV.dtype).masked_fill_(where_RK, -torch.inf)
    )
