"""From a recipe to a model: the one place where a recipe meets the layers."""

from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Model, Transformer


def build(model: Model, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """The model a recipe asks for, over vocabularies of these sizes."""
    match model:
        case Transformer():
            return outline(model).seq2seq(source_vocabulary, target_vocabulary)


def outline(model: Transformer) -> Outline:
    """A recipe's Transformer in plain values."""
    return Outline(
        width=model.width,
        inner=model.inner,
        heads=model.heads,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        key_size=model.key_size,
        value_size=model.value_size,
        score=model.score,
        position=model.position,
        positions=model.positions,
        position_width=model.position_width,
        norm=model.norm,
        norm_first=model.norm_first,
        activation=model.activation,
        window=model.window,
        tied=model.tied,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        activation_dropout=model.activation_dropout,
        word_dropout=model.word_dropout,
    )
