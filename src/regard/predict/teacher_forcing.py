"""Teacher forcing: run an encoder-decoder on given targets, for their log-probabilities and cross-attention."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import named_taps, recording
from regard.predict.engine import encoder_input
from regard.text import END, START

CROSS_ATTENTION = "decoder*cross.weights"
"""Taps of the cross-attention weights, each of shape (sequences, heads, target, source)."""
SCORED_ROWS = 2048
"""Target tokens whose logits are computed at once, which bounds memory."""

TokenPair = tuple[Sequence[int], Sequence[int]]
"""Token ids of a source and a target, without start and end symbols."""


@dataclass(frozen=True, eq=False)
class TeacherForcedPair:
    """Log-probabilities and attention weights of a given pair of source and target."""

    logprobs: tuple[float, ...]
    """Log-probability of each target token given those before it, and of the end symbol."""
    attention: dict[str, Float[Tensor, "H T S"]]
    """Cross-attention weights by tap. Row t is the step that predicts target token t, the last row the one that
    predicts the end symbol; the last column is the end symbol of the source."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off within the context."""
    # `model.eval()` visits every module, which takes longer than a short line: skip it if it changes nothing.
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def cross_attention_taps(model: nn.Module) -> list[str]:
    """Return the names of the cross-attention taps, first layer first; empty for a model without attention."""
    return [name for name in named_taps(model) if fnmatchcase(name, CROSS_ATTENTION)]


def teacher_force(model: Seq2Seq, pairs: Sequence[TokenPair], attention: bool = False) -> list[TeacherForcedPair]:
    """Compute the log-probabilities of given targets in one forward pass.

    Args:
        model: The encoder-decoder.
        pairs: Token ids of sources and targets.
        attention: Record the weights of all cross-attention, which excludes the fused kernels and is slower.
    """
    device = model.output.weight.device
    source = encoder_input([ids for ids, _ in pairs], device)
    target = Ragged.from_list([[START, *ids] for _, ids in pairs]).to(device)
    labels_N = torch.tensor([label for _, ids in pairs for label in (*ids, END)], device=device)
    with evaluating(model):
        if attention:
            with recording(model, CROSS_ATTENTION) as seen:
                states_ND = model.states(source, target)
        else:
            seen, states_ND = {}, model.states(source, target)
        rows = zip(torch.split(states_ND, SCORED_ROWS), torch.split(labels_N, SCORED_ROWS), strict=True)
        logprobs = [model.output(x_ND).log_softmax(-1).gather(-1, label_N[:, None])[:, 0] for x_ND, label_N in rows]
    weights = {name: values[0].float().cpu() for name, values in seen.items()}
    forced = []
    for index, logprobs_T in enumerate(target.with_values(torch.cat(logprobs)).to("cpu").to_list()):
        length = len(pairs[index][0]) + 1
        tables = {name: table[index, :, : len(logprobs_T), :length] for name, table in weights.items()}
        forced.append(TeacherForcedPair(tuple(logprobs_T.tolist()), tables))
    return forced
