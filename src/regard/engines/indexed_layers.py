"""The layers of a Transformer on a CPU, with packed linear layers and indexed attention, compiled by TorchScript.

A decoding step is hundreds of small kernels. Called from Python one by one, each costs nearly as much again before it
begins, and worker threads wait for the interpreter lock. Compiled, a step is one call, which does not hold the lock.
"""

import warnings
from functools import partial
from typing import Any, TypeVar, no_type_check

import torch
from torch import Tensor, nn

from regard.engines.indexed_attention import attend, self_attention_index
from regard.engines.layers import EngineFeedForward, EngineResidual, QueryKeyTransform
from regard.engines.linear import Precision, attention_dtype, pack, stream_dtype
from regard.nn.attention.multihead import CrossAttention
from regard.nn.block import Residual, TransformerBlock

Code = TypeVar("Code")


def compile_script(code: Code) -> Code:
    """Compile a module or function by TorchScript; return it unchanged where this torch has no TorchScript."""
    if not hasattr(torch.jit, "script"):
        return code
    with warnings.catch_warnings():
        # TorchScript is deprecated in favour of torch.compile, which needs a C++ compiler on every user's machine.
        warnings.simplefilter("ignore")
        script: Any = torch.jit.script(code)
    compiled: Code = script
    return compiled


@no_type_check
class IndexedLayer(nn.Module):
    """Self-attention and feed-forward, as encoder and decoder layers share them."""

    def __init__(self, block: TransformerBlock, precision: Precision) -> None:
        """Pack the weights of a trained layer."""
        super().__init__()
        attention, dtype, make = block.self, stream_dtype(precision), partial(pack, precision=precision)
        self.qkv, self.out = (make(linear.weight, linear.bias) for linear in (attention.qkv, attention.out))
        self.query = QueryKeyTransform(attention, attention_dtype(precision))
        self.widths = [
            attention.heads * size for size in (attention.key_size, attention.key_size, attention.value_size)
        ]
        self.residual = EngineResidual(block.around_self, dtype)
        self.feedforward = EngineFeedForward(block.feedforward, EngineResidual(block.around_feedforward, dtype), make)

    def project(self, x_ND: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
        """Return queries, keys and values, ready to be multiplied."""
        q_NF, k_NF, v_NF = torch.split(self.qkv(self.residual.enter(x_ND)).to(cos), self.widths, 1)
        return [self.query(q_NF, cos, sin), self.query.key(k_NF, cos, sin), v_NF]

    def leave(self, mixed_NF: Tensor, x_ND: Tensor) -> Tensor:
        """Return the residual stream after the layer, given what attention mixed and the stream before it."""
        left_ND: Tensor = self.feedforward(self.residual.leave(self.out.add(mixed_NF.to(x_ND), x_ND)))
        return left_ND


@no_type_check
class IndexedEncoderLayer(IndexedLayer):
    """A layer over a ragged batch, every token of which attends to its own sequence."""

    def forward(
        self, x_ND: Tensor, index: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], cos: Tensor, sin: Tensor
    ) -> Tensor:
        """Pass a ragged batch through the layer."""
        q_NF, k_NF, v_NF = self.project(x_ND, cos, sin)
        keys, values = k_NF.reshape(-1, self.query.key_size).t(), v_NF.reshape(-1, self.query.value_size)
        return self.leave(attend(q_NF, keys, values, self.query.scale, index), x_ND)


@no_type_check
class IndexedCrossAttention(nn.Module):
    """Attention to the memory, with its residual connection."""

    def __init__(self, cross: CrossAttention, residual: Residual, precision: Precision) -> None:
        """Pack the weights of a trained attention."""
        super().__init__()
        linears = (cross.query, cross.kv, cross.out)
        self.q, self.kv, self.out = (pack(linear.weight, linear.bias, precision) for linear in linears)
        self.query = QueryKeyTransform(cross, attention_dtype(precision))
        self.widths = [cross.heads * cross.key_size, cross.heads * cross.value_size]
        self.residual = EngineResidual(residual, stream_dtype(precision))
        self.casts = stream_dtype(precision) != attention_dtype(precision)

    @torch.jit.unused
    def keys_and_values(self, memory_ND: Tensor) -> list[Tensor]:
        """Project a memory to keys and values."""
        return list(torch.split(self.kv(memory_ND), self.widths, 1))

    def forward(
        self,
        x_RD: Tensor,
        memory: tuple[Tensor, Tensor],
        index: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        cos: Tensor,
        sin: Tensor,
    ) -> Tensor:
        """Let one token a row attend to its memory."""
        q_RF = self.q(self.residual.enter(x_RD))
        if self.casts:
            q_RF = q_RF.to(cos)
        mixed_RF = attend(self.query(q_RF, cos, sin), memory[0], memory[1], self.query.scale, index)
        return self.residual.leave(self.out.add(mixed_RF.to(x_RD) if self.casts else mixed_RF, x_RD))


