"""The layers of a Transformer on a CPU, with packed linears and attention by index; compiled, each is one call."""

from typing import no_type_check

import torch
from torch import Tensor, nn

from regard.models.fast.gaze import mix, own_gaze
from regard.models.fast.linear import Precision, dtype_of, pack
from regard.models.fast.norms import bend_of, norm_of
from regard.nn.attention.multihead import CrossAttention, MultiHeadAttention, SelfAttention
from regard.nn.attention.scores import Bilinear
from regard.nn.block import Block, Residual
from regard.nn.feedforward import FeedForward


@no_type_check
class Around(nn.Module):
    """A residual connection with its norm."""

    def __init__(self, residual: Residual, dtype: torch.dtype) -> None:
        """Take the norm from a trained one."""
        super().__init__()
        self.norm, self.first = norm_of(residual.norm, dtype), residual.norm_first

    def enter(self, x_ND: Tensor) -> Tensor:
        """What the sub-layer is given."""
        return self.norm(x_ND) if self.first else x_ND

    def leave(self, x_ND: Tensor) -> Tensor:
        """The stream behind the sub-layer, which was added to it already."""
        return x_ND if self.first else self.norm(x_ND)


@no_type_check
class Query(nn.Module):
    """What becomes of queries and keys before they are multiplied."""

    def __init__(self, attention: MultiHeadAttention, exact: torch.dtype) -> None:
        """Take sizes and weights from a trained attention."""
        super().__init__()
        score = attention.score
        self.heads, self.size = attention.heads, attention.key_size
        self.scale: float = 1.0 if score.scale is None else score.scale
        self.turns = isinstance(attention, SelfAttention) and attention.rotary is not None
        self.joins = isinstance(score, Bilinear)
        self.between = score.weight.detach().to(exact) if isinstance(score, Bilinear) else torch.empty(0)

    def turned(self, x_NF: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries or keys turned by their positions; see `regard.nn.position.Rotary`."""
        first, second = x_NF.view(-1, self.heads, self.size).chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).flatten(1)

    def forward(self, q_NF: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries ready to be multiplied with keys."""
        if self.turns:
            q_NF = self.turned(q_NF, cos, sin)
        if self.joins:
            q_NF = (q_NF.reshape(-1, self.heads, self.size) @ self.between).flatten(1)
        return q_NF

    def key(self, k_NF: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Keys as they are kept."""
        return self.turned(k_NF, cos, sin) if self.turns else k_NF


@no_type_check
class Inner(nn.Module):
    """The feed-forward layer, with its residual connection."""

    def __init__(self, layer: FeedForward, around: Residual, precision: Precision) -> None:
        """Take the weights from a trained one."""
        super().__init__()
        self.widen = pack(layer.widen.weight, layer.widen.bias, precision)
        self.narrow = pack(layer.narrow.weight, layer.narrow.bias, precision)
        self.around, self.bend = Around(around, dtype_of(precision)), bend_of(layer)
        self.fused = isinstance(self.bend, nn.ReLU)

    def forward(self, x_ND: Tensor) -> Tensor:
        """Transform each token by itself and add it to the stream."""
        entered_ND = self.around.enter(x_ND)
        inner_NF = self.widen.relu(entered_ND) if self.fused else self.bend(self.widen(entered_ND))
        return self.around.leave(self.narrow.add(inner_NF, x_ND))


@no_type_check
class EncoderLayer(nn.Module):
    """Self-attention and feed-forward over a ragged batch."""

    def __init__(self, block: Block, precision: Precision) -> None:
        """Pack a trained layer."""
        super().__init__()
        own, exact = block.self, exact_of(precision)
        self.qkv, self.out = (pack(each.weight, each.bias, precision) for each in (own.qkv, own.out))
        self.query, self.widths = Query(own, exact), [own.heads * own.key_size] * 2 + [own.heads * own.value_size]
        self.size = own.value_size
        self.around = Around(block.around_self, dtype_of(precision))
        self.inner = Inner(block.feedforward, block.around_feedforward, precision)

    def project(self, x_ND: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
        """Queries, keys and values, ready to be multiplied."""
        q_NF, k_NF, v_NF = torch.split(self.qkv(self.around.enter(x_ND)).to(cos), self.widths, 1)
        return [self.query(q_NF, cos, sin), self.query.key(k_NF, cos, sin), v_NF]

    def leave(self, mixed_NF: Tensor, x_ND: Tensor) -> Tensor:
        """What is made of the mixed values and the stream."""
        left_ND: Tensor = self.inner(self.around.leave(self.out.add(mixed_NF.to(x_ND), x_ND)))
        return left_ND

    def forward(
        self, x_ND: Tensor, at: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], cos: Tensor, sin: Tensor
    ) -> Tensor:
        """Pass a ragged batch through the layer."""
        q_NF, k_NF, v_NF = self.project(x_ND, cos, sin)
        keys, values = k_NF.reshape(-1, self.query.size).t(), v_NF.reshape(-1, self.size)
        return self.leave(mix(q_NF, keys, values, self.query.scale, at), x_ND)


@no_type_check
class DecoderLayer(nn.Module):
    """Self-attention, attention to the source and feed-forward, for one new token a row."""

    def __init__(self, block: Block, cross: CrossAttention, precision: Precision) -> None:
        """Pack a trained layer."""
        super().__init__()
        assert block.around_cross is not None, "who looks at a source adds what was seen"
        own, dtype, exact = block.self, dtype_of(precision), exact_of(precision)
        self.qkv, self.out = (pack(each.weight, each.bias, precision) for each in (own.qkv, own.out))
        linears = (cross.query, cross.kv, cross.out)
        self.cross_q, self.cross_kv, self.cross_out = (pack(each.weight, each.bias, precision) for each in linears)
        self.query, self.cross_query, self.casts = Query(own, exact), Query(cross, exact), dtype != exact
        self.widths = [own.heads * own.key_size] * 2 + [own.heads * own.value_size]
        self.cross_widths = [cross.heads * cross.key_size, cross.heads * cross.value_size]
        self.around, self.around_cross = Around(block.around_self, dtype), Around(block.around_cross, dtype)
        self.inner = Inner(block.feedforward, block.around_feedforward, precision)

    @torch.jit.unused
    def keep(self, memory_ND: Tensor) -> list[Tensor]:
        """Keys and values of a memory."""
        return list(torch.split(self.cross_kv(memory_ND), self.cross_widths, 1))

    def forward(
        self,
        x_RD: Tensor,
        own: tuple[Tensor, Tensor, Tensor, Tensor],
        memory: tuple[Tensor, Tensor],
        new: int,
        at_own: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        at_memory: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        cos: Tensor,
        sin: Tensor,
    ) -> Tensor:
        """Pass one new token a row through the layer; its key and value go into the tables `own` from row `new` on."""
        end = new + x_RD.shape[0]
        keys_NF, values_NF, keys, values = own
        qkv_RF = self.qkv(self.around.enter(x_RD))
        if self.casts:
            qkv_RF = qkv_RF.to(cos)
        q_RF, k_RF, v_RF = torch.split_with_sizes(qkv_RF, self.widths, 1)
        keys_NF[new:end].copy_(self.query.key(k_RF, cos, sin))
        values_NF[new:end].copy_(v_RF)
        mixed_RF = mix(self.query(q_RF, cos, sin), keys, values, self.query.scale, at_own)
        x_RD = self.around.leave(self.out.add(mixed_RF.to(x_RD) if self.casts else mixed_RF, x_RD))
        q_RF = self.cross_q(self.around_cross.enter(x_RD))
        if self.casts:
            q_RF = q_RF.to(cos)
        mixed_RF = mix(self.cross_query(q_RF, cos, sin), memory[0], memory[1], self.cross_query.scale, at_memory)
        x_RD = self.around_cross.leave(self.cross_out.add(mixed_RF.to(x_RD) if self.casts else mixed_RF, x_RD))
        left_RD: Tensor = self.inner(x_RD)
        return left_RD


@no_type_check
class Decoder(nn.Module):
    """All layers of a decoder and its output, for one new token a row."""

    def __init__(self, layers: list[DecoderLayer], norm: nn.Module, output: nn.Module, slopes_H: Tensor) -> None:
        """Put the parts together; slopes are what distance costs each head, if anything."""
        super().__init__()
        self.layers, self.norm, self.output = nn.ModuleList(layers), norm, output
        self.heads, self.slopes_H = layers[0].query.heads, slopes_H

    def forward(
        self,
        x_RD: Tensor,
        lists: tuple[Tensor, Tensor, int],
        new: int,
        own: list[tuple[Tensor, Tensor, Tensor, Tensor]],
        memory: list[tuple[Tensor, Tensor]],
        at_memory: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        turn: tuple[Tensor, Tensor],
    ) -> Tensor:
        """The logits behind one new token a row.

        `lists` are those of the rows' own tokens, what shades them, and how many columns are in use; keys and values of
        the new tokens go into the tables from row `new` on.
        """
        rows_RT, shade_RT, clock = lists
        cos, sin = turn
        lines = own[0][0].shape[0] * self.heads
        at_own = own_gaze(rows_RT, shade_RT, clock, new, self.heads, lines, self.slopes_H)
        for i, layer in enumerate(self.layers):
            x_RD = layer(x_RD, own[i], memory[i], new, at_own, at_memory, cos, sin)
        logits_RV: Tensor = self.output(self.norm(x_RD))
        return logits_RV


def exact_of(precision: Precision) -> torch.dtype:
    """The number format of attention itself."""
    return torch.float64 if precision == "float64" else torch.float32
