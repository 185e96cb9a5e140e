"""Transformer blocks: sub-layers, each with a residual connection and a norm (Vaswani et al. 2017, §3.1)."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import AttentionPlan
from regard.nn.cuda import HAVE_TRITON, supports
from regard.nn.dropout import Dropout
from regard.nn.feedforward import FeedForward
from regard.nn.norm import make_norm
from regard.nn.tap import Tap

if HAVE_TRITON:
    from regard.nn.cuda import residual

Sublayer = SelfAttention | CrossAttention | FeedForward
MAX_FUSED_WIDTH = 4096  # a program of the fused kernel holds whole rows


class Residual(nn.Module):
    """The residual connection around a sub-layer f, with dropout and a norm.

    Post-norm computes LayerNorm(x + dropout(f(x))) (Vaswani et al. 2017, §3.1), pre-norm x + dropout(f(LayerNorm(x)))
    (Xiong et al. 2020).
    """

    def __init__(self, norm: nn.Module, norm_first: bool, dropout: float) -> None:
        """Create a connection; `norm_first` selects pre-norm."""
        super().__init__()
        self.norm, self.norm_first = norm, norm_first
        self.drop, self.stream = Dropout(dropout), Tap()

    def sublayer_input(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Return the input of the sub-layer: the norm of the residual stream for pre-norm, else the stream itself."""
        entered: Tensor = self.norm(x_ND) if self.norm_first else x_ND
        return entered

    def add(self, x_ND: Float[Tensor, "N D"], y_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Return the residual stream after the sub-layer, whose output is `y_ND`."""
        x_ND = x_ND + self.drop(y_ND)
        stream_ND: Tensor = self.stream(x_ND if self.norm_first else self.norm(x_ND))
        return stream_ND

    def run_sublayer(
        self, x_ND: Float[Tensor, "N D"], sublayer: Sublayer, inputs: tuple[Any, ...], next_norm: nn.Module
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
        """Run a sub-layer and add its output to the residual stream.

        On CUDA, one kernel adds the bias and the stream, applies dropout and computes the norm that comes next.

        Args:
            x_ND: The residual stream.
            sublayer: The sub-layer.
            inputs: The arguments of the sub-layer; the first is its input, already normalised for pre-norm.
            next_norm: The norm at the input of the next sub-layer, which pre-norm applies here.

        Returns:
            The new residual stream and the input of the next sub-layer. With post-norm they are the same tensor.
        """
        norm = next_norm if self.norm_first else self.norm
        if self.stream.watched or not _can_fuse(x_ND, norm):
            x_ND = self.add(x_ND, sublayer(*inputs))
            return x_ND, next_norm(x_ND) if self.norm_first else x_ND
        bias_D = sublayer.output_bias
        y_ND = sublayer(*inputs, skip_bias=bias_D is not None)
        x_ND, entered_ND = _fused_add_norm(x_ND, y_ND, bias_D, norm, self.drop.p if self.training else 0.0)
        return x_ND if self.norm_first else entered_ND, entered_ND


def _can_fuse(x_ND: Float[Tensor, "N D"], norm: nn.Module) -> bool:
    """Return whether the CUDA kernel can process this stream and norm."""
    return type(norm) is nn.LayerNorm and supports(x_ND) and x_ND.shape[1] <= MAX_FUSED_WIDTH and x_ND.is_contiguous()


def _fused_add_norm(
    x_ND: Float[Tensor, "N D"],
    y_ND: Float[Tensor, "N D"],
    added_bias_D: Float[Tensor, " D"] | None,
    norm: nn.Module,
    dropout: float,
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """Return the residual stream x + dropout(y + added_bias) and its LayerNorm, computed by one CUDA kernel."""
    assert isinstance(norm, nn.LayerNorm), "checked by `_can_fuse`"
    seed = torch.randint(2**31 - 1, (1,), device=x_ND.device) if dropout else torch.empty(0, device=x_ND.device)
    inputs = x_ND, y_ND.contiguous(), added_bias_D, norm.weight, norm.bias
    stream_ND, normed_ND, _, _ = residual.add_norm(*inputs, seed, norm.eps, dropout)
    return stream_ND, normed_ND


@dataclass(frozen=True, eq=False)
class LayerCache:
    """The KV caches of one layer during decoding."""

    self_attention: KVCache
    cross_attention: KVCache | None


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention if there is a memory, and a feed-forward layer."""

    def __init__(
        self,
        self_attention: SelfAttention,
        cross_attention: CrossAttention | None,
        feedforward: FeedForward,
        width: int,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Assemble a block from its sub-layers; `dropout` applies to the output of each (§5.4)."""
        super().__init__()
        self.self, self.cross, self.feedforward = self_attention, cross_attention, feedforward
        self.around_self = Residual(make_norm(norm, width), norm_first, dropout)
        self.around_cross = None if cross_attention is None else Residual(make_norm(norm, width), norm_first, dropout)
        self.around_feedforward = Residual(make_norm(norm, width), norm_first, dropout)

    def forward(
        self,
        x_ND: Float[Tensor, "N D"],
        entered_ND: Float[Tensor, "N D"],
        plan: AttentionPlan,
        memory: tuple[Float[Tensor, "N2 D"], AttentionPlan] | None,
        next_norm: nn.Module,
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
        """Process a ragged batch.

        Args:
            x_ND: The residual stream.
            entered_ND: The input of self-attention: the stream, already normalised for pre-norm.
            plan: The plan of self-attention.
            memory: The encoder's states and the plan of cross-attention; None without cross-attention.
            next_norm: The first norm of the next block, or the final norm of the stack.

        Returns:
            The new residual stream and the input of the next block.
        """
        after_self = self.around_cross or self.around_feedforward
        x_ND, entered_ND = self.around_self.run_sublayer(x_ND, self.self, (entered_ND, plan), after_self.norm)
        if self.cross is not None and self.around_cross is not None:
            assert memory is not None, "cross-attention needs a memory"
            inputs = (entered_ND, *memory)
            x_ND, entered_ND = self.around_cross.run_sublayer(x_ND, self.cross, inputs, self.around_feedforward.norm)
        return self.around_feedforward.run_sublayer(x_ND, self.feedforward, (entered_ND,), next_norm)

    def prefill(self, x_ND: Float[Tensor, "N D"], plan: AttentionPlan) -> tuple[Float[Tensor, "N D"], LayerCache]:
        """Process a ragged batch of prompts in a decoder without cross-attention, and return its cache too."""
        assert self.cross is None, "prompts are read by blocks without cross-attention"
        y_ND, cache = self.self.prefill(self.around_self.sublayer_input(x_ND), plan)
        x_ND = self.around_self.add(x_ND, y_ND)
        x_ND = self.around_feedforward.add(x_ND, self.feedforward(self.around_feedforward.sublayer_input(x_ND)))
        return x_ND, LayerCache(cache, None)

    def step(
        self, x_RD: Float[Tensor, "R D"], position_R: Int[Tensor, " R"], cache: LayerCache, mask: AttentionMask
    ) -> tuple[Float[Tensor, "R D"], LayerCache]:
        """Process one new token a row; return its states and the cache with its keys and values."""
        entered_RD = self.around_self.sublayer_input(x_RD)
        y_RD, self_cache = self.self.step(entered_RD, position_R, cache.self_attention, mask)
        x_RD = self.around_self.add(x_RD, y_RD)
        if self.cross is not None and self.around_cross is not None:
            assert cache.cross_attention is not None, "cross-attention needs a memory"
            y_RD = self.cross.step(self.around_cross.sublayer_input(x_RD), cache.cross_attention)
            x_RD = self.around_cross.add(x_RD, y_RD)
        x_RD = self.around_feedforward.add(x_RD, self.feedforward(self.around_feedforward.sublayer_input(x_RD)))
        return x_RD, LayerCache(self_cache, cache.cross_attention)
