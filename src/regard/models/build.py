"""From a recipe to a model: the one place where a recipe meets the layers."""

from regard import recipe
from regard.models.convolutional.outline import ConvS2S
from regard.models.outline import Outline
from regard.models.recurrent.outline import Bahdanau, Luong, Sutskever
from regard.models.seq2seq import Seq2Seq

AnyOutline = Outline | Sutskever | Bahdanau | Luong | ConvS2S


def build(model: recipe.Model, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """The model a recipe asks for, over vocabularies of these sizes."""
    return outline(model).seq2seq(source_vocabulary, target_vocabulary)


def outline(model: recipe.Model) -> AnyOutline:
    """A recipe's model in plain values."""
    match model:
        case recipe.Transformer():
            return _transformer(model)
        case recipe.Sutskever():
            return Sutskever(
                width=model.width,
                embedding=model.embedding,
                layers=model.layers,
                cell=model.cell,
                backwards=model.backwards,
                tied=model.tied,
                dropout=model.dropout,
            )
        case recipe.Bahdanau():
            return Bahdanau(
                width=model.width,
                embedding=model.embedding,
                cell=model.cell,
                readout=model.readout,
                readout_width=model.readout_width,
                tied=model.tied,
                dropout=model.dropout,
            )
        case recipe.Luong():
            return _luong(model)
        case recipe.ConvS2S():
            return ConvS2S(
                width=model.width,
                embedding=model.embedding,
                encoder_layers=model.encoder_layers,
                decoder_layers=model.decoder_layers,
                kernel=model.kernel,
                positions=model.positions,
                tied=model.tied,
                dropout=model.dropout,
            )


def _luong(model: recipe.Luong) -> Luong:
    return Luong(
        width=model.width,
        embedding=model.embedding,
        layers=model.layers,
        cell=model.cell,
        score=model.score,
        feeding=model.feeding,
        reach=model.reach,
        backwards=model.backwards,
        tied=model.tied,
        dropout=model.dropout,
    )


def _transformer(model: recipe.Transformer) -> Outline:
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
