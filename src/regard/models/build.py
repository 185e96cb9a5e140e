"""Build a model from the `[model]` section of a recipe."""

from torch import nn

from regard import recipe
from regard.models.classifier import Classifier, FirstTokenPooler
from regard.models.convolutional import build_convs2s
from regard.models.dual_encoder import DualEncoder, TextEncoder
from regard.models.han import build_hierarchical_encoder
from regard.models.hierarchical import HierarchicalTransformerEncoder, build_hierarchical_transformer
from regard.models.hran import build_hran
from regard.models.image_encoder import ImageEncoder
from regard.models.image_transformer import build_image_transformer
from regard.models.language_model import LanguageModel
from regard.models.masked_language_model import MaskedLanguageModel, PredictionHead
from regard.models.memory import Encoder
from regard.models.recurrent.bahdanau import build_bahdanau
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.models.recurrent.luong import build_luong
from regard.models.recurrent.sutskever import build_sutskever
from regard.models.seq2seq import Seq2Seq
from regard.models.show_attend_tell import build_show_attend_tell
from regard.models.transformer import build_transformer, initialise, make_decoder, make_embedding, make_encoder
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ngrams import NgramEmbedding
from regard.nn.pooling import AttentionPooling, MeanPooling
from regard.nn.recurrent import RecurrentLayers, is_recurrent


