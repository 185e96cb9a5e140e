"""List the steps of an attention mechanism with their values: multi-head attention, and attention of older models.

Vaswani et al. 2017, §3; Bahdanau et al. 2015, §3.1; Luong et al. 2015, §3.1 and §3.2; Gehring et al. 2017, §3.3.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.explore.attention import AttentionLayer
from regard.models.memory import Memory
from regard.models.transformer import Stack
from regard.nn.attention.multihead import MultiHeadAttention, SelfAttention
from regard.nn.attention.scores import AdditiveScore, BilinearScore, ScoreFunction
from regard.nn.attention.single_head import AttentionFormulas, AttentionOwner, SingleHeadAttention
from regard.nn.block import Residual, TransformerBlock


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of a computation: its name, its formula and its value."""

    name: str
    formula: str
    value: NDArray[Any]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the stage as a message contains it; the value travels as an array."""
        shape = list(self.value.shape)
        return {"name": self.name, "formula": self.formula, "shape": shape, "tensor": self.name, "note": self.note}


@dataclass(frozen=True, eq=False)
class RecordedPass:
    """The values that were recorded around one attention layer."""

    model: nn.Module
    values: dict[str, Tensor]
    """By the name of the tap."""
    memory: Memory | None
    """The encoder's states, if the layer is in a decoder that attends to an encoder."""

    def size(self) -> int:
        """Return the number of recorded bytes."""
        return sum(tensor.nbytes for tensor in self.values.values())


def to_array(value: Tensor) -> NDArray[Any]:
    """Convert a tensor to the single-precision array that a frame contains."""
    array: NDArray[Any] = value.detach().float().cpu().numpy()
    return array


def _mask_stages(scores: Tensor, mask: Tensor) -> list[Stage]:
    """Return the mask of one query, and its scores with the mask applied."""
    hidden: NDArray[np.uint8] = (~mask).to("cpu").numpy().astype(np.uint8)
    masked = scores.masked_fill(~mask, -float("inf"))
    return [
        Stage("mask", "1 = masked", hidden, "masks later positions, and keys outside a window"),
        Stage("masked", "score, −∞ where masked", to_array(masked)),
    ]


def _projection_stages(score: ScoreFunction, query: Tensor, keys: Tensor) -> list[Stage]:
    """Return what a score function projects before it compares query and keys; nothing for a dot product."""
    match score:
        case BilinearScore():
            return [Stage("projected_query", "qᵀ W", to_array(query @ score.weight), "projected to the keys' space")]
        case AdditiveScore():
            return [
                Stage("projected_query", "W_q q", to_array(score.from_query(query)), "the query's half of W₁"),
                Stage("projected_keys", "W_k k", to_array(score.prepare(keys)), "the keys' half of W₁"),
                Stage("outer", "w₂", to_array(score.outer.weight[0]), "learned"),
            ]
        case _:
            return []


@dataclass(frozen=True, eq=False)
class HeadPass:
    """One query of one attention head, and the values that were recorded around it."""

    layer: AttentionLayer
    head: int
    query: int
    passed: RecordedPass

    @cached_property
    def side(self) -> str:
        """The name of its stack: encoder or decoder."""
        return self.layer.name.partition(".")[0]

    @cached_property
    def block(self) -> str:
        """The name of its block."""
        return self.layer.name.rpartition(".")[0]

    @cached_property
    def kind(self) -> str:
        """The name of its module in the block: `self` or `cross`."""
        return self.layer.name.rpartition(".")[2]

    @cached_property
    def number(self) -> int:
        """The index of its block."""
        return int(self.block.rpartition(".")[2])

    @property
    def input_tap(self) -> str:
        """The tap on the residual stream that enters its sub-layer."""
        if self.kind == "cross":
            return f"{self.block}.around_self.stream"
        if self.number:
            return f"{self.side}.layers.{self.number - 1}.around_feedforward.stream"
        return f"{self.side}.embedding.joined"

    @property
    def residual(self) -> Residual:
        """The residual connection and norm around its sub-layer."""
        module = self.passed.model.get_submodule(f"{self.block}.around_{self.kind}")
        assert isinstance(module, Residual)
        return module

    @property
    def stack(self) -> Stack:
        """The stack of layers it belongs to."""
        module = self.passed.model.get_submodule(self.side)
        assert isinstance(module, Stack)
        return module

    def value(self, tap: str) -> Tensor:
        """Return what was recorded at a tap of its attention module."""
        return self.passed.values[f"{self.layer.name}.{tap}"]

    def stream(self) -> Tensor:
        """Return the residual stream that enters its sub-layer, for every token."""
        entering = self.passed.values[self.input_tap]
        return self.stack.embedding.norm(entering) if self.input_tap.endswith("joined") else entering


