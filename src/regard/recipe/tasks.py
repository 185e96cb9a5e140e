"""Settings that belong to one task: its fields, the model families it works with, and its own section of a recipe."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from regard.recipe.images import ImageSettings
from regard.recipe.section import Fraction, Section, Size, TupleOf

FieldKind = Literal["text", "document", "turns", "words", "texts", "label", "labels", "tags", "image", "series"]
"""How the values of a field are encoded; see `regard.data.fields`."""
TASK_FIELDS: dict[str, dict[str, FieldKind]] = {
    "translation": {"source": "text", "target": "text"},
    "language_model": {"text": "text"},
    "classification": {"text": "text", "label": "label"},
    "image_classification": {"image": "image", "label": "label"},
    "tagging": {"words": "words", "tags": "tags"},
    "chat": {"history": "turns", "reply": "text"},
    "captioning": {"image": "image", "captions": "texts"},
    "forecasting": {"series": "series"},
}
"""The fields of a record of each built-in task (`regard.tasks`), in the order of columns in a file."""
TASK_FAMILIES: dict[str, tuple[str, ...]] = {
    "translation": ("transformer", "sutskever", "bahdanau", "luong", "convs2s"),
    "language_model": ("transformer",),
    "classification": ("transformer", "rnn", "han"),
    "image_classification": ("transformer",),
    "tagging": ("transformer", "rnn"),
    "chat": ("transformer", "sutskever", "bahdanau", "luong", "convs2s", "hran", "hierarchical", "rnn"),
    "captioning": ("show_attend_tell", "image_transformer"),
    "forecasting": ("patch", "inverted", "lstm", "nlinear", "dlinear"),
}
"""The model families that each built-in task works with."""
MASK = "<mask>"
"""The symbol in place of a token to predict, which masked language models add to `text.symbols`."""
HIERARCHICAL_FAMILIES = ("hran", "hierarchical")
"""The families of encoder-decoders that read the turns of a dialogue, and not one sequence with all of its tokens."""
YOU, ME = "<you>", "<me>"
"""The symbols that the turns of a dialogue begin with: turns of the other speaker, and earlier ones of the speaker of
the reply. Chat adds them to `text.symbols`."""


Weight = Annotated[float, Field(ge=0.0)]


class TaskSection(Section):
    """Settings of one task."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ()
    """The settings that trained weights depend on."""

    @property
    def architecture(self) -> dict[str, Any]:
        """The settings that trained weights depend on, with their values."""
        values = self.model_dump(mode="json")
        return {name: values[name] for name in self.ARCHITECTURE}


class LanguageModelling(TaskSection):
    """Language models: what they predict."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ("objective",)

    objective: Literal["next", "masked"] = "next"
    """What is predicted: the next token, by a decoder-only model (Radford et al. 2019), or masked tokens, by an
    encoder-only model (Devlin et al. 2019)."""
    masked: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    """Fraction of the tokens to predict if `objective` is `masked`. Of these, 80 % are replaced by `<mask>`, 10 % by
    a random token, and 10 % are kept (Devlin et al. 2019, §3.1)."""
    whole_words: bool = False
    """Mask all tokens of a word together instead of single tokens."""


class Classification(TaskSection):
    """Classification: how a text becomes one vector, and what a label is."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ("pooling", "several", "ngrams", "ngram_buckets", "ngram_width")

    pooling: Literal["mean", "first", "attention"] = "mean"
    """How the states of the tokens become one vector: their mean, the state of the first symbol (Devlin et al. 2019)
    through a linear layer and tanh, or their average weighted by attention with a learned query (Yang et al. 2016,
    §2.2). A model of kind `han` has attention of its own instead."""
    ngrams: int = Field(default=0, ge=0, le=10)
    """Join the mean of the embeddings of all n-grams of up to this many tokens with that vector (Joulin et al. 2017);
    0 joins none."""
    ngram_buckets: Size = 262_144
    """Number of vectors that n-grams of two and more tokens share by a hash of their tokens."""
    ngram_width: Size = 64
    """Size of the vector of an n-gram."""
    several: bool = False
    """Multi-label classification: a text may have several labels, separated by commas, or none."""
    weights: Literal["equal", "balanced"] = "equal"
    """Weight of each class in the loss: equal, or `balanced`, inversely proportional to its frequency in the training
    data."""


