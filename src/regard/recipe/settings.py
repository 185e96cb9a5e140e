"""Every setting of the project, with its default, its meaning and, where one exists, its paper.

The classes are frozen and strict: no key is ignored, no value is quietly turned into another type.
"""

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator


def _lists_are_tuples(value: object) -> object:
    """TOML knows arrays only; a frozen recipe holds tuples."""
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Sequence = Annotated[tuple[T, ...], BeforeValidator(_lists_are_tuples)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A group of settings: frozen, strict, and closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class AnyCorpus(Section):
    """What every corpus can be told."""

    weight: float = Field(default=1.0, gt=0.0, le=1000.0)
    """How often each pair appears in an epoch: 2 shows it twice, 0.5 a fresh random half."""
    tag: str = ""
    """A symbol put before each source, such as `<2de>` for the language wanted (Johnson et al. 2017)."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files it is read from, as the recipe names them."""
        return ()


class TextCorpus(AnyCorpus):
    """Two plain text files, line i of one translating line i of the other; `.gz` is read as it is."""

    kind: Literal["text"] = "text"
    """Two plain text files."""
    source: str
    """File of source lines."""
    target: str
    """File of target lines."""

    @property
    def files(self) -> tuple[str, ...]:
        """The two files."""
        return (self.source, self.target)


class TsvCorpus(AnyCorpus):
    """One file with tab-separated columns; `.gz` is read as it is."""

    kind: Literal["tsv"] = "tsv"
    """One file of tab-separated columns."""
    path: str
    """The file."""
    columns: Annotated[tuple[Positive, Positive], BeforeValidator(_lists_are_tuples)] = (1, 2)
    """Columns of source and target, counted from 1."""

    @property
    def files(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)


class JsonlCorpus(AnyCorpus):
    """One file with a JSON object on each line; `.gz` is read as it is."""

    kind: Literal["jsonl"] = "jsonl"
    """One file with a JSON object a line."""
    path: str
    """The file."""
    keys: Annotated[tuple[str, str], BeforeValidator(_lists_are_tuples)] = ("source", "target")
    """Keys of source and target."""

    @property
    def files(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)


class PhrasebookCorpus(AnyCorpus):
    """Sentence pairs drawn from the built-in grammar; needs no file."""

    kind: Literal["phrasebook"] = "phrasebook"
    """Pairs drawn from the built-in grammar."""
    to: Literal["de", "fr", "it", "ar"]
    """Target language; the source is English."""
    pairs: Positive = 100_000
    """How many distinct pairs to draw."""
    split: Literal["train", "valid", "test", "novel"] = "train"
    """Which part of the phrasebook; no sentence is in two of them."""


def _corpus_kind(value: object) -> str:
    """The kind a table names, or else the one its keys and file name speak of."""
    if not isinstance(value, dict):
        return getattr(value, "kind", "text") if isinstance(value, AnyCorpus) else "text"
    if "kind" in value:
        return str(value["kind"])
    if "to" in value:
        return "phrasebook"
    if "path" in value:
        name = str(value["path"]).removesuffix(".gz")
        return "jsonl" if name.endswith((".jsonl", ".json")) else "tsv"
    return "text"


Corpus = Annotated[
    Annotated[TextCorpus, Tag("text")]
    | Annotated[TsvCorpus, Tag("tsv")]
    | Annotated[JsonlCorpus, Tag("jsonl")]
    | Annotated[PhrasebookCorpus, Tag("phrasebook")],
    Discriminator(_corpus_kind),
]

Filter = Literal["empty", "long", "ratio", "copy", "duplicate"]


class Data(Section):
    """Which text a run learns from, and which pairs of it."""

    root: str = "."
    """Folder that relative paths of corpora start from."""
    train: Sequence[Corpus] = Field(min_length=1)
    """Corpora to learn from, mixed by their weights."""
    valid: Corpus | None = None
    """Corpus that choices are made on while training: early stopping, best checkpoint."""
    test: Corpus | None = None
    """Corpus scored once, when training is over; never used to choose."""
    drop: Sequence[Filter] = ("empty", "long", "ratio", "copy", "duplicate")
    """Filters that drop training pairs; take one off the list to switch it off."""
    longest: int = Field(default=256, gt=0, le=100_000)
    """Tokens a side may have; `long` drops the pair beyond."""
    ratio: float = Field(default=9.0, gt=1.0)
    """Times one side may be longer than the other, in tokens; `ratio` drops the pair beyond (KFTT's cut is 9)."""
    order: Literal["random", "length"] = "random"
    """`random` fills batches as pairs come; `length` groups pairs of like length, which helps kernels that pad."""


class Text(Section):
    """How a line becomes token ids."""

    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    """Subwords by merges (Sennrich et al. 2016), by a unigram model (Kudo 2018), whole words, or characters."""
    size: int = Field(default=8000, ge=8, le=1_000_000)
    """Entries of the vocabulary, reserved symbols included."""
    joint: bool = True
    """One vocabulary for source and target; needed to tie their embeddings."""
    normalise: Literal["nfkc", "identity"] = "nfkc"
    """Unicode form the tokenizer sees: compatibility-composed, or the line untouched."""
    lowercase: bool = False
    """Lower-case every line; translations come out lower-cased too."""
    bytes: bool = True
    """Spell unseen characters in bytes instead of `<unk>`."""
    symbols: Sequence[str] = ()
    """Symbols that are always one token, such as `<2de>`."""
    sampling: Share = 0.0
    """While training, cut words differently each time: BPE-dropout (Provilkov et al. 2020, 0.1 is usual) for `bpe`,
    the smoothing of subword regularisation (Kudo 2018) for `unigram`; 0 is off."""

    @model_validator(mode="after")
    def _sampling_needs_subwords(self) -> "Text":
        if self.sampling and self.kind in ("word", "char"):
            raise ValueError(
                f"sampling cuts words into subwords, which kind = '{self.kind}' has not; use 'bpe' or 'unigram'"
            )
        return self


class Transformer(Section):
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
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "sinusoidal"
    """How order enters: §3.5; learned (Gehring et al. 2017); rotary (Su et al. 2021); ALiBi (Press et al. 2022)."""
    norm: Literal["layer", "rms", "scale"] = "layer"
    """Normalisation: LayerNorm (Ba et al. 2016), RMSNorm (Zhang & Sennrich 2019), ScaleNorm (Nguyen & Salazar 2019)."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm, Xiong et al. 2020) rather than after it (§3.1)."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Non-linearity of the feed-forward layers: §3.3; Hendrycks & Gimpel 2016; Shazeer 2020."""
    dropout: Share = 0.1
    """Dropout on each sub-layer's output and on embeddings (§5.4)."""
    tied: Literal["all", "decoder", "none"] = "all"
    """Which embeddings share one matrix: source, target and output; target and output; none (Press & Wolf 2017)."""
    window: Positive | None = None
    """Neighbours to each side that encoder self-attention may see (§4, restricted self-attention); unset sees all."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, value: object) -> object:
        if isinstance(value, dict):
            return {**cls.SIZES.get(str(value.get("size", "small")), {}), **value}
        return value

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Transformer":
        if self.width % self.heads:
            fits = [n for n in range(1, self.width + 1) if self.width % n == 0 and n <= 64]
            raise ValueError(f"width = {self.width} does not divide into heads = {self.heads}; heads may be {fits}")
        return self


Model = Transformer


class Train(Section):
    """How a model learns."""

    steps: Positive = 8000
    """Updates of the weights."""
    tokens: Positive | Literal["auto"] = 4096
    """Tokens of either side in one batch on one device; `auto` takes what fits."""
    accumulate: Positive = 1
    """Batches whose gradients make one update."""
    optimiser: Literal["adam", "adamw", "muon"] = "adamw"
    """Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019), Muon for matrices (Jordan et al. 2024)."""
    rate: float = Field(default=1e-3, gt=0.0)
    """Highest learning rate."""
    schedule: Literal["inverse-root", "cosine", "trapezoid", "constant", "plateau"] = "inverse-root"
    """How the rate moves after warm-up; `inverse-root` is the paper's (§5.3)."""
    warmup: int = Field(default=1000, ge=0)
    """Steps over which the rate rises from zero (§5.3)."""
    decay: float = Field(default=0.0, ge=0.0)
    """Weight decay, decoupled."""
    clip: float = Field(default=1.0, gt=0.0)
    """Largest norm of the gradient; a larger one is scaled down to it."""
    smoothing: Share = 0.1
    """Label smoothing (Szegedy et al. 2016; §5.4)."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Number format of the matrix products; weights stay in float32."""
    average: int = Field(default=1, ge=1)
    """Checkpoints whose weights are averaged at the end (§6.1 takes 5 for base, 20 for big)."""
    every: Positive = 500
    """Steps between two validations, each with a checkpoint."""
    patience: int = Field(default=0, ge=0)
    """Validations without progress before stopping early; 0 never stops early."""


