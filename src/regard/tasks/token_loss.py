"""Losses of models that predict tokens, summed over the predicted tokens.

The caller divides once by the units of a whole step. Logits over the vocabulary are the largest tensors of all, so they
are computed for a chunk of tokens at a time where that is possible: here for R-Drop and validation, in
`regard.nn.cross_entropy` for plain training.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import IGNORED, fused_cross_entropy, smoothed_cross_entropy
from regard.nn.embedding import OutputProjection
from regard.nn.ragged import NestedRagged, Ragged

CHUNK = 2**24  # logits held at a time where they are computed in chunks


def token_loss(
    output: OutputProjection, states_ND: Float[Tensor, "N D"], labels_N: Int[Tensor, " N"], smoothing: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy with label smoothing, summed over the tokens."""
    return fused_cross_entropy(states_ND, output.weight, output.bias, labels_N, smoothing)


def teacher_forced_loss(
    model: Seq2Seq,
    inputs: Ragged | NestedRagged,
    target: Ragged,
    labels_N: Int[Tensor, " N"],
    smoothing: float,
    rdrop: float,
) -> Float[Tensor, ""]:
    """Return the loss of an encoder-decoder on given targets: cross-entropy, and R-Drop unless its weight is 0."""
    if not rdrop:
        return token_loss(model.output, model.states(inputs, target), labels_N, smoothing)
    # Both passes in one: the batch followed by itself, every position with its own dropout mask.
    states_ND = model.states(inputs.repeated(), target.repeated())
    return rdrop_loss(model.output, states_ND, labels_N, smoothing, rdrop)


def rdrop_loss(
    output: OutputProjection,
    states_ND: Float[Tensor, "N D"],
    labels_N: Int[Tensor, " N2"],
    smoothing: float,
    weight: float,
) -> Float[Tensor, ""]:
    """Return the R-Drop loss (Liang et al. 2021, eq. 4), halved so that it is on the scale of one pass.

    It is the mean cross-entropy of two passes with different dropout and, times `weight`, the mean of the divergences
    KL(first ‖ second) and KL(second ‖ first).

    Args:
        output: The output layer.
        states_ND: States of the batch followed by itself, so that N is twice the number of labels.
        labels_N: The labels of one pass.
        smoothing: Label smoothing.
        weight: Weight of the divergences.
    """
    first_ND, second_ND = states_ND.chunk(2)
    total = first_ND.new_zeros((), dtype=torch.promote_types(first_ND.dtype, torch.float32))
    if torch.compiler.is_compiling():
        return _rdrop_chunk(output, first_ND, second_ND, labels_N, smoothing, weight)
    for rows in _chunks(labels_N.shape[0], output.weight.shape[0]):
        arguments = (output, first_ND[rows], second_ND[rows], labels_N[rows], smoothing, weight)
        part = checkpoint(_rdrop_chunk, *arguments, use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return total


def _rdrop_chunk(
    output: OutputProjection, first_ND: Tensor, second_ND: Tensor, labels_N: Tensor, smoothing: float, weight: float
) -> Tensor:
    """Return the R-Drop loss of a chunk of tokens, with all their logits in memory."""
    first_NV, second_NV = output(first_ND), output(second_ND)
    entropies = (smoothed_cross_entropy(logits_NV, labels_N, smoothing) for logits_NV in (first_NV, second_NV))
    dtype = torch.promote_types(first_NV.dtype, torch.float32)
    p_NV, q_NV = (logits_NV.log_softmax(-1, dtype=dtype) for logits_NV in (first_NV, second_NV))
    # KL(p ‖ q) + KL(q ‖ p) in one sum.
    divergence_N = ((p_NV.exp() - q_NV.exp()) * (p_NV - q_NV)).sum(-1)
    divergence = (divergence_N * (labels_N != IGNORED)).sum()
    return sum(entropies, divergence * (weight / 2)) / 2


@torch.no_grad()
def token_sums(
    output: OutputProjection, states_ND: Float[Tensor, "N D"], labels_N: Int[Tensor, " N"]
) -> Float[Tensor, " sums"]:
    """Return the cross-entropy without smoothing and the number of correct tokens, summed over the tokens."""
    loss = torch.zeros((), dtype=torch.float64, device=states_ND.device)
    correct = torch.zeros((), dtype=torch.int64, device=states_ND.device)
    for rows in _chunks(labels_N.shape[0], output.weight.shape[0]):
        logits_NV = output(states_ND[rows])
        loss += smoothed_cross_entropy(logits_NV, labels_N[rows])
        correct += (logits_NV.argmax(-1) == labels_N[rows]).sum()
    return torch.stack([loss, correct])


def _chunks(tokens: int, vocabulary: int) -> Iterator[slice]:
    """Return slices of as many tokens as may have their logits in memory at once."""
    size = max(1, CHUNK // vocabulary)
    return (slice(begin, begin + size) for begin in range(0, tokens, size))
