"""What the convolutional family may be told, in plain values, and the model put together from them."""

import math
from dataclasses import dataclass

from torch import nn

from regard.models.convolutional.stack import ConvolutionalDecoder, ConvolutionalEncoder, DecoderLayer, EncoderLayer
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.alignment import Alignment
from regard.nn.attention.scores import Dot
from regard.nn.convolution import GatedConvolution
from regard.nn.embedding import Embedding, Output
from regard.nn.position import Learned


@dataclass(frozen=True)
class ConvS2S:
    """Convolutional sequence to sequence (Gehring et al. 2017) on paper; by default that of §4.2, English-Romanian."""

    width: int = 512
    """Width of the layers."""
    embedding: int | None = None
    """Width of the tokens' vectors, and of keys and values; that of the layers unless told."""
    encoder_layers: int = 20
    """Convolutions of the encoder."""
    decoder_layers: int = 20
    """Convolutions of the decoder, each with its attention."""
    kernel: int = 3
    """Tokens a convolution sees at once, k; odd."""
    positions: int = 1024
    """How many positions there are; a longer sequence is refused."""
    tied: str = "none"
    """Which of source, target and output share one matrix."""
    dropout: float = 0.2
    """Dropout on embeddings, on what comes into each convolution, and before the output."""

    def seq2seq(self, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
        """An encoder-decoder for these vocabularies."""
        if self.kernel % 2 == 0:
            raise ValueError(f"a kernel of {self.kernel} has no middle; take an odd one")
        vectors = self.embedding or self.width
        source, target = (self._embedding(each, vectors) for each in (source_vocabulary, target_vocabulary))
        shared = tie(self.tied, source, target)
        encoder = ConvolutionalEncoder(
            source,
            self._linear(vectors, self.width),
            [EncoderLayer(self._convolution()) for _ in range(self.encoder_layers)],
            self._linear(self.width, vectors),
        )
        layers = [
            DecoderLayer(
                self._convolution(),
                Alignment(Dot()),
                self._linear(self.width, vectors),
                self._linear(vectors, self.width),
            )
            for _ in range(self.decoder_layers)
        ]
        decoder = ConvolutionalDecoder(
            target, self._linear(vectors, self.width), layers, self._linear(self.width, vectors)
        )
        return Seq2Seq(encoder, decoder, Output(vectors, target_vocabulary, shared))

    def _embedding(self, vocabulary: int, vectors: int) -> Embedding:
        """Vectors of tokens and positions with the deviation of §3.5."""
        position = Learned(vectors, self.positions)
        made = Embedding(vocabulary, vectors, position, scaled=False, dropout=self.dropout)
        for weight in (made.weight, position.weight):
            nn.init.normal_(weight, std=0.1)
        return made

    def _convolution(self) -> GatedConvolution:
        return GatedConvolution(self.width, self.kernel, self.dropout)

    def _linear(self, inputs: int, outputs: int) -> nn.Linear:
        """A linear layer that keeps the variance (§3.5)."""
        linear = nn.Linear(inputs, outputs)
        nn.init.normal_(linear.weight, std=math.sqrt(1 / inputs))
        nn.init.zeros_(linear.bias)
        return linear
