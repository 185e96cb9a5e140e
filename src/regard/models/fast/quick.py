"""A decoder's step on CUDA by kernels made for it: eleven a layer, where operations one by one take about twenty."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.decode.stepper import StraightLimit
from regard.models.fast.desk import Desk
from regard.models.fast.parts import Stacks, blocks_of
from regard.models.fast.rectangle import Kind, StaticLayer
from regard.nn.block import Residual
from regard.nn.cuda import HAVE_TRITON

if HAVE_TRITON:
    from regard.nn.cuda import step

SIZES = (16, 32, 64, 128)  # of keys and values, as tiles have them


@dataclass(frozen=True, eq=False)
class Norm:
    """A LayerNorm's weights."""

    weight_D: Tensor
    bias_D: Tensor
    eps: float

    @classmethod
    def of(cls, norm: nn.Module, kind: Kind) -> "Norm":
        """Copied from a trained one, as exact as they are there."""
        assert isinstance(norm, nn.LayerNorm), "`serves` was asked"
        weight_D, bias_D = (each.detach().to(kind.device) for each in (norm.weight, norm.bias))
        return cls(weight_D, bias_D, norm.eps)


def serves(model: Stacks, layers: Sequence[StaticLayer], kind: Kind) -> bool:
    """Whether every part of a decoder is what the kernels know."""
    first = layers[0]
    plain = all(each.between is None and not each.turns for each in (first.own, first.cross))
    return (
        HAVE_TRITON
        and kind.device.type == "cuda"
        and kind.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and plain
        and {*first.own.sizes, *first.cross.sizes} <= set(SIZES)
        and not model.decoder.sight.slopes
        and model.decoder.sight.window is None
        and (first.around_self.first or isinstance(model.decoder.norm, nn.Identity))
        and all(type(each) is nn.LayerNorm for each in _norms(model))
    )


class QuickDecoder:
    """All layers of a decoder, for one new token a row."""

    def __init__(self, model: Stacks, layers: Sequence[StaticLayer], kind: Kind) -> None:
        """Run these layers; `serves` was asked."""
        self.layers, self.first = layers, layers[0].around_self.first
        norms = [Norm.of(each, kind) for each in _norms(model)]
        # Before each sub-layer, and behind the last; or behind each.
        self.before = norms[0] if self.first else None
        self.behind = norms[1:] if self.first else norms

    def __call__(self, x_RD: Float[Tensor, "R D"], desk: Desk) -> Float[Tensor, "R D"]:
        """The state of each row, from which the next token is told."""
        entered_RD, behind = x_RD, iter(self.behind)
        if self.before is not None:
            _, entered_RD = self._add(x_RD, torch.zeros_like(x_RD), self.before)
        for layer in self.layers:
            for sublayer in (self._own, self._memory, self._inner):
                x_RD, entered_RD = self._add(x_RD, sublayer(layer, entered_RD, desk), next(behind))
        return entered_RD

    def pick(
        self, logits_RV: Float[Tensor, "R V"], vocabulary: int, limit: StraightLimit
    ) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"], Float[Tensor, " R"]]:
        """The most probable token of each row that is allowed, its log-probability, and that of the end."""
        return step.pick(logits_RV, vocabulary, limit.banned, limit.end, limit.short_B)

    def _add(self, x_RD: Tensor, y_RD: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """The stream with what a sub-layer made, and what the next one is given."""
        sum_RD, normed_RD = step.add_norm(x_RD, y_RD, norm.weight_D, norm.bias_D, norm.eps)
        return (sum_RD if self.first else normed_RD), normed_RD

    def _own(self, layer: StaticLayer, x_RD: Tensor, desk: Desk) -> Tensor:
        """The look at the hypothesis itself."""
        table = desk.own_keys[layer.number], desk.own_values[layer.number]
        heads = layer.own
        return heads.out(step.attend_own(layer.qkv(x_RD), table, desk.shade_BWK, desk.new_W, heads.heads, heads.scale))

    def _memory(self, layer: StaticLayer, x_RD: Tensor, desk: Desk) -> Tensor:
        """The look at the source."""
        table, heads = (desk.keys[layer.number], desk.values[layer.number]), layer.cross
        told = heads.heads, desk.shape.beams, heads.scale
        return heads.out(step.attend_memory(layer.query(x_RD), table, desk.shade_BS, *told))

    def _inner(self, layer: StaticLayer, x_RD: Tensor, desk: Desk) -> Tensor:
        """The feed-forward layer."""
        inner = layer.inner
        return inner.narrow(inner.widen.relu(x_RD) if inner.fused else inner.bend(inner.widen(x_RD)))


def _norms(model: Stacks) -> list[nn.Module]:
    """The norms of a decoder in the order in which a token meets them."""
    residuals: list[Residual] = []
    for block in blocks_of(model.decoder):
        residuals += [each for each in (block.around_self, block.around_cross, block.around_feedforward) if each]
    norms = [each.norm for each in residuals]
    return [*norms, model.decoder.norm] if residuals[0].norm_first else norms
