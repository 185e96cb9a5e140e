"""A Transformer that describes pictures: regions attend to each other in the encoder, and words to regions."""

from regard.models.image_encoder import make_image_encoder
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import BlockStack, initialise, make_decoder, make_embedding, make_layers
from regard.nn.embedding import OutputProjection
from regard.recipe import ImageSettings, ImageTransformer


def build_image_transformer(settings: ImageTransformer, image: ImageSettings, vocabulary: int) -> Seq2Seq:
    """Build the model for pictures of this shape and a vocabulary of this size."""
    stack = BlockStack(*make_layers(settings, settings.encoder_layers))
    encoder = make_image_encoder(
        settings.stem, image.shape, settings.patch, settings.width, settings.stem_layers, settings.dropout, stack
    )
    embedding = make_embedding(settings, vocabulary)
    output = OutputProjection(settings.width, vocabulary, embedding.weight if settings.tied == "decoder" else None)
    model = Seq2Seq(encoder, make_decoder(settings, embedding), output)
    initialise(model, settings)
    return model
