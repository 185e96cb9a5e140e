"""The model families and what each may be told; `kind` picks one."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag, model_validator

from regard.recipe.ancestors import Bahdanau, ConvS2S, Luong, Sutskever
from regard.recipe.family import Family, Tied
from regard.recipe.section import Positive, Share


class Transformer(Family):
    """The Transformer (Vaswani et al. 2017)."""

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"width": 128, "inner": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
        "small": {"width": 256, "inner": 1024, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1},
        "base": {"width": 512, "inner": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
        "big": {"width": 1024, "inner": 4096, "heads": 16, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.3},
    }

    kind: Literal["transformer"] = "transformer"
    """The family of the model."""
    size: Literal["tiny", "small", "base", "big"] = "small"
    """A preset for width, inner, heads, layers and dropout; `base` and `big` are the paper's (§6.2, table 3)."""
    width: Positive = 256
    """Width of the residual stream, the paper's d_model (§3.1)."""
    inner: Positive = 1024
    """Inner width of the feed-forward layers, d_ff (§3.3)."""
    heads: Positive = 4
    """Attention heads in each layer, h (§3.2.2)."""
    encoder_layers: Positive = 3
    """Layers of the encoder, N (§3.1)."""
    decoder_layers: Positive = 3
    """Layers of the decoder, N (§3.1)."""
    key_size: Positive | None = None
    """Size of a head's queries and keys, d_k (§3.2.2); width / heads unless told."""
    value_size: Positive | None = None
    """Size of a head's values, d_v (§3.2.2); width / heads unless told."""
    score: Literal["dot", "scaled", "bilinear", "additive"] = "scaled"
    """How a key answers a query: scaled dot product (§3.2.1); dot and bilinear (Luong et al. 2015, §3.1); additive
    (Bahdanau et al. 2015, A.1.2)."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "sinusoidal"
    """How order enters: §3.5; learned (Gehring et al. 2017); rotary (Su et al. 2021); ALiBi (Press et al. 2022)."""
    positions: Positive = 1024
    """How many positions there are where they are learned; a longer sequence is refused."""
    position_width: Positive | None = None
    """Set positions of this width beside the tokens' vectors (concatenation) instead of adding them; unset adds."""
    norm: Literal["layer", "rms", "scale"] = "layer"
    """Normalisation: LayerNorm (Ba et al. 2016), RMSNorm (Zhang & Sennrich 2019), ScaleNorm (Nguyen & Salazar 2019)."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm, Xiong et al. 2020) rather than after it (§3.1)."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Non-linearity of the feed-forward layers: §3.3; Hendrycks & Gimpel 2016; Shazeer 2020."""
    dropout: Share = 0.1
    """Dropout on each sub-layer's output and on embeddings (§5.4)."""
    attention_dropout: Share = 0.0
    """Dropout on attention weights."""
    activation_dropout: Share = 0.0
    """Dropout on the inner values of the feed-forward layers."""
    word_dropout: Share = 0.0
    """Dropout of whole tokens' embeddings (Gal & Ghahramani 2016)."""
    tied: Tied = "all"
    """Which embeddings share one matrix (Press & Wolf 2017): all; `decoder` target and output; `embeddings` source
    and target; `outer` source and output; none."""
    window: Positive | None = None
    """Neighbours to each side that encoder self-attention may see (§4, restricted self-attention); unset sees all."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Transformer":
        if self.width % self.heads:
            fits = [n for n in range(1, self.width + 1) if self.width % n == 0 and n <= 64]
            raise ValueError(f"width = {self.width} does not divide into heads = {self.heads}; heads may be {fits}")
        return self

    @model_validator(mode="after")
    def _positions_have_room(self) -> "Transformer":
        if self.position_width is None:
            return self
        if self.position not in ("sinusoidal", "learned"):
            raise ValueError(
                f"position = '{self.position}' has no vector to set beside the tokens'; leave position_width out"
            )
        if self.position_width >= self.width or self.position_width % 2:
            raise ValueError(
                f"position_width = {self.position_width} must be even and below width = {self.width}, "
                "which it shares with the tokens' vectors"
            )
        if self.tied not in ("embeddings", "none"):
            raise ValueError(
                f"tied = '{self.tied}' shares the tokens' vectors with the output, but position_width makes them "
                "narrower than it; say tied = 'embeddings' or 'none'"
            )
        return self


def _family(value: object) -> str:
    """The family a table names; without a name it is a Transformer."""
    if isinstance(value, Family):
        return value.kind
    return str(value.get("kind", "transformer")) if isinstance(value, dict) else "transformer"


Model = Annotated[
    Annotated[Transformer, Tag("transformer")]
    | Annotated[Sutskever, Tag("sutskever")]
    | Annotated[Bahdanau, Tag("bahdanau")]
    | Annotated[Luong, Tag("luong")]
    | Annotated[ConvS2S, Tag("convs2s")],
    Discriminator(_family),
]