class ImageClassification(TaskSection):
    """Classification of pictures: how a picture becomes patches and one vector, and how it varies in training."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ("patch", "pooling")

    patch: Size = 4
    """Height and width in pixels of the patches that a picture is cut into (Dosovitskiy et al. 2021, §3.1); a divisor
    of `image.size`."""
    pooling: Literal["first", "mean"] = "first"
    """How the states of the patches become one vector: the state of a class token before them (Dosovitskiy et al. 2021,
    §3.1), or the mean of their states, without a class token."""
    weights: Literal["equal", "balanced"] = "equal"
    """Weight of each class in the loss; see `classification.weights`."""
    shift: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Augmentation in training: move each picture by up to this fraction of its size in each direction."""
    rotation: Annotated[float, Field(ge=0.0, le=180.0)] = 0.0
    """Augmentation in training: rotate each picture by up to this many degrees."""
    scale: Fraction = 0.0
    """Augmentation in training: scale height and width of each picture by up to this fraction, each by its own."""

    def check(self, model: Section, image: ImageSettings) -> None:
        """Raise a ValueError if pictures cannot be cut into patches, or the model has settings that only texts have."""
        if image.size % self.patch:
            divisors = [size for size in range(1, image.size + 1) if image.size % size == 0]
            raise ValueError(
                f"image_classification.patch = {self.patch} does not divide image.size = {image.size}; it may be "
                f"{', '.join(map(str, divisors))}"
            )
        position = getattr(model, "position", "none")
        if position not in ("learned", "sinusoidal", "none"):
            raise ValueError(
                f"model.position = '{position}' orders tokens in a line, and patches lie in a plane; choose "
                "'sinusoidal', 'learned' or 'none'"
            )
        for name, plain in (("window", None), ("position_width", None), ("word_dropout", 0.0)):
            if getattr(model, name, plain) != plain:
                raise ValueError(f"model.{name} is for tokens of a text; remove it")


class Tagging(TaskSection):
    """Tagging: how the tokens of a word become one vector."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ("pooling",)

    pooling: Literal["first", "last", "mean"] = "first"
    """The state of a word of several tokens: that of its first token, of its last token, or their mean."""


class Chatting(TaskSection):
    """Chat: how a reply is found."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ("objective", "pooling", "shared")

    objective: Literal["generate", "retrieve"] = "generate"
    """How a reply is found: `generate` writes it word by word, with an encoder-decoder (Vinyals & Le 2015); `retrieve`
    selects one from a knowledge base, with a dual encoder (Lowe et al. 2015)."""
    pooling: Literal["mean", "first", "attention"] = "mean"
    """Dual encoder: how the states of a history or reply become one vector; see `classification.pooling`."""
    shared: bool = True
    """Dual encoder: histories and replies share one encoder."""


class Forecasting(TaskSection):
    """Forecasting: how much of the past is read, and what is forecast."""

    ARCHITECTURE: ClassVar[tuple[str, ...]] = ("lookback", "horizon", "quantiles")

    lookback: Size = 336
    """Steps of the past that a forecast is made from."""
    horizon: Size = 96
    """Steps of the future that are forecast at once."""
    loss: Literal["mse", "mae"] = "mse"
    """Training loss of the forecast, on columns scaled by the training data: squared or absolute error."""
    quantiles: TupleOf[Annotated[float, Field(gt=0.0, lt=1.0)]] = ()
    """Quantiles to forecast too, by the pinball loss (Koenker & Bassett 1978): [0.1, 0.9] is an interval that should
    contain 80 % of the values. Empty forecasts none."""

    @model_validator(mode="after")
    def _quantiles_rise(self) -> "Forecasting":
        if list(self.quantiles) != sorted(set(self.quantiles)):
            raise ValueError(f"quantiles = {list(self.quantiles)} must rise, without repetition")
        return self


class Captioning(TaskSection):
    """Captioning: what is added to the loss of a model with attention to regions."""

    spread: Weight = 0.0
    """Doubly stochastic regularisation (Xu et al. 2015, eq. 14): the weight λ of Σ_i (1 - Σ_t α_ti)², by which each
    region i gets attention at some time; 0 leaves attention free."""
    reinforce: Weight = 0.1
    """Hard attention: the weight λ_r of REINFORCE (Xu et al. 2015, eq. 12)."""
    entropy: Weight = 0.002
    """Hard attention: the weight λ_e of the entropy of the distribution over regions (Xu et al. 2015, eq. 12)."""
    expected: Fraction = 0.5
    """Hard attention: the probability with which a caption is trained with the mean of all regions instead of sampled
    ones, which lowers the variance (Xu et al. 2015, section 4.1)."""
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    """Temperature of the gumbel attention: lower is closer to one region, with noisier gradients (Jang et al. 2017)."""
