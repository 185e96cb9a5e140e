"""The parts of a Transformer that engines run, and which models have them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.engines.layers import ACTIVATIONS
from regard.engines.topk import BLOCK
from regard.models.hierarchical import HierarchicalTransformerEncoder
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import CrossAttention, MultiHeadAttention, SelfAttention
from regard.nn.attention.scores import BilinearScore, DotScore
from regard.nn.block import Residual, TransformerBlock
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.feedforward import FeedForward
from regard.nn.norm import RMSNorm, ScaleNorm
from regard.nn.position import RotaryPositions
from regard.nn.tap import Tap

KNOWN_MODULES = {
    *(Stack, TransformerBlock, SelfAttention, CrossAttention, FeedForward, Residual, Embedding, RotaryPositions),
    *(DotScore, BilinearScore, nn.LayerNorm, nn.RMSNorm, RMSNorm, ScaleNorm),
    *(nn.Identity, nn.Linear, nn.ModuleList, Dropout, Tap),
}
"""The classes whose computation engines copy. A subclass may compute something else and is not among them."""


@dataclass(frozen=True, eq=False)
class TransformerParts:
    """A Transformer that engines support: an encoder-decoder, or a language model, which has no encoder."""

    encoder: Stack | HierarchicalTransformerEncoder | None
    """An encoder that is no stack runs as it is."""
    decoder: Stack
    output: OutputProjection

    def padded_output(self) -> tuple[Tensor, Tensor | None]:
        """Return the output's weight and bias, padded to whole blocks with tokens of probability zero."""
        weight = self.output.weight.detach()
        bias = None if self.output.bias is None else self.output.bias.detach()
        missing = -weight.shape[0] % BLOCK
        if not missing:
            return weight, bias
        bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
        return functional.pad(weight, (0, 0, 0, missing)), functional.pad(bias, (0, missing), value=-torch.inf)


def transformer_parts(model: nn.Module) -> TransformerParts | None:
    """Return the parts of a Transformer, or None if engines lack something that this model has.

    A model with a module that engines do not know is decoded by its own steps: slower, never wrongly.

    Engines need attention heads of one shape in all layers, so that one index serves every layer, and scores that are
    products of queries and keys.
    """
    if type(model) not in (Seq2Seq, LanguageModel) or type(model.output) is not OutputProjection:
        return None
    match model:
        case Seq2Seq(encoder=Stack() | HierarchicalTransformerEncoder() as encoder, decoder=Stack() as decoder):
            parts = TransformerParts(encoder, decoder, model.output)
        case LanguageModel():
            parts = TransformerParts(None, model.decoder, model.output)
        case _:
            return None
    stacks = [stack for stack in (parts.encoder, parts.decoder) if isinstance(stack, Stack)]
    if not all(stack.layers and _is_known(stack) for stack in stacks):
        return None
    crosses = [block.cross for block in parts.decoder.blocks if block.cross is not None]
    crossing = 0 if parts.encoder is None else len(parts.decoder.layers)
    if len(crosses) != crossing or parts.decoder.mask.window is not None:
        return None
    attentions: list[Sequence[MultiHeadAttention]] = [[block.self for block in stack.blocks] for stack in stacks]
    return parts if all(_is_uniform(layers) for layers in (*attentions, crosses)) else None


def _is_known(stack: Stack) -> bool:
    """Return whether engines know every module of a stack; they call the position encoding of an embedding as it is."""
    modules = [module for name, module in stack.named_modules() if not name.startswith("embedding.position")]
    return (
        type(stack.mask) is AttentionMask
        and all(type(module) in KNOWN_MODULES for module in modules)
        and all(type(layer) is TransformerBlock for layer in stack.layers)
        and all(block.feedforward.activation in ACTIVATIONS for block in stack.blocks)
    )


def _is_uniform(attentions: Sequence[MultiHeadAttention]) -> bool:
    """Return whether attentions have heads of one shape, and scores that are products."""
    shapes = {(attention.heads, attention.key_size, attention.value_size) for attention in attentions}
    scores = [attention.score for attention in attentions]
    return len(shapes) <= 1 and all(score.scale is not None or isinstance(score, BilinearScore) for score in scores)