class Decode(Section):
    """How a translation is searched for."""

    beam: Positive = 5
    """Hypotheses kept at each step; 1 is greedy."""
    length_penalty: float = Field(default=1.0, ge=0.0)
    """Exponent alpha of the length penalty (Wu et al. 2016, eq. 14); 0 is none."""
    longest: float = Field(default=2.0, gt=0.0)
    """Tokens a translation may have for each source token, plus 10."""


class Recipe(Section):
    """One run: its text, its model, how it learns and how it is searched."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the run; its folder is `runs/<name>`."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Where everything random starts."""
    data: Data
    """Which text a run learns from, and which pairs of it."""
    text: Text = Text()
    """How a line becomes token ids."""
    model: Model = Transformer()
    """The model; `kind` picks the family."""
    train: Train = Train()
    """How a model learns."""
    decode: Decode = Decode()
    """How a translation is searched for."""

    @model_validator(mode="after")
    def _sections_fit_each_other(self) -> "Recipe":
        if self.model.tied == "all" and not self.text.joint:
            raise ValueError(
                "model.tied = 'all' shares one embedding between source and target, "
                "which needs text.joint = true; else say model.tied = 'decoder'"
            )
        tags = {corpus.tag for corpus in self.data.train if corpus.tag}
        missing = sorted(tags - set(self.text.symbols))
        if missing:
            raise ValueError(f"data.train uses the tags {missing}, which text.symbols does not list; add them there")
        return self