@no_type_check
class IndexedDecoderLayer(IndexedLayer):
    """A layer for one new token a row; it has cross-attention where there is a memory."""

    def __init__(self, block: TransformerBlock, precision: Precision) -> None:
        """Pack the weights of a trained layer."""
        super().__init__(block, precision)
        self.casts = stream_dtype(precision) != attention_dtype(precision)
        self.cross = None
        if block.cross is not None and block.around_cross is not None:
            self.cross = IndexedCrossAttention(block.cross, block.around_cross, precision)

    def forward(
        self,
        x_RD: Tensor,
        own: tuple[Tensor, Tensor, Tensor, Tensor],
        memory: tuple[Tensor, Tensor],
        new: int,
        own_index: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        memory_index: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        cos: Tensor,
        sin: Tensor,
    ) -> Tensor:
        """Pass one new token a row through the layer; write its key and value to the tables `own` from row `new` on."""
        end = new + x_RD.shape[0]
        keys_NF, values_NF, keys, values = own
        qkv_RF = self.qkv(self.residual.enter(x_RD))
        if self.casts:
            qkv_RF = qkv_RF.to(cos)
        q_RF, k_RF, v_RF = torch.split_with_sizes(qkv_RF, self.widths, 1)
        keys_NF[new:end].copy_(self.query.key(k_RF, cos, sin))
        values_NF[new:end].copy_(v_RF)
        mixed_RF = attend(self.query(q_RF, cos, sin), keys, values, self.query.scale, own_index)
        x_RD = self.residual.leave(self.out.add(mixed_RF.to(x_RD) if self.casts else mixed_RF, x_RD))
        if self.cross is not None:
            x_RD = self.cross(x_RD, memory, memory_index, cos, sin)
        left_RD: Tensor = self.feedforward(x_RD)
        return left_RD


@no_type_check
class IndexedDecoder(nn.Module):
    """All layers of a decoder and its output, for one new token a row."""

    def __init__(self, layers: list[IndexedDecoderLayer], norm: nn.Module, output: nn.Module, slopes_H: Tensor) -> None:
        """Put the parts together; `slopes_H` are ALiBi's, or empty."""
        super().__init__()
        self.layers, self.norm, self.output = nn.ModuleList(layers), norm, output
        self.heads, self.slopes_H = layers[0].query.heads, slopes_H

    def forward(
        self,
        x_RD: Tensor,
        rows: tuple[Tensor, Tensor, int],
        new: int,
        own: list[tuple[Tensor, Tensor, Tensor, Tensor]],
        memory: list[tuple[Tensor, Tensor]],
        memory_index: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        rotation: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Return the logits after one new token a row.

        Args:
            x_RD: The embedded tokens.
            rows: For each row, the table rows of its tokens; what is added to their scores; columns in use.
            new: First table row for the new keys and values.
            own: For each layer, the tables of the rows' own keys and values, and views of them by head.
            memory: For each layer, views by head of the memory's keys and values.
            memory_index: Where each row attends in the memory.
            rotation: Cosine and sine for rotary positions, or empty.
        """
        rows_RT, bias_RT, columns = rows
        cos, sin = rotation
        table_lines = own[0][0].shape[0] * self.heads
        own_index = self_attention_index(rows_RT, bias_RT, columns, new, self.heads, table_lines, self.slopes_H)
        for i, layer in enumerate(self.layers):
            x_RD = layer(x_RD, own[i], memory[i], new, own_index, memory_index, cos, sin)
        logits_RV: Tensor = self.output(self.norm(x_RD))
        return logits_RV
