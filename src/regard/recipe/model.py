"""The `[model]` section: a class for each model family, of which `kind` selects one."""

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from regard.recipe.captioning import PictureReading, ShowAttendTell
from regard.recipe.family import Family, Sizes, Tied
from regard.recipe.forecasters import DLinear, InvertedTransformer, LstmAttention, NLinear, PatchTransformer
from regard.recipe.recurrent import Bahdanau, Han, Hran, Luong, Rnn, Sutskever
from regard.recipe.section import Fraction, Layers, Size


class SelfAttentive(Family):
    """The settings that the families of Transformers share."""

    width: Size = 256
    """Width of the residual stream, the paper's d_model (§3.1)."""
    inner: Size = 1024
    """Inner width of the feed-forward layers, d_ff (§3.3)."""
    heads: Size = 4
    """Attention heads in each layer, h (§3.2.2)."""
    encoder_layers: Layers = 3
    """Layers of the encoder, N (§3.1)."""
    decoder_layers: Layers = 3
    """Layers of the decoder, N (§3.1)."""
    key_size: Size | None = None
    """Size of a head's queries and keys, d_k (§3.2.2); unset is width / heads."""
    value_size: Size | None = None
    """Size of a head's values, d_v (§3.2.2); unset is width / heads."""
    score: Literal["dot", "scaled", "bilinear", "additive"] = "scaled"
    """Score function of attention: scaled dot product (§3.2.1); dot and bilinear (Luong et al. 2015, §3.1); additive
    (Bahdanau et al. 2015, A.1.2)."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "sinusoidal"
    """Position encoding: sinusoidal (§3.5); learned (Gehring et al. 2017); rotary (Su et al. 2021); ALiBi (Press et al.
    2022); none."""
    positions: Size = 1024
    """Number of learned positions; a longer sequence is an error."""
    position_width: Size | None = None
    """Concatenate position vectors of this width with the token vectors; unset adds positions to token vectors."""
    norm: Literal["layer", "rms", "scale"] = "layer"
    """Normalisation: LayerNorm (Ba et al. 2016), RMSNorm (Zhang & Sennrich 2019), ScaleNorm (Nguyen & Salazar 2019)."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm, Xiong et al. 2020) instead of after it (post-norm, §3.1)."""
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "relu"
    """Activation function of the feed-forward layers: ReLU (§3.3); GELU, or its tanh approximation as in GPT-2
    (Hendrycks & Gimpel 2016); SwiGLU (Shazeer 2020)."""
    scale_embedding: bool = True
    """Multiply embeddings by √width (§3.4); GPT-2 does not."""
    init_std: Annotated[float, Field(gt=0.0)] | None = None
    """Standard deviation of the initial weights, 0.02 in GPT-2 (Radford et al. 2019); unset initialises linear layers
    by Glorot & Bengio 2010."""
    dropout: Fraction = 0.1
    """Dropout on each sub-layer's output and on embeddings (§5.4)."""
    attention_dropout: Fraction = 0.0
    """Dropout on attention weights."""
    activation_dropout: Fraction = 0.0
    """Dropout on the inner values of the feed-forward layers."""
    word_dropout: Fraction = 0.0
    """Dropout of whole token embeddings (Gal & Ghahramani 2016)."""
    tied: Tied = "all"
    """Which of source embedding, target embedding and output projection share one matrix (Press & Wolf 2017): all;
    `decoder`: target and output; `embeddings`: source and target; `outer`: source and output; none."""
    window: Size | None = None
    """Neighbours to each side that self-attention may see in an encoder or a language model (§4, restricted
    self-attention); unset sees all."""

    @property
    def has_position_vectors(self) -> bool:
        """Whether each position has a vector, which joins the token's; otherwise attention knows positions, if any."""
        return self.position not in ("rotary", "alibi", "none")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "SelfAttentive":
        if self.width % self.heads:
            divisors = [n for n in range(1, 65) if self.width % n == 0]
            raise ValueError(f"width = {self.width} does not divide into heads = {self.heads}; heads may be {divisors}")
        return self

    @model_validator(mode="after")
    def _dropped_words_have_positions(self) -> "SelfAttentive":
        # Each norm multiplies the gradient of an all-zero vector by 1 / √ε, about 300, in every layer.
        if self.word_dropout and not self.has_position_vectors:
            raise ValueError(
                f"word_dropout = {self.word_dropout} sets token vectors to zero, and position = '{self.position}' "
                "adds no vector to them, so their gradients overflow; set word_dropout = 0, or position = 'sinusoidal' "
                "or 'learned'"
            )
        return self

    @model_validator(mode="after")
    def _position_width_fits(self) -> "SelfAttentive":
        if self.position_width is None:
            return self
        if not self.has_position_vectors:
            raise ValueError(
                f"position = '{self.position}' has no vector to concatenate with the tokens'; remove position_width"
            )
        if self.position_width >= self.width or self.position_width % 2:
            raise ValueError(
                f"position_width = {self.position_width} must be even and less than width = {self.width}, "
                "which also holds the token vectors"
            )
        if self.tied not in ("embeddings", "none"):
            raise ValueError(
                f"tied = '{self.tied}' shares the token vectors with the output projection, but position_width makes "
                "them narrower; set tied = 'embeddings' or 'none'"
            )
        return self


