"""What a target token of training costs on this text, and what the device can do, by measuring it."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from regard.bundle import find_device
from regard.data.pool import Pairs
from regard.models.cost import training_flops
from regard.models.seq2seq import Seq2Seq
from regard.nn.embedding import Embedding, Output

_SAMPLE = 1000  # pairs whose lengths stand for those of a corpus
_SIZES = {"cuda": 8192, "cpu": 1024}  # of a matrix product large enough to reach the limit, small enough to be quick


def sample_lengths(stores: Sequence[Pairs]) -> tuple[list[int], list[int]]:
    """Lengths of some sources and targets, symbols included, spread evenly over each corpus."""
    sides: tuple[list[int], list[int]] = ([], [])
    for store in stores:
        which = np.unique(np.linspace(0, len(store) - 1, _SAMPLE).astype(int))
        for side, lengths in zip(sides, store.lengths, strict=True):
            side += (lengths[which] + 1).tolist()
    return sides


def flops_per_token(model: Seq2Seq, stores: Sequence[Pairs]) -> float:
    """Operations, forward and backward, for each target token of this text."""
    source, target = sample_lengths(stores)
    return training_flops(model, source, target) / sum(target)


def activation_bytes(model: nn.Module, precision: str) -> int:
    """About what a source and a target token leave in memory for the way back: what enters each matrix and leaves it.

    Rows of a vocabulary count once, as the scores of one target token.
    """
    size = 2 if precision == "bfloat16" else 4
    words = {id(each.weight) for each in model.modules() if isinstance(each, Embedding | Output)}
    inside = sum(sum(each.shape) for each in model.parameters() if each.ndim == 2 and id(each) not in words)
    scores = sum(each.weight.shape[0] for each in model.modules() if isinstance(each, Output))
    return size * (inside + scores)


def find_learner(device: str) -> torch.device:
    """The device of a name, if models can learn on it."""
    place = find_device(device)
    if place.type not in _SIZES:
        raise ValueError(f"training does not run on '{device}'; say cpu, cuda, cuda:1 and so on, or auto")
    return place


def device_name(device: torch.device) -> str:
    """A device as a person calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def limit(device: torch.device, precision: str) -> float:
    """Operations a second of a large matrix product, the best of a few."""
    size = _SIZES[device.type]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    one, other = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))

    def seconds() -> float:
        begin = time.perf_counter()
        torch.mm(one, other)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    return 2 * size**3 / min(seconds() for _ in range(5))
