"""What the models that led to the Transformer may be told."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from regard.recipe.family import Family, Tied, check_tied
from regard.recipe.section import Positive, Share

Sizes = dict[str, dict[str, Any]]


class Recurrent(Family):
    """What the recurrent families share."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width"}

    size: Literal["tiny", "small", "base"] = "small"
    """A preset for widths, layers, dropout and tied; `base` is the paper's."""
    width: Positive = 256
    """Width of the states."""
    embedding: Positive = 256
    """Width of the tokens' vectors; that of the states unless told."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell: LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014)."""
    dropout: Share = 0.2
    """Dropout on embeddings, between layers and before the output, never along time (Zaremba et al. 2014)."""
    tied: Tied = "all"
    """Which embeddings share one matrix (Press & Wolf 2017): all; `decoder` target and output; `embeddings` source
    and target; `outer` source and output; none."""

    @property
    def scored(self) -> tuple[int, str]:
        """Width of what is scored against the vocabulary, and the setting that says it."""
        return self.width, "width"

    @model_validator(mode="after")
    def _what_is_tied_is_equally_wide(self) -> "Recurrent":
        check_tied(self.tied, self.embedding, *self.scored)
        return self


class Sutskever(Recurrent):
    """Sequence to sequence through one vector (Sutskever et al. 2014)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "layers": 2, "dropout": 0.2},
        "small": {"width": 256, "layers": 2, "dropout": 0.2},
        "base": {"width": 1000, "layers": 4, "dropout": 0.0, "tied": "none"},
    }

    kind: Literal["sutskever"] = "sutskever"
    """The family of the model."""
    layers: Positive = 2
    """Layers of encoder and of decoder."""
    backwards: bool = True
    """Read the source from its end, so that its beginning is near the target's (Sutskever et al. 2014, section 3.3)."""


class Bahdanau(Recurrent):
    """Soft alignment from the previous state (Bahdanau et al. 2015)."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width", "readout_width": "embedding"}
    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "dropout": 0.2},
        "small": {"width": 256, "dropout": 0.2},
        "base": {"width": 1000, "embedding": 620, "readout_width": 500, "dropout": 0.0, "tied": "none"},
    }

    kind: Literal["bahdanau"] = "bahdanau"
    """The family of the model."""
    cell: Literal["lstm", "gru"] = "gru"
    """The recurrent cell: LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014)."""
    readout: Literal["maxout", "linear"] = "maxout"
    """What is made of state, token and context before the output: maxout (Goodfellow et al. 2013) or one matrix."""
    readout_width: Positive = 256
    """Width of what is scored against the vocabulary, l in the paper; that of the tokens' vectors unless told."""

    @property
    def scored(self) -> tuple[int, str]:
        """Width of the read-out."""
        return self.readout_width, "readout_width"


class Luong(Recurrent):
    """Attention from the current state (Luong et al. 2015)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "layers": 2, "dropout": 0.2},
        "small": {"width": 256, "layers": 2, "dropout": 0.2},
        "base": {"width": 1000, "layers": 4, "dropout": 0.2, "tied": "none"},
    }

    kind: Literal["luong"] = "luong"
    """The family of the model."""
    layers: Positive = 2
    """Layers of encoder and of decoder."""
    score: Literal["dot", "scaled", "bilinear", "additive"] = "bilinear"
    """How a state of the source answers one of the target: dot, `bilinear` for «general», `additive` for «concat»
    (Luong et al. 2015, section 3.1); scaled (Vaswani et al. 2017)."""
    feeding: bool = True
    """Set the last attentional vector beside the next token's vector (Luong et al. 2015, section 3.3); without it a
    whole target is one recurrence and trains faster."""
    reach: Positive | None = None
    """Local attention: look no further than this from the place each state points to, D = 10 in the paper (Luong et al.
    2015, section 3.2, local-p); unset sees the whole source."""
    backwards: bool = True
    """Read the source from its end (Sutskever et al. 2014, section 3.3)."""


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
    """A preset for widths, layers, dropout and tied; `base` is the paper's."""
    width: Positive = 256
    """Width of the layers."""
    embedding: Positive = 256
    """Width of the tokens' vectors, of keys and of values; that of the layers unless told."""
    encoder_layers: Positive = 4
    """Convolutions of the encoder."""
    decoder_layers: Positive = 4
    """Convolutions of the decoder, each with attention to the source."""
    kernel: Positive = 3
    """Tokens a convolution sees at once, k in the paper; odd."""
    positions: Positive = 1024
    """How many positions there are, which are learned; a longer sequence is refused."""
    dropout: Share = 0.1
    """Dropout on embeddings, on what comes into each convolution and before the output."""
    tied: Tied = "all"
    """Which embeddings share one matrix (Press & Wolf 2017): all; `decoder` target and output; `embeddings` source
    and target; `outer` source and output; none."""

    @model_validator(mode="after")
    def _a_kernel_has_a_middle(self) -> "ConvS2S":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel} has no middle; take an odd one, such as {self.kernel + 1}")
        return self
