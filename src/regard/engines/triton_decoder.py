"""A decoder's step on CUDA with fused Triton kernels: eleven a layer, where separate operations take about twenty."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decode.stepper import GreedyLimits
from regard.engines.parts import TransformerParts
from regard.engines.static_layers import StaticLayer, Target
from regard.engines.workspace import Workspace
from regard.nn.cuda import HAVE_TRITON

if HAVE_TRITON:
    from regard.nn.cuda import decode_step

SIZES = (16, 32, 64, 128)  # of keys and values that tiles support


@dataclass(frozen=True, eq=False)
class LayerNormWeights:
    """The weights of a LayerNorm on the device."""

    weight_D: Tensor
    bias_D: Tensor
    eps: float

    @classmethod
    def of(cls, norm: nn.Module, target: Target) -> "LayerNormWeights":
        """Copy the weights of a trained norm in their own number format."""
        assert isinstance(norm, nn.LayerNorm), "`can_serve` was asked"
        weight_D, bias_D = (weight.detach().to(target.device) for weight in (norm.weight, norm.bias))
        return cls(weight_D, bias_D, norm.eps)


def can_serve(model: TransformerParts, layers: Sequence[StaticLayer], target: Target) -> bool:
    """Return whether the kernels support every part of a decoder."""
    first, decoder = layers[0], model.decoder
    queries = [first.query, *([] if first.cross is None else [first.cross.query])]
    return (
        HAVE_TRITON
        and target.device.type == "cuda"
        and target.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and not any(query.bilinear or query.rotary for query in queries)
        and {size for query in queries for size in (query.key_size, query.value_size)} <= set(SIZES)
        and not decoder.mask.slopes
        and decoder.mask.window is None
        and (first.residual.norm_first or isinstance(decoder.norm, nn.Identity))
        and all(type(norm) is nn.LayerNorm for norm in _norms(model))
    )


class TritonDecoder:
    """All layers of a decoder, for one new token a row."""

    def __init__(self, model: TransformerParts, layers: Sequence[StaticLayer], target: Target) -> None:
        """Run these layers, which `can_serve` has accepted."""
        self.layers, self.norm_first = layers, layers[0].residual.norm_first
        norms = [LayerNormWeights.of(norm, target) for norm in _norms(model)]
        # Norm-first layers have a norm before each sub-layer and one after the last; norm-last layers one after each.
        self.first_norm = norms[0] if self.norm_first else None
        self.following_norms = norms[1:] if self.norm_first else norms

    def __call__(self, x_RD: Float[Tensor, "R D"], work: Workspace) -> Float[Tensor, "R D"]:
        """Return the decoder's state of each row, before the output layer."""
        entered_RD, following = x_RD, iter(self.following_norms)
        if self.first_norm is not None:
            _, entered_RD = self._add(x_RD, torch.zeros_like(x_RD), self.first_norm)
        for layer in self.layers:
            sublayers = (self._self_attention, self._cross_attention, self._feedforward)
            for sublayer in sublayers if layer.cross is not None else sublayers[::2]:
                x_RD, entered_RD = self._add(x_RD, sublayer(layer, entered_RD, work), next(following))
        return entered_RD

    def pick(
        self, logits_RV: Float[Tensor, "R V"], vocabulary: int, limit: GreedyLimits
    ) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"], Float[Tensor, " R"]]:
        """Return the most probable allowed token of each row, its log-probability, and that of the end symbol."""
        return decode_step.pick_best_token(logits_RV, vocabulary, limit.banned, limit.end, limit.short_B)

    def _add(self, x_RD: Tensor, y_RD: Tensor, norm: LayerNormWeights) -> tuple[Tensor, Tensor]:
        """Add a sub-layer's output to the residual stream; return the stream and the input of the next sub-layer."""
        sum_RD, normed_RD = decode_step.add_norm(x_RD, y_RD, norm.weight_D, norm.bias_D, norm.eps)
        return (sum_RD if self.norm_first else normed_RD), normed_RD

    def _self_attention(self, layer: StaticLayer, x_RD: Tensor, work: Workspace) -> Tensor:
        """Attend to the row's own tokens."""
        table, query = (work.own_keys[layer.number], work.own_values[layer.number]), layer.query
        sizes = query.heads, query.scale
        mixed_RF = decode_step.attend_self(layer.qkv(x_RD), table, work.own_bias_BWK, work.new_W, *sizes)
        attended: Tensor = layer.out(mixed_RF)
        return attended

    def _cross_attention(self, layer: StaticLayer, x_RD: Tensor, work: Workspace) -> Tensor:
        """Attend to the memory."""
        cross = layer.cross
        assert cross is not None, "the layer has cross-attention"
        table, query = (work.keys[layer.number], work.values[layer.number]), cross.query
        sizes = query.heads, work.shape.beams, query.scale
        attended: Tensor = cross.out(decode_step.attend_cross(cross.q(x_RD), table, work.bias_BS, *sizes))
        return attended

    def _feedforward(self, layer: StaticLayer, x_RD: Tensor, work: Workspace) -> Tensor:
        """Apply the feed-forward layer."""
        transformed: Tensor = layer.feedforward.narrow(layer.feedforward.inner(x_RD))
        return transformed


def _norms(model: TransformerParts) -> list[nn.Module]:
    """Return the norms of a decoder in the order in which a token passes them."""
    norms, norm_first = [], False
    for block in model.decoder.blocks:
        for residual in (block.around_self, block.around_cross, block.around_feedforward):
            if residual is not None:
                norms.append(residual.norm)
                norm_first = residual.norm_first
    return [*norms, model.decoder.norm] if norm_first else norms
