"""The parts of a Transformer as an engine runs them: weights packed, no dropout, no taps."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.models.fast.linear import Linear, Precision, dtype_of, pack
from regard.models.fast.norms import norm_of as norm_of
from regard.models.fast.top import BLOCK
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.nn.attention.multihead import MultiHeadAttention, SelfAttention
from regard.nn.attention.scores import Bilinear
from regard.nn.block import Block, Residual
from regard.nn.embedding import Embedding, Output
from regard.nn.feedforward import FeedForward
from regard.nn.position import angles

Turn = tuple[Tensor, Tensor]
"""Cosine and sine of the angles by which rotary positions turn queries and keys."""


class Around:
    """A residual connection with its norm."""

    def __init__(self, residual: Residual, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        """Take the norm from a trained one."""
        self.norm, self.first = norm_of(residual.norm, dtype, device), residual.norm_first

    def enter(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """What the sub-layer is given."""
        return self.norm(x_ND) if self.first else x_ND

    def leave(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """The stream behind the sub-layer, which was added to it already."""
        return x_ND if self.first else self.norm(x_ND)


class Heads:
    """What an attention does beside its projections: sizes, the score, rotary turns, the output."""

    def __init__(self, attention: MultiHeadAttention, precision: Precision, make: Callable[..., Linear] = pack) -> None:
        """Take the weights from a trained one."""
        self.heads, self.sizes = attention.heads, (attention.key_size, attention.value_size)
        score, exact = attention.score, _exact(precision)
        self.scale = 1.0 if score.scale is None else score.scale
        self.between = score.weight.detach().to(exact) if isinstance(score, Bilinear) else None
        self.turns = isinstance(attention, SelfAttention) and attention.rotary is not None
        self.out = make(attention.out.weight, attention.out.bias, precision)

    def query(self, q_NF: Float[Tensor, "N F"], turn: Turn | None) -> Float[Tensor, "N H E"]:
        """Queries cut into heads, ready to be multiplied with keys."""
        q_NHE = q_NF.view(-1, self.heads, self.sizes[0])
        q_NHE = q_NHE if turn is None or not self.turns else turned(q_NHE, turn)
        return q_NHE if self.between is None else q_NHE @ self.between

    def key(self, k_NF: Float[Tensor, "N F"], turn: Turn | None) -> Float[Tensor, "N F"]:
        """Keys as they are kept."""
        if turn is None or not self.turns:
            return k_NF
        return turned(k_NF.view(-1, self.heads, self.sizes[0]), turn).flatten(1)

    def split(self, x_NF: Float[Tensor, "N F"], *parts: int) -> list[Tensor]:
        """Cut a merged projection into queries or keys (size 0) and values (size 1), for attention's own precision."""
        return list(torch.split(x_NF, [self.heads * self.sizes[part] for part in parts], dim=1))


def _exact(precision: Precision) -> torch.dtype:
    """The number format of attention itself."""
    return torch.float64 if precision == "float64" else torch.float32


