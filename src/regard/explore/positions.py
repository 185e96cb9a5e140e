"""Answer the question `positions`: sinusoidal position vectors, and the vectors that a model has learned, if any."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.explore.frames import Message
from regard.explore.maths_steps import to_array
from regard.explore.model import InspectedModel
from regard.explore.questions import PositionsQuestion
from regard.models.transformer import Stack
from regard.nn.attention.multihead import SelfAttention
from regard.nn.position import BASE, LearnedPositions, SinusoidalPositions


def answer_positions(model: InspectedModel, question: PositionsQuestion) -> Iterator[Message]:
    """Yield the vectors of the first positions, the distances between them, and the period of each dimension."""
    embedding = model.adapter.embedding
    own, positions_P, like = embedding.position, torch.arange(question.count), torch.zeros(())
    width = (own.weight if isinstance(own, LearnedPositions) else embedding.weight).shape[1]
    sinusoidal = own if isinstance(own, SinusoidalPositions) else SinusoidalPositions(width)
    table_PD = sinusoidal(positions_P, like)
    arrays = {
        "sinusoidal": to_array(table_PD),
        "distances": to_array(torch.cdist(table_PD, table_PD)),
        "periods": to_array(_periods(sinusoidal)),
    }
    if isinstance(own, LearnedPositions) and own.limit is not None:
        learned_PD = own.weight.detach().float().cpu()[: min(question.count, own.limit)]
        arrays |= {"learned": to_array(learned_PD), "learned_distances": to_array(torch.cdist(learned_PD, learned_PD))}
    yield {"kind": "positions", "kind_of_model": _encoding(model), "last": True}, arrays


def _periods(sinusoidal: SinusoidalPositions) -> Tensor:
    """Return the wavelength of each dimension in positions, 2π · 10000^(2i/d) (Vaswani et al. 2017, §3.5)."""
    pair = torch.arange((sinusoidal.width + 1) // 2, dtype=torch.float64)
    period = 2 * math.pi * BASE ** (2 * pair / sinusoidal.width)
    periods = torch.cat([period, period]) if sinusoidal.halves else period.repeat_interleave(2)
    return periods[: sinusoidal.width]


def _encoding(model: InspectedModel) -> str:
    """Return the name of the model's position encoding."""
    if (position := model.adapter.embedding.position) is not None:
        return position.name
    first = next((layers[0] for part, layers in model.layers.items() if part != "cross"), None)
    if first is None:
        return "none"
    stack = model.adapter.model.get_submodule(first.name.partition(".")[0])
    if isinstance(stack, Stack) and stack.mask.slopes:
        return "alibi"
    return "rotary" if isinstance(first.module, SelfAttention) and first.module.rotary is not None else "none"
