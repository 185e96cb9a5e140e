"""Ensembles: several steppers with one vocabulary search together."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.stepper import JoinableStepper, Stepper


class Ensemble:
    """A stepper that averages the probabilities of its members, which may be of different families.

    Its state is a tuple with the state of each member: `tuple(member.start(source, rows) for member in members)`.
    """

    def __init__(
        self,
        members: Sequence[Stepper[Any]],
        weights: Sequence[float] | None = None,
        mean: Literal["probabilities", "log-probabilities"] = "probabilities",
    ) -> None:
        """Combine members.

        Args:
            members: The steppers.
            weights: Weights of the members; equal if None.
            mean: What is averaged. A mean of log-probabilities is normalised again.
        """
        weights = [1.0] * len(members) if weights is None else list(weights)
        if not members or len(weights) != len(members) or min(weights) <= 0:
            raise ValueError(f"an ensemble of {len(members)} members needs as many positive weights, not {weights}")
        self.members, self.mean = tuple(members), mean
        self.weights = [weight / sum(weights) for weight in weights]

    def step(self, tokens_R: Int[Tensor, " R"], state: tuple[Any, ...]) -> tuple[Float[Tensor, "R V"], tuple[Any, ...]]:
        """Return the log-probabilities of the next token, and the new state of every member."""
        steps = (member.step(tokens_R, own) for member, own in zip(self.members, state, strict=True))
        logprobs, states = zip(*steps, strict=True)
        sizes = [logprobs_RV.shape[1] for logprobs_RV in logprobs]
        if len(set(sizes)) > 1:
            raise ValueError(f"the members of an ensemble must share one vocabulary, but theirs have {sizes} tokens")
        pairs = zip(logprobs, self.weights, strict=True)
        if self.mean == "probabilities":
            # log Σ w p = logsumexp(log p + log w), which does not underflow where all probabilities are tiny.
            return torch.stack([member_RV + math.log(weight) for member_RV, weight in pairs]).logsumexp(0), states
        return torch.stack([member_RV * weight for member_RV, weight in pairs]).sum(0).log_softmax(-1), states

    def select(self, state: tuple[Any, ...], rows_R: Int[Tensor, " R"]) -> tuple[Any, ...]:
        """Return the state in which every member continues with these rows."""
        return tuple(member.select(own, rows_R) for member, own in zip(self.members, state, strict=True))


class JoinableEnsemble(Ensemble):
    """An ensemble whose members can all take new sentences during a search."""

    def join(self, states: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Join the states of every member."""
        joined = []
        for member, own in zip(self.members, zip(*states, strict=True), strict=True):
            assert isinstance(member, JoinableStepper), "every member can join"
            joined.append(member.join(own))
        return tuple(joined)


def ensemble(
    members: Sequence[Stepper[Any]],
    weights: Sequence[float] | None = None,
    mean: Literal["probabilities", "log-probabilities"] = "probabilities",
) -> Ensemble:
    """Return an ensemble of steppers; it can take new sentences during a search if all its members can."""
    joinable = all(isinstance(member, JoinableStepper) for member in members)
    return (JoinableEnsemble if joinable else Ensemble)(members, weights, mean)
