"""The settings of the recurrent model families."""

from typing import ClassVar, Literal

from pydantic import model_validator

from regard.recipe.family import Family, Sizes, Tied, check_tied
from regard.recipe.section import Fraction, Layers, Size


class Recurrent(Family):
    """The settings that the recurrent families share."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width"}

    size: Literal["tiny", "small", "base"] = "small"
    """A preset for widths, layers, dropout and tied; `base` is that of the paper."""
    width: Size = 256
    """Width of the hidden states."""
    embedding: Size = 256
    """Width of the token embeddings; unset is width."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell: LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014)."""
    dropout: Fraction = 0.2
    """Dropout on embeddings, between layers and before the output, never along time (Zaremba et al. 2014)."""
    tied: Tied = "all"
    """Which of source embedding, target embedding and output projection share one matrix (Press & Wolf 2017): all;
    `decoder`: target and output; `embeddings`: source and target; `outer`: source and output; none."""

    @property
    def output_width(self) -> tuple[int, str]:
        """Width of the output projection's input, and the setting that determines it."""
        return self.width, "width"

    @model_validator(mode="after")
    def _tied_widths_are_equal(self) -> "Recurrent":
        check_tied(self.tied, self.embedding, *self.output_width)
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
    layers: Layers = 2
    """Layers of the encoder, and of the decoder."""
    backwards: bool = True
    """Read the source backwards, so that the beginnings of source and target are close (Sutskever et al. 2014, section
    3.3)."""


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
    """The layer between state, token and context and the output: maxout (Goodfellow et al. 2013) or linear."""
    readout_width: Size = 256
    """Width of the read-out, l in the paper; unset is embedding."""

    @property
    def output_width(self) -> tuple[int, str]:
        """Width of the output projection's input, and the setting that determines it."""
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
    layers: Layers = 2
    """Layers of the encoder, and of the decoder."""
    score: Literal["dot", "scaled", "bilinear", "additive"] = "bilinear"
    """Score function of attention: dot, `bilinear` for "general", `additive` for "concat" (Luong et al. 2015, section
    3.1); scaled (Vaswani et al. 2017)."""
    feeding: bool = True
    """Input feeding: concatenate the last attentional vector with the next token's embedding (Luong et al. 2015,
    section 3.3). Without it, training reads a whole target at once and is faster."""
    reach: Size | None = None
    """Local attention: attend no further than this from the position that each state predicts, D = 10 in the paper
    (Luong et al. 2015, section 3.2, local-p); unset attends to the whole source."""
    backwards: bool = True
    """Read the source backwards (Sutskever et al. 2014, section 3.3)."""


class Hran(Recurrent):
    """The hierarchical recurrent attention network for dialogues (Xing et al. 2018)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "dropout": 0.2},
        "small": {"width": 256, "dropout": 0.2},
        "base": {"width": 1000, "embedding": 620, "dropout": 0.0, "tied": "none"},
    }

    kind: Literal["hran"] = "hran"
    """The family of the model."""
    cell: Literal["lstm", "gru"] = "gru"
    """The recurrent cell that reads words and writes replies: GRU, as in the paper (Cho et al. 2014), or LSTM
    (Hochreiter & Schmidhuber 1997); turns are read by a GRU."""

    @property
    def output_width(self) -> tuple[int, str]:
        """Width of the output projection's input, and the setting that determines it."""
        return self.embedding, "embedding"


class Rnn(Family):
    """A recurrent encoder, bidirectional (Schuster & Paliwal 1997), for classification and tagging."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width"}
    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 64, "layers": 1, "dropout": 0.3},
        "small": {"width": 128, "layers": 2, "dropout": 0.3},
        "base": {"width": 256, "layers": 2, "dropout": 0.3},
    }

    kind: Literal["rnn"] = "rnn"
    """The family of the model."""
    size: Literal["tiny", "small", "base"] = "small"
    """A preset for width, layers and dropout."""
    width: Size = 128
    """Width of the hidden states in each direction."""
    embedding: Size = 128
    """Width of the token embeddings; unset is width."""
    layers: Layers = 2
    """Number of layers."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell: LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014)."""
    bidirectional: bool = True
    """Read in both directions and concatenate the two states."""
    dropout: Fraction = 0.3
    """Dropout on embeddings, between layers and before the output, never along time (Zaremba et al. 2014)."""
    word_dropout: Fraction = 0.0
    """Dropout of whole token embeddings (Gal & Ghahramani 2016)."""


class Han(Family):
    """The hierarchical attention network for documents (Yang et al. 2016)."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width", "attention_width": "width"}
    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 32, "embedding": 64, "dropout": 0.3},
        "small": {"width": 50, "embedding": 200, "attention_width": 100, "dropout": 0.3},
        "base": {"width": 128, "embedding": 256, "attention_width": 256, "dropout": 0.3},
    }

    kind: Literal["han"] = "han"
    """The family of the model."""
    size: Literal["tiny", "small", "base"] = "small"
    """A preset for widths and dropout; `small` has the sizes of the paper (§3.3)."""
    width: Size = 50
    """Width of the hidden states of words and sentences in each direction."""
    embedding: Size = 200
    """Width of the word embeddings; unset is width."""
    attention_width: Size = 100
    """Width of the hidden representation that attention compares with its context vector; unset is width."""
    cell: Literal["lstm", "gru"] = "gru"
    """The recurrent cell: GRU, as in the paper (Cho et al. 2014), or LSTM (Hochreiter & Schmidhuber 1997)."""
    dropout: Fraction = 0.3
    """Dropout on embeddings, on sentence vectors and before the output."""
    word_dropout: Fraction = 0.0
    """Dropout of whole token embeddings (Gal & Ghahramani 2016)."""