class Transformer(SelfAttentive):
    """The Transformer (Vaswani et al. 2017)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "inner": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
        "small": {"width": 256, "inner": 1024, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1},
        "base": {"width": 512, "inner": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
        "big": {"width": 1024, "inner": 4096, "heads": 16, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.3},
    }

    kind: Literal["transformer"] = "transformer"
    """The family of the model."""
    size: Literal["tiny", "small", "base", "big"] = "small"
    """A preset for width, inner, heads, layers and dropout; `base` and `big` are the paper's (§6.2, table 3)."""


class HierarchicalTransformer(SelfAttentive):
    """A Transformer that reads the words of each turn, and then the turns; its decoder attends to all words."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "inner": 256, "heads": 4, "encoder_layers": 2, "decoder_layers": 4, "dropout": 0.3},
        "small": {"width": 256, "inner": 1024, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1},
        "base": {
            **{"width": 512, "inner": 2048, "heads": 8, "encoder_layers": 6, "turn_layers": 2},
            **{"decoder_layers": 6, "dropout": 0.1},
        },
    }

    kind: Literal["hierarchical"] = "hierarchical"
    """The family of the model."""
    size: Literal["tiny", "small", "base"] = "small"
    """A preset for width, inner, heads, layers and dropout."""
    encoder_layers: Layers = 3
    """Layers of the encoder in which the words of a turn attend to each other."""
    turn_layers: Layers = 1
    """Layers of the encoder in which the turns attend to each other."""


class ConvS2S(Family):
    """Gated convolutions, with attention in each layer of the decoder (Gehring et al. 2017)."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width"}
    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1},
        "small": {"width": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.1},
        "base": {"width": 512, "encoder_layers": 20, "decoder_layers": 20, "dropout": 0.2, "tied": "none"},
    }

    kind: Literal["convs2s"] = "convs2s"
    """The family of the model."""
    size: Literal["tiny", "small", "base"] = "small"
    """A preset for widths, layers, dropout and tied; `base` is that of the paper."""
    width: Size = 256
    """Width of the layers."""
    embedding: Size = 256
    """Width of the token embeddings, keys and values; unset is width."""
    encoder_layers: Layers = 4
    """Convolutional layers of the encoder."""
    decoder_layers: Layers = 4
    """Convolutional layers of the decoder, each with attention to the source."""
    kernel: Size = 3
    """Kernel width of the convolutions, k in the paper; odd."""
    positions: Size = 1024
    """Number of learned positions; a longer sequence is an error."""
    dropout: Fraction = 0.1
    """Dropout on embeddings, on the input of each convolution and before the output."""
    tied: Tied = "all"
    """Which of source embedding, target embedding and output projection share one matrix (Press & Wolf 2017): all;
    `decoder`: target and output; `embeddings`: source and target; `outer`: source and output; none."""

    @model_validator(mode="after")
    def _kernel_is_odd(self) -> "ConvS2S":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel} must be odd, to have a middle; use {self.kernel + 1}")
        return self


class ImageTransformer(SelfAttentive, PictureReading):
    """A Transformer that describes a picture: its encoder reads regions, its decoder writes words."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "inner": 256, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1},
        "small": {"width": 256, "inner": 1024, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.2},
        "base": {"width": 512, "inner": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
    }

    kind: Literal["image_transformer"] = "image_transformer"
    """The family of the model."""
    size: Literal["tiny", "small", "base"] = "small"
    """A preset for width, inner, heads, layers and dropout."""
    tied: Literal["decoder", "none"] = "decoder"
    """Whether the embedding of words and the output projection share one matrix (Press & Wolf 2017): `decoder` or
    none."""


def _family(value: object) -> str:
    """Return the family that a table names; the default is a Transformer."""
    if isinstance(value, Family):
        return value.kind
    return str(value.get("kind", "transformer")) if isinstance(value, dict) else "transformer"


Model = Annotated[
    Annotated[Transformer, Tag("transformer")]
    | Annotated[Sutskever, Tag("sutskever")]
    | Annotated[Bahdanau, Tag("bahdanau")]
    | Annotated[Luong, Tag("luong")]
    | Annotated[ConvS2S, Tag("convs2s")]
    | Annotated[Hran, Tag("hran")]
    | Annotated[HierarchicalTransformer, Tag("hierarchical")]
    | Annotated[ShowAttendTell, Tag("show_attend_tell")]
    | Annotated[ImageTransformer, Tag("image_transformer")]
    | Annotated[Rnn, Tag("rnn")]
    | Annotated[Han, Tag("han")]
    | Annotated[PatchTransformer, Tag("patch")]
    | Annotated[InvertedTransformer, Tag("inverted")]
    | Annotated[LstmAttention, Tag("lstm")]
    | Annotated[NLinear, Tag("nlinear")]
    | Annotated[DLinear, Tag("dlinear")],
    Discriminator(_family),
]
