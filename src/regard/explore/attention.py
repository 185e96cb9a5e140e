"""Find the attention mechanisms of a model: modules with a tap on their weights, by part and layer."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.tap import Tap

AttentionPart = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, or attention from the decoder to the encoder's states."""
PARTS: tuple[AttentionPart, ...] = ("encoder", "decoder", "cross")
DECODER_PARTS: tuple[AttentionPart, ...] = ("decoder", "cross")
"""The parts that run in the decoder's pass."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention mechanism of a model: the dotted name of its module, and the module."""

    name: str
    module: nn.Module

    @property
    def heads(self) -> int:
        """Number of heads; 1 for mechanisms without heads."""
        return self.module.heads if isinstance(self.module, MultiHeadAttention) else 1

    @property
    def weights(self) -> str:
        """Dotted name of the tap on the attention weights."""
        return f"{self.name}.weights"

    @property
    def mixed(self) -> str:
        """Name, within the module, of the tap on the weighted sum of the values."""
        return "mixed" if isinstance(self.module, MultiHeadAttention) else "context"

    def tap(self, name: str) -> Tap:
        """Return a tap of the module. Matching a pattern over the whole model would take longer than a layer."""
        tap = self.module.get_submodule(name)
        assert isinstance(tap, Tap)
        return tap


AttentionLayers = dict[AttentionPart, tuple[AttentionLayer, ...]]
"""The attention mechanisms of each part a model has, layer by layer."""


def attention_layers(model: nn.Module) -> AttentionLayers:
    """Return the attention mechanisms of a model by part, layer by layer; a part the model lacks is absent.

    A mechanism is any module with a tap named `weights`. Its part follows from its name: `….cross` is cross-attention,
    everything else is self-attention of the encoder or of the decoder.
    """
    layers: dict[AttentionPart, list[AttentionLayer]] = {part: [] for part in PARTS}
    for name, module in model.named_modules():
        if isinstance(dict(module.named_children()).get("weights"), Tap):
            part: AttentionPart = "encoder" if name.startswith("encoder.") else "decoder"
            layers["cross" if name.endswith("cross") else part].append(AttentionLayer(name, module))
    return {part: tuple(mechanisms) for part, mechanisms in layers.items() if mechanisms}


def find_layer(layers: AttentionLayers, part: AttentionPart, layer: int, head: int = 0) -> AttentionLayer:
    """Return the attention of a part and layer, or raise a `ValueError` that says what the model has."""
    if part not in layers:
        raise ValueError(f"this model has no '{part}' attention; it has: {', '.join(layers) or 'none at all'}")
    if layer >= len(layers[part]):
        raise ValueError(f"there is no layer {layer} in '{part}' attention; layers are 0 to {len(layers[part]) - 1}")
    mechanism = layers[part][layer]
    if head >= mechanism.heads:
        raise ValueError(f"there is no head {head} in layer {layer} of '{part}'; heads are 0 to {mechanism.heads - 1}")
    return mechanism
