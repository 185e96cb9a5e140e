"""What a Transformer may be told, in plain values, and the model put together from them."""

from dataclasses import dataclass

from torch import nn

from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.models.tying import tie
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.sight import Sight, alibi_slopes
from regard.nn.block import Block
from regard.nn.embedding import Embedding, Output
from regard.nn.feedforward import FeedForward
from regard.nn.norm import make_norm
from regard.nn.position import make_position


@dataclass(frozen=True)
class Outline:
    """A Transformer on paper; the defaults are the paper's base model but for the place of the norm."""

    width: int = 512
    """Width of the residual stream, d_model (Vaswani et al. 2017, §3.1)."""
    inner: int = 2048
    """Inner width of the feed-forward layers, d_ff (§3.3)."""
    heads: int = 8
    """Attention heads in each layer, h (§3.2.2)."""
    encoder_layers: int = 6
    """Layers of the encoder, N (§3.1)."""
    decoder_layers: int = 6
    """Layers of the decoder, N (§3.1)."""
    key_size: int | None = None
    """Size of a head's queries and keys, d_k (§3.2.2); width / heads unless told."""
    value_size: int | None = None
    """Size of a head's values, d_v (§3.2.2); width / heads unless told."""
    score: str = "scaled"
    """How a key answers a query: dot, scaled, bilinear, additive."""
    position: str = "sinusoidal"
    """How order enters: sinusoidal, learned, rotary, alibi, none; sinusoidal-halves, all sines before all cosines."""
    positions: int = 1024
    """How many positions there are where they are learned."""
    position_width: int | None = None
    """Set positions of this width beside the tokens' vectors instead of adding them."""
    norm: str = "layer"
    """Normalisation: layer, rms, scale."""
    norm_first: bool = True
    """Normalise before each sub-layer rather than after it."""
    embedding_norm: bool = False
    """Normalise the embeddings too, as BART does."""
    activation: str = "relu"
    """Non-linearity of the feed-forward layers: relu, gelu, swiglu."""
    window: int | None = None
    """Neighbours to each side that encoder self-attention may see (§4)."""
    tied: str = "all"
    """Which of source, target and output share one matrix: all, decoder (target and output), embeddings (source and
    target), outer (source and output), none."""
    scaled: bool = True
    """Multiply embeddings by √width (§3.4)."""
    output_bias: bool = False
    """Give each token of the vocabulary a bias of its own."""
    dropout: float = 0.1
    """Dropout on each sub-layer's output and on embeddings (§5.4)."""
    attention_dropout: float = 0.0
    """Dropout on attention weights."""
    activation_dropout: float = 0.0
    """Dropout on the inner values of the feed-forward layers."""
    word_dropout: float = 0.0
    """Dropout of whole tokens' embeddings."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """What distance takes off the scores of each head."""
        return alibi_slopes(self.heads) if self.position == "alibi" else ()

    def block(self, cross: bool) -> Block:
        """One layer, with or without attention to a memory."""
        sizes = (self.width, self.heads, self.key_size, self.value_size, self.score, self.attention_dropout)
        return Block(
            SelfAttention(*sizes, rotary=self.position == "rotary"),
            CrossAttention(*sizes) if cross else None,
            FeedForward(self.width, self.inner, self.activation, self.activation_dropout),
            self.width,
            self.norm,
            self.norm_first,
            self.dropout,
        )

    def embedding(self, vocabulary: int) -> Embedding:
        """Vectors for a vocabulary, with their positions."""
        beside = self.position_width or 0
        position = make_position(self.position, beside or self.width, self.positions)
        if beside and position is None:
            raise ValueError(
                f"'{self.position}' positions have no vector to set beside the tokens'; leave position_width out"
            )
        return Embedding(
            vocabulary,
            self.width - beside,
            position,
            "concatenation" if beside else "sum",
            self.scaled,
            self.dropout,
            self.word_dropout,
            make_norm(self.norm, self.width) if self.embedding_norm else None,
        )

    def stack(self, embedding: Embedding, layers: int, sight: Sight, cross: bool) -> Stack:
        """Layers over an embedding: an encoder, a decoder or a language model."""
        norm = make_norm(self.norm, self.width) if self.norm_first else nn.Identity()
        return Stack(embedding, [self.block(cross) for _ in range(layers)], norm, sight)

    def encoder(self, embedding: Embedding) -> Stack:
        """A stack that looks both ways."""
        return self.stack(embedding, self.encoder_layers, Sight(window=self.window, slopes=self.slopes), cross=False)

    def decoder(self, embedding: Embedding, cross: bool = True) -> Stack:
        """A stack that looks back only, and at a memory unless told otherwise."""
        return self.stack(embedding, self.decoder_layers, Sight(causal=True, slopes=self.slopes), cross)

    def seq2seq(self, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
        """An encoder-decoder for these vocabularies, embeddings tied as told."""
        source, target = self.embedding(source_vocabulary), self.embedding(target_vocabulary)
        shared = tie(self.tied, source, target)
        output = Output(self.width, target_vocabulary, shared, self.output_bias)
        return Seq2Seq(self.encoder(source), self.decoder(target), output)
