"""Every step of one head of a Transformer, from a token to what enters the next sub-layer (Vaswani et al. 2017, §3)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from regard.analysis.look.parts import Place
from regard.analysis.look.stages import Pass, Stage, formula_of, numbers, projections, softmax_stages
from regard.models.transformer import Stack
from regard.nn.attention.multihead import MultiHeadAttention, SelfAttention
from regard.nn.block import Block, Residual
from regard.nn.embedding import Embedding
from regard.nn.position import Learned


@dataclass(frozen=True, eq=False)
class Head:
    """Where one head stands in its model, and what passed there."""

    place: Place
    head: int
    query: int
    passed: Pass

    @cached_property
    def side(self) -> str:
        """The stack it is in: encoder or decoder."""
        return self.place.name.partition(".")[0]

    @cached_property
    def block(self) -> str:
        """The name of its layer."""
        return self.place.name.rpartition(".")[0]

    @cached_property
    def kind(self) -> str:
        """`self` or `cross`."""
        return self.place.name.rpartition(".")[2]

    @cached_property
    def layer(self) -> int:
        """The number of its layer."""
        return int(self.block.rpartition(".")[2])

    @property
    def before(self) -> str:
        """The tap on the stream that comes from below."""
        if self.kind == "cross":
            return f"{self.block}.around_self.stream"
        if self.layer:
            return f"{self.side}.layers.{self.layer - 1}.around_feedforward.stream"
        return f"{self.side}.embedding.joined"

    @property
    def around(self) -> Residual:
        """The residual and norm around its attention."""
        found = self.passed.model.get_submodule(f"{self.block}.around_{self.kind}")
        assert isinstance(found, Residual)
        return found

    @property
    def stack(self) -> Stack:
        """All layers of its side."""
        found = self.passed.model.get_submodule(self.side)
        assert isinstance(found, Stack)
        return found

    def own(self, tap: str) -> Tensor:
        """What passed a tap of its attention."""
        return self.passed.at(f"{self.place.name}.{tap}")


def head_taps(place: Place) -> list[str]:
    """The taps whose numbers are wanted, as patterns."""
    head = Head(place, 0, 0, Pass(nn.Identity(), {}, None))
    return [f"{place.name}.*", f"{head.side}.embedding.*", head.before, f"{head.block}.around_{head.kind}.stream"]


def head_stages(place: Place, head: int, query: int, passed: Pass) -> list[Stage]:
    """From the query's token to what enters the next sub-layer."""
    at = Head(place, head, query, passed)
    return [*_embedded(at), *_projected(at), *_weighed(at), *_mixed(at)]


def _embedded(at: Head) -> list[Stage]:
    """What the token of the query enters the stack as."""
    embedding = at.stack.embedding
    assert isinstance(embedding, Embedding)
    token = at.passed.at(f"{at.side}.embedding.token")[at.query]
    scaled = f"E[token] · √{embedding.weight.shape[1]}" if embedding.scale != 1.0 else "E[token]"
    found = [Stage("embedding", scaled, numbers(token), "the token's own vector")]
    if embedding.position is not None:
        place = at.passed.at(f"{at.side}.embedding.place")[at.query]
        learned = isinstance(embedding.position, Learned)
        formula = "P[position]" if learned else "sin, cos(position / 10000^(2i/d))"
        found.append(Stage("position", formula, numbers(place), "where it stands"))
    joined = at.passed.at(f"{at.side}.embedding.joined")[at.query]
    formula = "embedding + position" if embedding.join == "sum" else "[embedding; position]"
    found.append(Stage("sum", formula if len(found) > 1 else "embedding", numbers(joined)))
    return found


def _stream(at: Head) -> Tensor:
    """What comes from below, for every token."""
    below = at.passed.at(at.before)
    return at.stack.embedding.norm(below) if at.before.endswith("joined") else below


def _projected(at: Head) -> list[Stage]:
    """Query, keys and values of the head."""
    stream, first = _stream(at)[at.query], at.around.norm_first
    note = "queries and keys are turned by their position" if _turned(at.place.module) else ""
    from_where = "what the encoder left" if at.kind == "cross" else "every token's entered"
    return [
        Stage("stream", "x", numbers(stream), "from the layer below" if at.layer or at.kind == "cross" else "the sum"),
        Stage("entered", "Norm(x)" if first else "x", numbers(at.own("entered")[at.query])),
        Stage("q", "q = entered · W_Q", numbers(at.own("q")[at.query, at.head]), note),
        Stage("k", "k = … · W_K", numbers(at.own("k")[:, at.head]), f"from {from_where}"),
        Stage("v", "v = … · W_V", numbers(at.own("v")[:, at.head]), f"from {from_where}"),
    ]


def _turned(module: nn.Module) -> bool:
    return isinstance(module, SelfAttention) and module.rotary is not None


def _weighed(at: Head) -> list[Stage]:
    """From scores to weights."""
    module, query = at.place.module, (0, at.head, at.query)
    assert isinstance(module, MultiHeadAttention)
    formula, beside = formula_of(module.score, module.key_size), list[Stage]()
    slopes = at.stack.sight.slopes if at.kind == "self" else ()
    keys = at.own("k").shape[0]
    if slopes:
        away = torch.arange(keys) - at.query
        bias = (-slopes[at.head] * away.abs()).float()
        beside.append(Stage("bias", f"−{slopes[at.head]:.4g} · distance", numbers(bias), "ALiBi: far keys count less"))
        formula += " + bias"
    scores, mask = at.own("scores")[query], at.own("mask").expand_as(at.own("scores"))[query]
    return [
        *projections(module.score, at.own("q")[at.query, at.head], at.own("k")[:, at.head]),
        *beside,
        Stage("scores", formula, numbers(scores)),
        *softmax_stages(scores, mask),
        Stage("weights", "softmax(masked)", numbers(at.own("weights")[query]), "they sum to one"),
    ]


def _mixed(at: Head) -> list[Stage]:
    """From weights to what enters the next sub-layer."""
    mixed, output = at.own("mixed")[at.query], at.own("output")[at.query]
    left = at.passed.at(f"{at.block}.around_{at.kind}.stream")[at.query]
    if at.around.norm_first:
        residual, normed = left, _following(at)(left)
        note = "enters the next sub-layer"
    else:
        residual, normed = _stream(at)[at.query] + output, left
        note = "the norm comes after the sum"
    return [
        Stage("mixed", "Σ weight · v", numbers(mixed[at.head]), "this head's"),
        Stage("joined", "[head 1; … ; head h]", numbers(mixed.flatten()), "all heads side by side"),
        Stage("output", "joined · W_O", numbers(output)),
        Stage("residual", "x + output", numbers(residual)),
        Stage("normed", "Norm(residual)", numbers(normed), note),
    ]


def _following(at: Head) -> nn.Module:
    """The norm of the next sub-layer."""
    block = at.passed.model.get_submodule(at.block)
    assert isinstance(block, Block)
    after = block.around_cross if at.kind == "self" and block.around_cross is not None else block.around_feedforward
    return after.norm
