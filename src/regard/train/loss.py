"""What learning makes smaller, summed over target tokens; whoever calls divides, once, by the tokens of a whole step.

Scores over the vocabulary are the largest tensors of all, so they are made a chunk of tokens at a time where that is
possible: in R-Drop and in validation here, in `regard.nn.cross_entropy` for plain training.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import IGNORED, fused_cross_entropy, smoothed_cross_entropy
from regard.nn.embedding import Output
from regard.nn.ragged import Ragged

CHUNK = 2**24  # scores held at a time where they are made in chunks


class Judgement(NamedTuple):
    """Sums over the target tokens of a batch."""

    loss: Float[Tensor, ""]
    """Nats, labels not smoothed."""
    correct: Int[Tensor, ""]
    """Tokens whose score is the highest."""


class Learner(nn.Module):
    """A model and what it is to make smaller; its call is one forward pass, which is what engines wrap and compile."""

    def __init__(self, model: Seq2Seq, smoothing: float = 0.0, rdrop: float = 0.0) -> None:
        """`rdrop` weighs the two passes' difference; without it there is one pass."""
        super().__init__()
        self.model, self.smoothing, self.rdrop = model, smoothing, rdrop

    def forward(self, source: Ragged, target: Ragged, labels_N: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        """The loss of a batch, summed over its tokens."""
        if not self.rdrop:
            states_ND, output = self.model.states(source, target), self.model.output
            return fused_cross_entropy(states_ND, output.weight, output.bias, labels_N, self.smoothing)
        # Both passes at once: the batch beside itself, every place with dice of its own.
        one_ND, other_ND = self.model.states(source.twice(), target.twice()).chunk(2)
        return agreeing_loss(self.model.output, one_ND, other_ND, labels_N, self.smoothing, self.rdrop)


def agreeing_loss(
    output: Output,
    one_ND: Float[Tensor, "N D"],
    other_ND: Float[Tensor, "N D"],
    labels_N: Int[Tensor, " N"],
    smoothing: float,
    weight: float,
) -> Float[Tensor, ""]:
    """R-Drop (Liang et al. 2021, eq. 4), halved so that it is on the scale of one pass.

    The mean of both passes' cross-entropy and, by `weight`, of the two divergences KL(one ‖ other), KL(other ‖ one).
    """
    total = one_ND.new_zeros((), dtype=torch.promote_types(one_ND.dtype, torch.float32))
    if torch.compiler.is_compiling():
        return _agreeing_rows(output, one_ND, other_ND, labels_N, smoothing, weight)
    for rows in _rows(labels_N.shape[0], output.weight.shape[0]):
        arguments = (output, one_ND[rows], other_ND[rows], labels_N[rows], smoothing, weight)
        part = checkpoint(_agreeing_rows, *arguments, use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def _agreeing_rows(
    output: Output, one_ND: Tensor, other_ND: Tensor, labels_N: Tensor, smoothing: float, weight: float
) -> Tensor:
    """The same for some tokens, whose scores may be had whole."""
    one_NV, other_NV = output(one_ND), output(other_ND)
    entropy = (smoothed_cross_entropy(each, labels_N, smoothing) for each in (one_NV, other_NV))
    exact = torch.promote_types(one_NV.dtype, torch.float32)
    p_NV, q_NV = (each.log_softmax(-1, dtype=exact) for each in (one_NV, other_NV))
    # KL(p ‖ q) + KL(q ‖ p) in one sum.
    apart_N = ((p_NV.exp() - q_NV.exp()) * (p_NV - q_NV)).sum(-1)
    apart = (apart_N * (labels_N != IGNORED)).sum()
    return sum(entropy, apart * (weight / 2)) / 2


@torch.no_grad()
def judge(model: Seq2Seq, source: Ragged, target: Ragged, labels_N: Int[Tensor, " N"]) -> Judgement:
    """How well a model foretells a batch, teacher-forced."""
    states_ND = model.states(source, target)
    loss = torch.zeros((), dtype=torch.float64, device=states_ND.device)
    correct = torch.zeros((), dtype=torch.int64, device=states_ND.device)
    for rows in _rows(labels_N.shape[0], model.output.weight.shape[0]):
        logits_NV = model.output(states_ND[rows])
        loss += smoothed_cross_entropy(logits_NV, labels_N[rows])
        correct += (logits_NV.argmax(-1) == labels_N[rows]).sum()
    return Judgement(loss, correct)


def _rows(tokens: int, vocabulary: int) -> Iterator[slice]:
    """Slices of as many tokens as may have their scores at once."""
    many = max(1, CHUNK // vocabulary)
    return (slice(begin, begin + many) for begin in range(0, tokens, many))