def head_taps(layer: AttentionLayer) -> list[str]:
    """Return the patterns of the taps that `head_stages` needs."""
    head = HeadPass(layer, 0, 0, RecordedPass(nn.Identity(), {}, None))
    return [f"{layer.name}.*", f"{head.side}.embedding.*", head.input_tap, f"{head.block}.around_{head.kind}.stream"]


def head_stages(layer: AttentionLayer, head: int, query: int, passed: RecordedPass) -> list[Stage]:
    """Return the steps of one head, from the query's token to the input of the next sub-layer."""
    at = HeadPass(layer, head, query, passed)
    return [*_embedding_stages(at), *_query_key_value_stages(at), *_weight_stages(at), *_output_stages(at)]


def _embedding_stages(at: HeadPass) -> list[Stage]:
    """Return the embedding of the query's token."""
    embedding, values = at.stack.embedding, at.passed.values
    token = values[f"{at.side}.embedding.token"][at.query]
    formula = f"E[token] · √{embedding.weight.shape[1]}" if embedding.scale != 1.0 else "E[token]"
    stages = [Stage("embedding", formula, to_array(token), "the token's own vector")]
    if embedding.position is not None:
        position = values[f"{at.side}.embedding.place"][at.query]
        stages.append(Stage("position", embedding.position.formula, to_array(position), "the vector of its position"))
    joined = values[f"{at.side}.embedding.joined"][at.query]
    formula = "embedding + position" if embedding.join == "sum" else "[embedding; position]"
    stages.append(Stage("sum", formula if len(stages) > 1 else "embedding", to_array(joined)))
    return stages


def _query_key_value_stages(at: HeadPass) -> list[Stage]:
    """Return query, keys and values of the head."""
    module = at.layer.module
    rotary = isinstance(module, SelfAttention) and module.rotary is not None
    stream, lowest = at.stream()[at.query], not at.number and at.kind == "self"
    memory = "from the encoder's states" if at.kind == "cross" else "from the input of every token"
    return [
        Stage("stream", "x", to_array(stream), "the embedding" if lowest else "from the layer below"),
        Stage("entered", "Norm(x)" if at.residual.norm_first else "x", to_array(at.value("entered")[at.query])),
        Stage(
            "q",
            "q = input · W_Q",
            to_array(at.value("q")[at.query, at.head]),
            "rotated by its position" if rotary else "",
        ),
        Stage("k", "k = … · W_K", to_array(at.value("k")[:, at.head]), memory),
        Stage("v", "v = … · W_V", to_array(at.value("v")[:, at.head]), memory),
    ]


def _weight_stages(at: HeadPass) -> list[Stage]:
    """Return the scores, the mask and the weights of the query."""
    module, place = at.layer.module, (0, at.head, at.query)
    assert isinstance(module, MultiHeadAttention)
    formula, bias_stages = f"score = {module.score.formula}", list[Stage]()
    slopes = at.stack.mask.slopes if at.kind == "self" else ()
    if slopes:
        distance = torch.arange(at.value("k").shape[0]) - at.query
        bias = (-slopes[at.head] * distance.abs()).float()
        bias_stages.append(Stage("bias", f"−{slopes[at.head]:.4g} · distance", to_array(bias), "ALiBi"))
        formula += " + bias"
    scores, mask = at.value("scores")[place], at.value("mask").expand_as(at.value("scores"))[place]
    return [
        *_projection_stages(module.score, at.value("q")[at.query, at.head], at.value("k")[:, at.head]),
        *bias_stages,
        Stage("scores", formula, to_array(scores)),
        *_mask_stages(scores, mask),
        Stage("weights", "softmax(masked scores)", to_array(at.value("weights")[place]), "they sum to 1"),
    ]


