"""Pairs of source and target ids through a model with the target given: how probable it is, and where it looked."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import recording, taps
from regard.text import END, START

CROSS = "decoder*cross.weights"
"""Taps on where a decoder looks in the source; each carries (sequences, heads, target, source)."""

ROWS = 2048
"""Target tokens scored against the vocabulary at once, so that a long batch needs no more memory than a short one."""

Ids = Sequence[int]
Pair = tuple[Ids, Ids]
"""Source and target as ids, without begin and end symbols."""


@dataclass(frozen=True, eq=False)
class Forced:
    """What a model makes of one given pair."""

    logprobs: tuple[float, ...]
    """Log-probability of each target token given those before it, and at last of the end."""
    looks: dict[str, Float[Tensor, "H T S"]]
    """By tap, the weights of each head when each target token, and at last the end, was told; the last source is
    the end symbol."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout and gradients while the context lasts, and after it as it was.

    One that learns no more is left alone: to go through all its parts takes longer than a short line.
    """
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def cross_taps(model: nn.Module) -> list[str]:
    """The taps on where a decoder looks in the source, layer by layer; none where it does not look by weights."""
    return [name for name in taps(model) if fnmatchcase(name, CROSS)]


def force(model: Seq2Seq, pairs: Sequence[Pair], looks: bool = False) -> list[Forced]:
    """Score given targets in one pass.

    With `looks`, the weights of all cross-attention come with the scores, at the price of the fused kernels.
    """
    device = model.output.weight.device
    source = Ragged.from_list([[*ids, END] for ids, _ in pairs]).to(device)
    target = Ragged.from_list([[START, *ids] for _, ids in pairs]).to(device)
    labels_N = torch.tensor([label for _, ids in pairs for label in (*ids, END)], device=device)
    with evaluating(model):
        if looks:
            with recording(model, CROSS) as seen:
                states_ND = model.states(source, target)
        else:
            seen, states_ND = {}, model.states(source, target)
        logprobs_N = _score(model, states_ND, labels_N)
    weights = {name: passed[0].float().cpu() for name, passed in seen.items()}
    found = []
    for number, part_T in enumerate(target.with_values(logprobs_N).to("cpu").to_list()):
        sources = len(pairs[number][0]) + 1
        mine = {name: each[number, :, : len(part_T), :sources] for name, each in weights.items()}
        found.append(Forced(tuple(part_T.tolist()), mine))
    return found


def _score(model: Seq2Seq, states_ND: Float[Tensor, "N D"], labels_N: Tensor) -> Float[Tensor, " N"]:
    """The log-probability of each label."""
    parts = zip(torch.split(states_ND, ROWS), torch.split(labels_N, ROWS), strict=True)
    return torch.cat([model.output(x_ND).log_softmax(-1).gather(-1, label_N[:, None])[:, 0] for x_ND, label_N in parts])