def build(settings: recipe.Model, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build the untrained encoder-decoder that a recipe asks for.

    Args:
        settings: The `[model]` section.
        source_vocabulary: Size of the source vocabulary.
        target_vocabulary: Size of the target vocabulary.

    Example:
        ::

            model = build(recipe.Transformer(width=64, heads=2), 8000, 8000)
    """
    sizes = source_vocabulary, target_vocabulary
    match settings:
        case recipe.Transformer():
            return build_transformer(settings, *sizes)
        case recipe.Sutskever():
            return build_sutskever(settings, *sizes)
        case recipe.Bahdanau():
            return build_bahdanau(settings, *sizes)
        case recipe.Luong():
            return build_luong(settings, *sizes)
        case recipe.ConvS2S():
            return build_convs2s(settings, *sizes)
        case recipe.Hran():
            return build_hran(settings, *sizes)
        case recipe.HierarchicalTransformer():
            return build_hierarchical_transformer(settings, *sizes)
        case recipe.Rnn() | recipe.Han():
            raise ValueError(f"kind = '{settings.kind}' is an encoder without a decoder; choose another family")
        case (
            recipe.PatchTransformer()
            | recipe.InvertedTransformer()
            | recipe.LstmAttention()
            | recipe.NLinear()
            | recipe.DLinear()
        ):
            raise ValueError(f"kind = '{settings.kind}' forecasts numbers; choose another family")
        case recipe.ShowAttendTell() | recipe.ImageTransformer():
            raise ValueError(f"kind = '{settings.kind}' reads pictures, not text; choose another family")


def build_captioner(
    settings: recipe.Model,
    image: recipe.ImageSettings,
    vocabulary: int,
    options: recipe.Captioning | None = None,
) -> Seq2Seq:
    """Build the untrained model that describes pictures, as a recipe asks for.

    Args:
        settings: The `[model]` section.
        image: The `[image]` section.
        vocabulary: Size of the vocabulary of the captions.
        options: The `[captioning]` section.
    """
    match settings:
        case recipe.ShowAttendTell():
            return build_show_attend_tell(settings, image, vocabulary, options or recipe.Captioning())
        case recipe.ImageTransformer():
            return build_image_transformer(settings, image, vocabulary)
        case _:
            raise ValueError(
                f"kind = '{settings.kind}' reads no pictures; choose show_attend_tell or image_transformer"
            )


def has_dynamic_shapes(model: nn.Module) -> bool:
    """Return whether the shapes in a pass depend on the data: a CUDA graph cannot capture, nor compilation speed it up.

    The number of steps of recurrent layers depends on the data, and so does the number of turns of dialogues, and of
    captions of pictures.
    """
    dynamic = (HierarchicalTransformerEncoder, ImageEncoder)
    return is_recurrent(model) or any(isinstance(module, dynamic) for module in model.modules())


def build_encoder(settings: recipe.Model, vocabulary: int) -> tuple[Encoder, int]:
    """Build the untrained encoder of an encoder-only model, and return it with the width of its states.

    Raises:
        ValueError: The family has no encoder of texts of its own.
    """
    match settings:
        case recipe.Transformer():
            return make_encoder(settings, make_embedding(settings, vocabulary)), settings.width
        case recipe.Rnn():
            embedding = Embedding(
                vocabulary, settings.embedding, dropout=settings.dropout, word_dropout=settings.word_dropout
            )
            recurrence = RecurrentLayers(
                settings.cell,
                settings.embedding,
                settings.width,
                settings.layers,
                settings.bidirectional,
                settings.dropout,
            )
            return RecurrentEncoder(embedding, recurrence), settings.width * (2 if settings.bidirectional else 1)
        case _:
            raise ValueError(f"kind = '{settings.kind}' has no encoder of its own; choose transformer or rnn")


def build_classifier(
    settings: recipe.Model, vocabulary: int, classes: int, options: recipe.Classification | None = None
) -> Classifier:
    """Build the untrained classifier of texts that a recipe asks for.

    Args:
        settings: The `[model]` section.
        vocabulary: Size of the vocabulary.
        classes: Number of classes.
        options: The `[classification]` section: how a text becomes one vector. A hierarchical attention network has
            its own attention instead of a pooling.
    """
    options = options or recipe.Classification()
    ngrams = None
    if options.ngrams:
        sizes = options.ngrams, options.ngram_buckets, options.ngram_width
        dropped = settings.word_dropout if isinstance(settings, recipe.Transformer | recipe.Rnn | recipe.Han) else 0.0
        ngrams = NgramEmbedding(vocabulary, *sizes, dropped)
    if isinstance(settings, recipe.Han):
        hierarchical, width = build_hierarchical_encoder(settings, vocabulary)
        return Classifier(hierarchical, nn.Identity(), width, classes, settings.dropout, ngrams)
    encoder, width = build_encoder(settings, vocabulary)
    assert not isinstance(settings, recipe.NLinear | recipe.DLinear), "they have no encoder"
    model = Classifier(encoder, _make_pooling(options.pooling, width), width, classes, settings.dropout, ngrams)
    if isinstance(settings, recipe.Transformer):
        initialise(model, settings)
    return model


def build_dual_encoder(settings: recipe.Model, vocabulary: int, options: recipe.Chatting | None = None) -> DualEncoder:
    """Build the untrained dual encoder of histories and replies that a recipe asks for.

    Args:
        settings: The `[model]` section.
        vocabulary: Size of the vocabulary, which histories and replies share.
        options: The `[chat]` section: how a text becomes one vector, and whether both sides share an encoder.
    """
    options = options or recipe.Chatting(objective="retrieve")

    def make_side() -> tuple[TextEncoder, int]:
        encoder, width = build_encoder(settings, vocabulary)
        return TextEncoder(encoder, _make_pooling(options.pooling, width)), width

    histories, width = make_side()
    model = DualEncoder(histories, histories if options.shared else make_side()[0], width)
    if isinstance(settings, recipe.Transformer):
        initialise(model, settings)
    return model


def _make_pooling(kind: str, width: int) -> nn.Module:
    """Make the pooling of this name for states of `width`."""
    match kind:
        case "mean":
            return MeanPooling()
        case "first":
            return FirstTokenPooler(width)
        case "attention":
            return AttentionPooling(width)
    raise ValueError(f"unknown pooling '{kind}'; choose mean, first or attention")


def build_masked_language_model(settings: recipe.Model, vocabulary: int) -> MaskedLanguageModel:
    """Build the untrained encoder-only language model that a recipe asks for.

    Raises:
        ValueError: The family is not the Transformer.
    """
    if not isinstance(settings, recipe.Transformer):
        raise ValueError(
            f"a masked language model is a Transformer, not a model of kind = '{settings.kind}'; "
            "set kind = 'transformer'"
        )
    embedding = make_embedding(settings, vocabulary)
    shared = embedding.weight if settings.tied in ("all", "outer") else None
    head = PredictionHead(settings.width, settings.activation, settings.norm)
    output = OutputProjection(settings.width, vocabulary, shared, bias=True)
    model = MaskedLanguageModel(make_encoder(settings, embedding), head, output)
    initialise(model, settings)
    return model


def build_language_model(settings: recipe.Model, vocabulary: int) -> LanguageModel:
    """Build the untrained decoder-only language model that a recipe asks for.

    Raises:
        ValueError: The family's decoder does not work without an encoder.
    """
    if not isinstance(settings, recipe.Transformer):
        raise ValueError(
            f"a language model is decoder-only, but the decoder of kind = '{settings.kind}' needs an encoder; "
            "set kind = 'transformer'"
        )
    embedding = make_embedding(settings, vocabulary)
    shared = embedding.weight if settings.tied in ("all", "decoder") else None
    output = OutputProjection(settings.width, vocabulary, shared)
    model = LanguageModel(make_decoder(settings, embedding, cross=False), output)
    initialise(model, settings)
    return model