def _output_stages(at: HeadPass) -> list[Stage]:
    """Return what the head and its sub-layer make of the values."""
    mixed, output = at.value("mixed")[at.query], at.value("output")[at.query]
    leaving = at.passed.values[f"{at.block}.around_{at.kind}.stream"][at.query]
    if at.residual.norm_first:
        block = at.passed.model.get_submodule(at.block)
        assert isinstance(block, TransformerBlock)
        following = block.around_feedforward
        if at.kind == "self" and block.around_cross is not None:
            following = block.around_cross
        residual, normed, note = leaving, following.norm(leaving), "the input of the next sub-layer"
    else:
        residual, normed, note = at.stream()[at.query] + output, leaving, "this model normalises after the sum"
    return [
        Stage("mixed", "Σ weight · v", to_array(mixed[at.head]), "the output of this head"),
        Stage("joined", "[head 1; … ; head h]", to_array(mixed.flatten()), "all heads concatenated"),
        Stage("output", "joined · W_O", to_array(output)),
        Stage("residual", "x + output", to_array(residual)),
        Stage("normed", "Norm(residual)", to_array(normed), note),
    ]


def _formulas(layer: AttentionLayer, model: nn.Module) -> tuple[str, AttentionFormulas] | None:
    """Return the tap on what the decoder makes of the context, and its formulas; None if it declares none."""
    name = layer.name.rpartition(".")[0]
    owner = model.get_submodule(name)
    return (f"{name}.{owner.formulas.tap}", owner.formulas) if isinstance(owner, AttentionOwner) else None


def alignment_taps(layer: AttentionLayer, model: nn.Module) -> list[str]:
    """Return the patterns of the taps that `alignment_stages` needs."""
    result = _formulas(layer, model)
    return [f"{layer.name}.*", "decoder.embedding.token", *([result[0]] if result else [])]


def alignment_stages(layer: AttentionLayer, query: int, passed: RecordedPass) -> list[Stage]:
    """Return the steps of attention without heads, from the query's token to what is made of the context."""
    module, result = layer.module, _formulas(layer, passed.model)
    assert isinstance(module, SingleHeadAttention)
    assert passed.memory is not None, "this mechanism attends to an encoder"
    keys = passed.memory.states_ND
    values = keys if passed.memory.values_ND is None else passed.memory.values_ND
    vector = passed.values[f"{layer.name}.query"][query]
    token = passed.values["decoder.embedding.token"][query]
    formula, note = (result[1].query, result[1].query_note) if result else ("q", "the decoder's state")
    stages = [
        Stage("embedding", "E[token]", to_array(token), "the previous target token"),
        Stage("query", formula, to_array(vector), note),
        Stage("keys", "h_j", to_array(keys), "the encoder's states"),
    ]
    if values is not keys:
        stages.append(Stage("values", "z_j + e_j", to_array(values), "states and embeddings of the source tokens"))
    stages += _projection_stages(module.score, vector, keys)
    stages += _alignment_weight_stages(layer, module, query, passed)
    context = passed.values[f"{layer.name}.context"][query]
    stages.append(Stage("context", "Σ weight · h_j", to_array(context)))
    if result:
        tap, formulas = result
        stages.append(Stage(formulas.name, formulas.result, to_array(passed.values[tap][query]), formulas.result_note))
    return stages


def _alignment_weight_stages(
    layer: AttentionLayer, module: SingleHeadAttention, query: int, passed: RecordedPass
) -> list[Stage]:
    """Return the scores and weights of a query; local attention first predicts a position (Luong et al. 2015, §3.2)."""
    place = (0, 0, query)
    scores, mask = passed.values[f"{layer.name}.scores"][place], passed.values[f"{layer.name}.mask"][place]
    weights = to_array(passed.values[f"{layer.name}.weights"][place])
    stages = [Stage("energies", f"score = {module.score.formula}", to_array(scores))]
    stages += _mask_stages(scores, mask)
    if module.focus is None:
        return [*stages, Stage("weights", "softmax(masked scores)", weights, "they sum to 1")]
    position = passed.values[f"{layer.name}.focus.place"][place]
    distance = torch.arange(scores.shape[-1], device=position.device) - position
    bell = torch.exp(-2 * (distance / module.focus.reach) ** 2)
    aligned = passed.values[f"{layer.name}.aligned"][place]
    return [
        *stages,
        Stage("place", "p = S · sigmoid(vᵀ tanh(W h))", to_array(position), "the predicted source position"),
        Stage("aligned", "softmax(masked scores)", to_array(aligned)),
        Stage("bell", "exp(−(j − p)² / 2σ²), σ = D / 2", to_array(bell), f"D = {module.focus.reach}"),
        Stage("weights", "aligned · bell", weights),
    ]