def turn_at(position_N: Int[Tensor, " N"], size: int, like: Tensor) -> Turn:
    """What turns queries and keys at these positions (Su et al. 2021)."""
    angle = angles(position_N, size, like)[:, None]
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def turned(x_NHE: Float[Tensor, "N H E"], turn: Turn) -> Float[Tensor, "N H E"]:
    """Queries or keys turned by their positions; see `regard.nn.position.Rotary`."""
    cos, sin = turn
    first, second = x_NHE.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Inner:
    """The feed-forward layer."""

    def __init__(self, layer: FeedForward, precision: Precision, make: Callable[..., Linear] = pack) -> None:
        """Take the weights from a trained one."""
        self.widen = make(layer.widen.weight, layer.widen.bias, precision)
        self.narrow = make(layer.narrow.weight, layer.narrow.bias, precision)
        self.bend, self.fused = layer.bend, layer.bend is functional.relu

    def add(self, x_ND: Float[Tensor, "N D"], y_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Transform each token by itself and add it to the stream."""
        inner_NF = self.widen.relu(x_ND) if self.fused else self.bend(self.widen(x_ND))
        return self.narrow.add(inner_NF, y_ND)


class Embedder:
    """From ids and positions to vectors; positions are computed once for as many as were ever asked for."""

    def __init__(self, embedding: Embedding, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        """Look tokens up in the trained matrix itself, if it is on this device."""
        self.weight, self.scale, self.join = embedding.weight.detach().to(device), embedding.scale, embedding.join
        self.position, self.check, self.dtype, self.device = embedding.position, embedding.check, dtype, device
        self.norm = norm_of(embedding.norm, self.weight.dtype, device)
        self.places_TD, self.older = self.weight.new_empty(0, 0), list[Tensor]()

    def __call__(self, ids_N: Int[Tensor, " N"], position_N: Int[Tensor, " N"], longest: int) -> Float[Tensor, "N D"]:
        """The vector of each id at its position, of which none is beyond `longest`."""
        token_ND = functional.embedding(ids_N, self.weight)
        if self.position is None:
            joined_ND = token_ND * self.scale
        else:
            self.prepare(longest)
            if self.position.limit is not None:  # padding may stand beyond the last position there is
                position_N = position_N.clamp(max=self.position.limit - 1)
            place_ND = functional.embedding(position_N, self.places_TD)
            if self.join == "sum":
                joined_ND = place_ND.add_(token_ND, alpha=self.scale)
            else:
                joined_ND = torch.cat([token_ND * self.scale, place_ND], -1)
        normed_ND: Tensor = self.norm(joined_ND).to(self.dtype)
        return normed_ND

    def prepare(self, longest: int) -> None:
        """Compute the vectors of the first positions; none is beyond the last that was learned."""
        if self.position is None or self.places_TD.shape[0] >= min(longest, self.position.limit or longest):
            return
        many = self.position.limit or max(64, 2 * longest)
        position_T = torch.arange(many, device=self.device)
        position = (
            copy.deepcopy(self.position).to(self.device) if isinstance(self.position, nn.Module) else self.position
        )
        self.older.append(self.places_TD)  # captured programs still read it
        self.places_TD = position(position_T, self.weight).detach()


@dataclass(frozen=True, eq=False)
class Stacks:
    """A Transformer whose every part is known."""

    encoder: Stack
    decoder: Stack
    output: Output


def blocks_of(stack: Stack) -> list[Block]:
    """The layers of a stack."""
    return [layer for layer in stack.layers if isinstance(layer, Block)]


def stacks_of(model: nn.Module) -> Stacks | None:
    """The parts of a Transformer, if engines for those know all that this model has, so that they say what it says."""
    if not (isinstance(model, Seq2Seq) and isinstance(model.encoder, Stack) and isinstance(model.decoder, Stack)):
        return None
    encoder, decoder = blocks_of(model.encoder), blocks_of(model.decoder)
    whole = len(encoder) == len(model.encoder.layers) > 0 and len(decoder) == len(model.decoder.layers) > 0
    crosses = [block.cross for block in decoder if block.cross is not None]
    if not whole or len(crosses) < len(decoder) or model.decoder.sight.window is not None:
        return None
    kinds: list[Sequence[MultiHeadAttention]] = [[b.self for b in encoder], [b.self for b in decoder], crosses]
    known = all(_alike(attentions) for attentions in kinds)
    return Stacks(model.encoder, model.decoder, model.output) if known else None


def _alike(attentions: Sequence[MultiHeadAttention]) -> bool:
    """Whether attentions have one shape, so that one index serves all layers, and a score that is a product."""
    shapes = {(each.heads, each.key_size, each.value_size) for each in attentions}
    products = [each.score.scale is not None or isinstance(each.score, Bilinear) for each in attentions]
    return len(shapes) == 1 and all(products)


def filled_output(output: Output) -> tuple[Tensor, Tensor | None]:
    """The output's weight and bias, filled up to whole blocks with tokens that never come."""
    weight, bias = output.weight.detach(), None if output.bias is None else output.bias.detach()
    missing = -weight.shape[0] % BLOCK
    if not missing:
        return weight, bias
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    return functional.pad(weight, (0, 0, 0, missing)), functional.pad(bias, (0, missing), value=-torch.inf)


def stream_of(precision: Precision) -> tuple[torch.dtype, torch.dtype]:
    """Number formats of the residual stream, and of attention."""
    return dtype_of(precision), _exact(precision)
