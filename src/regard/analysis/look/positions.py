"""How a model tells places apart: the sines and cosines of the paper, and the vectors it has learned, if any."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.analysis.look.answers import LAST, Said
from regard.analysis.look.questions import Positions
from regard.analysis.look.stages import numbers
from regard.analysis.look.subject import Subject
from regard.models.transformer import Stack
from regard.nn.attention.multihead import SelfAttention
from regard.nn.embedding import Embedding
from regard.nn.position import BASE, Learned, Sinusoidal


def positions(subject: Subject, asked: Positions) -> Iterator[Said]:
    """Vectors of the first places, how far any two lie apart, and how many places a wave of each dimension spans."""
    embedding = subject.model.get_submodule("encoder.embedding")
    assert isinstance(embedding, Embedding)
    places_P, like = torch.arange(asked.count), torch.zeros(())
    own = embedding.position
    sines = own if isinstance(own, Sinusoidal) else Sinusoidal(_width(embedding))
    table_PD = sines(places_P, like)
    arrays = {
        "sinusoidal": numbers(table_PD),
        "distances": numbers(torch.cdist(table_PD, table_PD)),
        "periods": numbers(_periods(sines)),
    }
    if isinstance(own, Learned) and own.limit is not None:
        learned_PD = own.weight.detach().float().cpu()[: min(asked.count, own.limit)]
        arrays |= {"learned": numbers(learned_PD), "learned_distances": numbers(torch.cdist(learned_PD, learned_PD))}
    said: dict[str, Any] = {"kind": "positions", "kind_of_model": _kind(subject, embedding)}
    yield {**said, **LAST}, arrays


def _width(embedding: Embedding) -> int:
    """Numbers of a place's vector: those of the learned ones, or of a token's."""
    return (embedding.position.weight if isinstance(embedding.position, Learned) else embedding.weight).shape[1]


def _periods(sines: Sinusoidal) -> Tensor:
    """Places that one wave of each dimension spans: 2π · 10000^(2i/d)."""
    pair = torch.arange((sines.width + 1) // 2, dtype=torch.float64)
    period = 2 * math.pi * BASE ** (2 * pair / sines.width)
    both = torch.cat([period, period]) if sines.halves else period.repeat_interleave(2)
    return both[: sines.width]


def _kind(subject: Subject, embedding: Embedding) -> str:
    """How order enters the model."""
    match embedding.position:
        case Sinusoidal():
            return "sinusoidal"
        case Learned():
            return "learned"
    encoder = subject.model.encoder
    if isinstance(encoder, Stack) and encoder.sight.slopes:
        return "alibi"
    places = subject.parts.get("encoder", ())
    turned = any(isinstance(each.module, SelfAttention) and each.module.rotary is not None for each in places)
    return "rotary" if turned else "none"
