"""Layers over batches of fixed shape: encoder, prefill, and the decoder for one new token a row."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from regard.engines.layers import EngineFeedForward, EngineResidual, QueryKeyTransform, Rotation
from regard.engines.linear import PlainLinear, Precision, stream_dtype
from regard.engines.workspace import Workspace
from regard.nn.attention.multihead import CrossAttention
from regard.nn.block import Residual, TransformerBlock
from regard.nn.cuda import HAVE_TRITON, supports

if HAVE_TRITON:
    from regard.nn.cuda.decode_step import FEW_ROWS, linear_few_rows


@dataclass(frozen=True)
class Target:
    """The device and the precision a model is converted to."""

    device: torch.device
    precision: Precision

    @property
    def dtype(self) -> torch.dtype:
        """Return the number format."""
        return stream_dtype(self.precision)

    def linear(self, weight: Tensor, bias: Tensor | None) -> PlainLinear:
        """Return a linear layer on the device."""
        weight = weight.detach().to(self.device, self.dtype)
        bias = None if bias is None else bias.detach().to(self.device, self.dtype)
        return (
            CUDALinear(weight, bias) if self.device.type == "cuda" and bias is not None else PlainLinear(weight, bias)
        )

    def residual(self, residual: Residual) -> EngineResidual:
        """Return a residual connection on the device."""
        return EngineResidual(residual, self.dtype, self.device)


class CUDALinear(PlainLinear):
    """A linear layer on CUDA, whose kernel applies ReLU as well. A kernel of our own serves few rows."""

    bias: Tensor

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Project each row."""
        return (
            linear_few_rows(x_ND, self.weight, self.bias)
            if _are_few(x_ND)
            else functional.linear(x_ND, self.weight, self.bias)
        )

    def relu(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Project each row and apply ReLU."""
        if _are_few(x_ND):
            return linear_few_rows(x_ND, self.weight, self.bias, relu=True)
        return torch._addmm_activation(self.bias, x_ND, self.weight.t(), use_gelu=False)


class StaticCrossAttention:
    """Attention to the memory, with its residual connection."""

    def __init__(self, cross: CrossAttention, residual: Residual, number: int, target: Target) -> None:
        """Convert a trained attention of the layer with this number."""
        self.number, self.residual = number, target.residual(residual)
        linears = (cross.query, cross.kv, cross.out)
        self.q, self.kv, self.out = (target.linear(linear.weight, linear.bias) for linear in linears)
        self.query = QueryKeyTransform(cross, target.dtype, target.device)

    def keep(self, memory_ND: Float[Tensor, "N D"], work: Workspace) -> None:
        """Write keys and values of the memory into the workspace, zero where there is no token."""
        padding_BHSE = ~work.is_token()[:, None, :, None]
        widths = [self.query.heads * self.query.key_size, self.query.heads * self.query.value_size]
        for table, part in zip((work.keys, work.values), torch.split(self.kv(memory_ND), widths, 1), strict=True):
            part_BHSE = _split_heads(part, work.shape.sentences, self.query.heads)
            table[self.number].copy_(part_BHSE.masked_fill(padding_BHSE, 0))

    def step(self, x_RD: Float[Tensor, "R D"], work: Workspace, rotation: Rotation) -> Float[Tensor, "R D"]:
        """Let one token a row attend to its memory."""
        q_RF = self.query(self.q(self.residual.enter(x_RD)), *rotation)
        q_BHWE = _split_heads(q_RF, work.shape.sentences, self.query.heads)
        keys, values = work.keys[self.number], work.values[self.number]
        mixed_RF = _attend(q_BHWE, keys, values, work.bias_BS[:, None, None], self.query.scale)
        left_RD: Tensor = self.residual.leave(self.out.add(mixed_RF, x_RD))
        return left_RD


class StaticLayer:
    """A layer of an encoder or a decoder; cross-attention is optional."""

    def __init__(self, block: TransformerBlock, number: int, target: Target) -> None:
        """Convert a trained layer, which has this number in its stack."""
        self.number, attention = number, block.self
        self.qkv, self.out = (target.linear(linear.weight, linear.bias) for linear in (attention.qkv, attention.out))
        self.query = QueryKeyTransform(attention, target.dtype, target.device)
        self.residual = target.residual(block.around_self)
        self.widths = [
            attention.heads * size for size in (attention.key_size, attention.key_size, attention.value_size)
        ]
        self.feedforward = EngineFeedForward(
            block.feedforward, target.residual(block.around_feedforward), target.linear
        )
        self.cross = None
        if block.cross is not None and block.around_cross is not None:
            self.cross = StaticCrossAttention(block.cross, block.around_cross, number, target)

    def forward(
        self, x_ND: Float[Tensor, "N D"], mask: Tensor, rotation: Rotation, work: Workspace | None = None
    ) -> Float[Tensor, "N D"]:
        """Let every token of a padded batch attend to its own sequence.

        Args:
            x_ND: The residual stream, rows of the padded batch end to end.
            mask: What is added to scores, B by heads (or 1) by S by S.
            rotation: Cosine and sine for rotary positions.
            work: Where to write keys and values, as a language model's prefill does.
        """
        rows = mask.shape[0]
        q_BHSE, k_BHSE, v_BHSE = self._project(x_ND, rows, rotation, contiguous=True)
        if work is not None:
            padding_BHSE = ~work.is_token()[:, None, :, None]
            work.own_keys[self.number][:, :, : work.prompt] = k_BHSE.masked_fill(padding_BHSE, 0)
            work.own_values[self.number][:, :, : work.prompt] = v_BHSE.masked_fill(padding_BHSE, 0)
        mixed_NF = _attend(q_BHSE, k_BHSE, v_BHSE, mask, self.query.scale)
        left_ND: Tensor = self.feedforward(self.residual.leave(self.out.add(mixed_NF, x_ND)))
        return left_ND

    def step(self, x_RD: Float[Tensor, "R D"], work: Workspace, own_mask: Tensor, rotation: Rotation) -> Tensor:
        """Pass one new token a row through the layer."""
        columns, rows = own_mask.shape[-1], work.shape.sentences
        q_BHWE, k_BHWE, v_BHWE = self._project(x_RD, rows, rotation)
        work.write(self.number, k_BHWE, v_BHWE)
        keys, values = (table[self.number][:, :, :columns] for table in (work.own_keys, work.own_values))
        mixed_RF = _attend(q_BHWE, keys, values, own_mask, self.query.scale)
        x_RD = self.residual.leave(self.out.add(mixed_RF, x_RD))
        if self.cross is not None:
            x_RD = self.cross.step(x_RD, work, rotation)
        left_RD: Tensor = self.feedforward(x_RD)
        return left_RD

    def _project(
        self, x_ND: Float[Tensor, "N D"], rows: int, rotation: Rotation, contiguous: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of this many rows, split into heads and rotated."""
        q_NF, k_NF, v_NF = torch.split(self.qkv(self.residual.enter(x_ND)), self.widths, 1)
        if contiguous:  # for attention over many queries
            q_NF, k_NF = q_NF.contiguous(), k_NF.contiguous()
        q_NF, k_NF, heads = self.query(q_NF, *rotation), self.query.key(k_NF, *rotation), self.query.heads
        return _split_heads(q_NF, rows, heads), _split_heads(k_NF, rows, heads), _split_heads(v_NF, rows, heads)


def _are_few(x_ND: Float[Tensor, "N D"]) -> bool:
    """Return whether a kernel of our own serves so few rows."""
    return supports(x_ND) and x_ND.shape[0] <= FEW_ROWS


def _split_heads(x_NF: Float[Tensor, "N F"], rows: int, heads: int) -> Float[Tensor, "B H Q E"]:
    """Split vectors into heads, the same number of vectors for each row."""
    return x_NF.view(rows, -1, heads, x_NF.shape[1] // heads).transpose(1, 2)


def _attend(q_BHQE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, mask: Tensor, scale: float) -> Float[Tensor, "N F"]:
    """Return what attention mixes, the heads side by side."""
    mixed_BHQE = scaled_dot_product_attention(q_BHQE, k_BHKE, v_BHKE, attn_mask=mask, scale=scale)
    return mixed_BHQE.transpose(1, 2).reshape(q_BHQE.shape[0] * q_BHQE.shape[2], -1)
