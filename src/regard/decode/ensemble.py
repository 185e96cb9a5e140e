"""Several steppers as one: they agree on a vocabulary, and on nothing else."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.stepper import Joiner, Stepper


class Ensemble:
    """A stepper that says the mean of what its members say; they may be of different families.

    Its state is a tuple with the state of each: `tuple(member.start(source, rows) for member in members)`.
    """

    def __init__(
        self,
        members: Sequence[Stepper[Any]],
        weights: Sequence[float] | None = None,
        mean: Literal["probabilities", "log-probabilities"] = "probabilities",
    ) -> None:
        """Members with their weights, equal unless told; a mean of log-probabilities is made to sum to one again."""
        shares = [1.0] * len(members) if weights is None else list(weights)
        if not members or len(shares) != len(members) or min(shares) <= 0:
            raise ValueError(f"an ensemble of {len(members)} members needs as many positive weights, not {shares}")
        self.members, self.mean = tuple(members), mean
        self.shares = [share / sum(shares) for share in shares]

    def step(self, tokens_R: Int[Tensor, " R"], state: tuple[Any, ...]) -> tuple[Float[Tensor, "R V"], tuple[Any, ...]]:
        """Log-probabilities of the next token, and every member's state with it."""
        said, states = zip(
            *(member.step(tokens_R, one) for member, one in zip(self.members, state, strict=True)), strict=True
        )
        if len({logprobs_RV.shape[1] for logprobs_RV in said}) > 1:
            sizes = [logprobs_RV.shape[1] for logprobs_RV in said]
            raise ValueError(f"the members of an ensemble share one vocabulary, but these have {sizes} tokens")
        if self.mean == "probabilities":
            weighted = [each + math.log(share) for each, share in zip(said, self.shares, strict=True)]
            return torch.stack(weighted).logsumexp(0), states
        weighted = [each * share for each, share in zip(said, self.shares, strict=True)]
        return torch.stack(weighted).sum(0).log_softmax(-1), states

    def select(self, state: tuple[Any, ...], rows_R: Int[Tensor, " R"]) -> tuple[Any, ...]:
        """Every member goes on with these rows."""
        return tuple(member.select(one, rows_R) for member, one in zip(self.members, state, strict=True))


class JoiningEnsemble(Ensemble):
    """An ensemble whose members all take new sentences while others are on their way."""

    def join(self, states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Every member joins its own states."""
        joined = []
        for member, own in zip(self.members, zip(*states, strict=True), strict=True):
            assert isinstance(member, Joiner), "only joiners make a joining ensemble"
            joined.append(member.join(own))
        return tuple(joined)


def ensemble(
    members: Sequence[Stepper[Any]],
    weights: Sequence[float] | None = None,
    mean: Literal["probabilities", "log-probabilities"] = "probabilities",
) -> Ensemble:
    """An ensemble, which can be joined if all its members can."""
    joins = all(isinstance(member, Joiner) for member in members)
    return (JoiningEnsemble if joins else Ensemble)(members, weights, mean)
