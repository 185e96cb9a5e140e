"""Layers over rectangles of fixed shape: the encoder's, and the decoder's for one new token a row."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from regard.models.fast.desk import Desk
from regard.models.fast.linear import Linear, Plain, Precision, dtype_of
from regard.models.fast.parts import Around, Heads, Inner, Turn
from regard.nn.attention.multihead import CrossAttention
from regard.nn.block import Block
from regard.nn.cuda import HAVE_TRITON, serves

if HAVE_TRITON:
    from regard.nn.cuda.step import FEW, few_rows


@dataclass(frozen=True)
class Kind:
    """Where a model is computed, and in what."""

    device: torch.device
    precision: Precision

    @property
    def dtype(self) -> torch.dtype:
        """Its number format."""
        return dtype_of(self.precision)

    def linear(self, weight: Tensor, bias: Tensor | None, precision: Precision | None = None) -> Linear:
        """A linear layer there."""
        weight = weight.detach().to(self.device, self.dtype)
        bias = None if bias is None else bias.detach().to(self.device, self.dtype)
        return Fused(weight, bias) if self.device.type == "cuda" and bias is not None else Plain(weight, bias)


class StaticLayer:
    """A layer over rectangles: of the encoder, or with attention to a memory, of the decoder."""

    def __init__(self, block: Block, cross: CrossAttention | None, number: int, like: "Kind") -> None:
        """Take the weights from a trained one."""
        self.number, self.dtype, make = number, like.dtype, like.linear
        self.own, self.qkv = Heads(block.self, like.precision, make), make(block.self.qkv.weight, block.self.qkv.bias)
        self.inner = Inner(block.feedforward, like.precision, make)
        self.around_self, self.around_inner = (
            Around(each, like.dtype, like.device) for each in (block.around_self, block.around_feedforward)
        )
        if cross is not None and block.around_cross is not None:
            self.cross, self.around_cross = (
                Heads(cross, like.precision, make),
                Around(block.around_cross, like.dtype, like.device),
            )
            self.query, self.kv = (make(each.weight, each.bias) for each in (cross.query, cross.kv))
        for heads in (self.own, *([self.cross] if cross is not None else [])):
            heads.between = None if heads.between is None else heads.between.to(like.device, like.dtype)

    def encode(self, x_ND: Float[Tensor, "N D"], mask: Tensor, turn: Turn | None) -> Float[Tensor, "N D"]:
        """Let every token of a rectangle look at its sentence."""
        q_NF, k_NF, v_NF = self.own.split(self.qkv(self.around_self.enter(x_ND)), 0, 0, 1)
        k_NF = self.own.key(k_NF.contiguous(), turn)
        rows = mask.shape[0]
        q, k, v = (
            _heads(each, rows, self.own.heads)
            for each in (self.own.query(q_NF.contiguous(), turn).flatten(1), k_NF, v_NF)
        )
        x_ND = self.around_self.leave(self.own.out.add(_mixed(q, k, v, mask, self.own.scale), x_ND))
        return self.around_inner.leave(self.inner.add(self.around_inner.enter(x_ND), x_ND))

    def keep(self, memory_ND: Float[Tensor, "N D"], desk: Desk) -> None:
        """Put keys and values of the memory on the desk, zero where there is no token."""
        hidden_BHSE = ~desk.real()[:, None, :, None]
        for table, part in zip((desk.keys, desk.values), self.cross.split(self.kv(memory_ND), 0, 1), strict=True):
            table[self.number].copy_(_heads(part, desk.shape.sentences, self.cross.heads).masked_fill(hidden_BHSE, 0))

    def step(self, x_RD: Float[Tensor, "R D"], desk: Desk, masks: tuple[Tensor, Tensor], turn: Turn | None) -> Tensor:
        """Pass one new token a row through the layer."""
        places, rows = masks[0].shape[-1], desk.shape.sentences
        q_BHWE, k_BHWE, v_BHWE = self._project(x_RD, rows, turn)
        desk.write(self.number, k_BHWE, v_BHWE)
        keys, values = (table[self.number][:, :, :places] for table in (desk.own_keys, desk.own_values))
        x_RD = self.around_self.leave(self.own.out.add(_mixed(q_BHWE, keys, values, masks[0], self.own.scale), x_RD))
        q_BHWE = _heads(
            self.cross.query(self.query(self.around_cross.enter(x_RD)), None).flatten(1), rows, self.cross.heads
        )
        mixed_RF = _mixed(q_BHWE, desk.keys[self.number], desk.values[self.number], masks[1], self.cross.scale)
        x_RD = self.around_cross.leave(self.cross.out.add(mixed_RF, x_RD))
        return self.around_inner.leave(self.inner.add(self.around_inner.enter(x_RD), x_RD))

    def _project(self, x_ND: Float[Tensor, "N D"], rows: int, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of so many rows, cut into heads and turned."""
        q_NF, k_NF, v_NF = self.own.split(self.qkv(self.around_self.enter(x_ND)), 0, 0, 1)
        q_NF, k_NF = self.own.query(q_NF, turn).flatten(1), self.own.key(k_NF, turn)
        return (
            _heads(q_NF, rows, self.own.heads),
            _heads(k_NF, rows, self.own.heads),
            _heads(v_NF, rows, self.own.heads),
        )


class Fused(Plain):
    """A linear layer on CUDA, whose kernels also cut off what is negative; few rows have one of their own."""

    def __call__(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Project each row."""
        if self.bias is not None and _few(x_ND):
            return few_rows(x_ND, self.weight, self.bias)
        return functional.linear(x_ND, self.weight, self.bias)

    def relu(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Project each row and cut off what is negative."""
        assert self.bias is not None
        if _few(x_ND):
            return few_rows(x_ND, self.weight, self.bias, relu=True)
        return torch._addmm_activation(self.bias, x_ND, self.weight.t(), use_gelu=False)


def _few(x_ND: Float[Tensor, "N D"]) -> bool:
    """Whether there is a kernel for so few rows."""
    return serves(x_ND) and x_ND.shape[0] <= FEW


def _heads(x_NF: Float[Tensor, "N F"], rows: int, heads: int) -> Float[Tensor, "B H Q E"]:
    """Rows of several vectors each, cut into heads."""
    return x_NF.view(rows, -1, heads, x_NF.shape[1] // heads).transpose(1, 2)


def _mixed(q_BHQE: Tensor, k_BHKE: Tensor, v_BHKE: Tensor, mask: Tensor, scale: float) -> Float[Tensor, "N F"]:
    """Attention, with the heads put side by side again."""
    mixed_BHQE = scaled_dot_product_attention(q_BHQE, k_BHKE, v_BHKE, attn_mask=mask, scale=scale)
    return mixed_BHQE.transpose(1, 2).reshape(q_BHQE.shape[0] * q_BHQE.shape[2], -1)
