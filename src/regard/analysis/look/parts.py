"""Where a model of any family looks: its attentions by part and layer, as modules with taps."""

from dataclasses import dataclass
from typing import Literal

from regard.models.convolutional.stack import ConvolutionalDecoder
from regard.models.recurrent.bahdanau import BahdanauDecoder
from regard.models.recurrent.luong import LuongDecoder
from regard.models.recurrent.sutskever import SutskeverDecoder
from regard.models.seq2seq import Seq2Seq
from regard.nn.attention.alignment import Alignment
from regard.nn.attention.multihead import CrossAttention, MultiHeadAttention
from regard.nn.tap import Tap

PartName = Literal["encoder", "decoder", "cross"]
PARTS: tuple[PartName, ...] = ("encoder", "decoder", "cross")

Attention = MultiHeadAttention | Alignment


@dataclass(frozen=True, eq=False)
class Place:
    """One attention of a model: the dotted name of its module, and the module."""

    name: str
    module: Attention

    @property
    def heads(self) -> int:
        """How many look side by side; one where the family knows no heads."""
        return self.module.heads if isinstance(self.module, MultiHeadAttention) else 1

    @property
    def weights(self) -> str:
        """The name of the tap on its weights."""
        return f"{self.name}.weights"

    @property
    def mixed(self) -> str:
        """What the tap on what each head made of the values is called in the module."""
        return "mixed" if isinstance(self.module, MultiHeadAttention) else "context"

    def tap(self, name: str) -> Tap:
        """One of its taps. Found here, and not by a pattern over the whole model, which takes longer than a layer."""
        found = self.module.get_submodule(name)
        assert isinstance(found, Tap)
        return found


Parts = dict[PartName, tuple[Place, ...]]
"""The attentions of each part a family has, layer by layer."""


def parts_of(model: Seq2Seq) -> Parts:
    """Encoder self, decoder self and cross attention of a model; a part it has not is absent."""
    found: dict[PartName, list[Place]] = {name: [] for name in PARTS}
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention | Alignment):
            across = isinstance(module, CrossAttention | Alignment)
            part: PartName = "cross" if across else "encoder" if name.startswith("encoder.") else "decoder"
            found[part].append(Place(name, module))
    return {part: tuple(places) for part, places in found.items() if places}


def family_of(model: Seq2Seq) -> str:
    """The name of a model's family, as a recipe has it."""
    match model.decoder:
        case SutskeverDecoder():
            return "sutskever"
        case BahdanauDecoder():
            return "bahdanau"
        case LuongDecoder():
            return "luong"
        case ConvolutionalDecoder():
            return "convs2s"
        case _:
            return "transformer"
