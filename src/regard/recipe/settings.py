"""A recipe: all settings of a run, each with its default, its description and, if it has one, its paper.

`data.py`, `model.py`, `tasks.py` and `decode.py` declare the other sections. An unknown key is an error, and no value
is converted to another type.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from regard.recipe.captioning import PictureReading, ShowAttendTell
from regard.recipe.data import Data, as_dialogues
from regard.recipe.decode import Decode
from regard.recipe.images import IMAGE_CORPORA, ImageSettings, as_images
from regard.recipe.model import Model, Transformer
from regard.recipe.recurrent import Han, Rnn
from regard.recipe.section import Fraction, Positive, Section, TupleOf
from regard.recipe.tasks import (
    MASK,
    ME,
    TASK_FAMILIES,
    TASK_FIELDS,
    YOU,
    Captioning,
    Chatting,
    Classification,
    LanguageModelling,
    Tagging,
    TaskSection,
)


class Text(Section):
    """Tokenizer: how text becomes token ids."""

    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    """Kind of tokens: BPE subwords (Sennrich et al. 2016), unigram subwords (Kudo 2018), words or characters."""
    size: int = Field(default=8000, ge=8, le=1_000_000)
    """Size of the vocabulary, including reserved symbols."""
    joint: bool = True
    """Share one vocabulary between source and target, which tied embeddings need."""
    normalise: Literal["nfkc", "identity"] = "nfkc"
    """Unicode normalisation before tokenization: NFKC, or `identity` for none."""
    lowercase: bool = False
    """Lower-case all text; outputs are lower-cased too."""
    bytes: bool = True
    """Encode characters that are not in the vocabulary as bytes instead of `<unk>`."""
    symbols: TupleOf[str] = ()
    """Additional symbols that are always one token, such as `<2de>`."""
    sampling: Fraction = 0.0
    """Subword sampling in training: probability of BPE-dropout for `bpe` (Provilkov et al. 2020; usually 0.1),
    smoothing of subword regularisation for `unigram` (Kudo 2018); 0 disables it."""

    @model_validator(mode="after")
    def _sampling_needs_subwords(self) -> "Text":
        if self.sampling and self.kind in ("word", "char"):
            raise ValueError(
                f"sampling needs subwords, but kind = '{self.kind}' has none; use 'bpe' or 'unigram', or sampling = 0"
            )
        return self


class Train(Section):
    """Training: optimiser, learning rate, batches, validation."""

    steps: Positive | None = None
    """Number of optimiser steps; unset is as many as `minutes` allows or, without a time limit, 20 epochs: at least
    1,000 steps, at most 8,000."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Stop after this many minutes, even if steps are left; unset is no limit."""
    tokens: Positive | Literal["auto"] | None = None
    """Maximum number of tokens of each side in a batch on one device; `auto` is as many as fit into memory; unset is
    1,024 on a CPU, and up to 4,096 elsewhere if an epoch still has 50 steps."""
    accumulate: Positive = 1
    """Gradient accumulation: batches per optimiser step."""
    optimiser: Literal["adam", "adamw", "muon"] | None = None
    """Optimiser: Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019) or, for matrices, Muon (Jordan et al.
    2024); unset is AdamW, or Muon for a Transformer if rate, schedule and warmup are unset too."""
    rate: Annotated[float, Field(gt=0.0)] | None = None
    """Peak learning rate; unset is 0.001 or, if optimiser, schedule and warmup are unset too, one that suits the
    model."""
    schedule: Literal["inverse-root", "cosine", "trapezoid", "constant", "plateau"] | None = None
    """Learning rate schedule after warm-up; `inverse-root` is that of the paper (§5.3); unset is `inverse-root`, or
    `cosine` if optimiser, rate and warmup are unset too."""
    warmup: Annotated[int, Field(ge=0)] | None = None
    """Warm-up steps, in which the learning rate rises from zero (§5.3); unset is a tenth of the steps, at most
    1,000."""
    cooldown: Fraction = 0.2
    """Fraction of the steps at the end in which `trapezoid` decreases to zero (Hägele et al. 2024)."""
    shrink: float = Field(default=0.7, gt=0.0, lt=1.0)
    """Factor of the learning rate after each validation without improvement, for `plateau`."""
    decay: float = Field(default=0.0, ge=0.0)
    """Weight decay of matrices: decoupled for AdamW and Muon, added to the gradient for Adam."""
    clip: float = Field(default=1.0, gt=0.0)
    """Gradient clipping: maximum norm of the gradient."""
    smoothing: Fraction = 0.1
    """Label smoothing (Szegedy et al. 2016; §5.4)."""
    rdrop: float = Field(default=0.0, ge=0.0)
    """Weight of R-Drop, the divergence between two passes with different dropout (Liang et al. 2021); 0 disables it."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights stay in float32. `auto` is bfloat16 if the device supports it."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the model with `torch.compile`; `auto` compiles on CUDA if the run is long enough to gain from it."""
    record: bool | Literal["auto"] = "auto"
    """Use CUDA graphs, in a run of one process on CUDA; `auto` uses them if they are faster for some first batches.
    Recurrent and hierarchical models cannot use them."""
    sharding: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: replicate the model (`ddp`) or shard it (`fsdp`)."""
    ema: Fraction = 0.0
    """Decay of an exponential moving average of the weights, such as 0.999; 0 disables it."""
    average: int = Field(default=1, ge=1)
    """Number of last checkpoints whose weights are averaged after training (§6.1: 5 for base, 20 for big)."""
    every: Positive | None = None
    """Steps between validations; each validation saves a checkpoint; unset is 500, or a tenth of the steps if that is
    less and `steps` is unset."""
    keep: Positive = 2
    """Number of checkpoints kept for resuming, besides the best weights and those to be averaged."""
    choose: Literal["loss", "bleu", "cider", "accuracy", "macro_f1"] = "loss"
    """Criterion on `data.valid` for the best weights: loss; BLEU of translations, replies or captions; CIDEr-D of
    captions; accuracy of a classifier or tagger; macro F1 of a classifier."""
    patience: int = Field(default=0, ge=0)
    """Early stopping: number of validations without improvement; 0 disables it."""
    translate: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Number of examples of `data.valid` to translate, classify or tag, the same ones at each validation; `auto` is as
    many as cost less than 5 % of the time, or all if another criterion than the loss chooses the best weights."""
    start: str = ""
    """Trained run whose weights initialise the model, such as `runs/other`; empty is a random initialisation."""
    vocabulary: Literal["start", "new"] = "start"
    """Vocabulary with `train.start`: `start` is that of the other run with `text.symbols` added; `new` is learned from
    this text, and known pieces keep their embeddings."""

    @model_validator(mode="after")
    def _criterion_needs_predictions(self) -> "Train":
        if self.choose != "loss" and self.translate == 0:
            raise ValueError(
                f"choose = '{self.choose}' needs predictions, but translate = 0 makes none; "
                "use translate = 'auto' or choose = 'loss'"
            )
        return self


class Recipe(Section):
    """One run: task, data, vocabulary, model, training and decoding."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the run; its folder is `runs/<name>`."""
    task: str = Field(default="translation", description=f"What the model is trained for: {' or '.join(TASK_FIELDS)}.")
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Random seed."""
    data: Data
    """Training data: corpora, filters and the order of examples."""
    text: Text = Text()
    """Tokenizer: how text becomes token ids."""
    image: ImageSettings = ImageSettings()
    """Pictures: the size that all are brought to."""
    model: Model = Transformer()
    """The model; `kind` selects the family."""
    train: Train = Train()
    """Training: optimiser, learning rate, batches, validation."""
    decode: Decode = Decode()
    """Decoding: search and sampling."""
    language_model: LanguageModelling = LanguageModelling()
    """Language models: what they predict."""
    classification: Classification = Classification()
    """Classification: how a text becomes one vector, and what a label is."""
    tagging: Tagging = Tagging()
    """Tagging: how the tokens of a word become one vector."""
    chat: Chatting = Chatting()
    """Chat: how a reply is found."""
    captioning: Captioning = Captioning()
    """Captioning: what is added to the loss of a model with attention to regions."""

    @model_validator(mode="before")
    @classmethod
    def _files_are_what_the_task_needs(cls, value: object) -> object:
        """Read files as dialogues for chat, and as pictures if the task has some, unless a corpus says otherwise."""
        if not isinstance(value, dict) or not isinstance(value.get("data"), dict):
            return value
        task = value.get("task")
        if task != "chat" and not _has_images(task):
            return value
        read = as_dialogues if task == "chat" else as_images
        data = dict(value["data"])
        if isinstance(data.get("train"), list | tuple):
            data["train"] = [read(corpus) for corpus in data["train"]]
        for name in ("valid", "test"):
            data[name] = read(data.get(name))
        return {**value, "data": data}

    @property
    def task_section(self) -> TaskSection | None:
        """The section of the recipe's own task, if it has one."""
        section = getattr(self, self.task, None) if self.task in TASK_FIELDS else None
        return section if isinstance(section, TaskSection) else None

    @property
    def is_masked(self) -> bool:
        """Whether the run is a masked language model."""
        return self.task == "language_model" and self.language_model.objective == "masked"

    @property
    def architecture(self) -> dict[str, Any]:
        """The settings that trained weights depend on, by their key in the recipe."""
        section = self.task_section
        own = {} if section is None else {f"{self.task}.{name}": value for name, value in section.architecture.items()}
        own |= {f"image.{name}": value for name, value in self.image if "image" not in self.unused_sections}
        return {**{f"model.{name}": value for name, value in self.model.architecture.items()}, **own}

    @property
    def unused_sections(self) -> frozenset[str]:
        """The sections that belong to other tasks."""
        others = _TASK_SECTIONS - {self.task}
        has_images = _has_images(self.task) if self.task in TASK_FIELDS else self.image != ImageSettings()
        return frozenset(others if has_images else others | {"image"})

    @model_serializer(mode="wrap")
    def _without_sections_of_other_tasks(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = serialize(self)
        return {name: value for name, value in table.items() if name not in self.unused_sections}

    @model_validator(mode="after")
    def _section_is_of_this_task(self) -> "Recipe":
        for name in self.unused_sections & self.model_fields_set:
            if getattr(self, name) != type(self).model_fields[name].default:
                owner = "tasks with pictures" if name == "image" else f"task = '{name}'"
                raise ValueError(f"[{name}] has settings of {owner}, and this recipe has task = '{self.task}'")
        return self

    @property
    def is_retrieval(self) -> bool:
        """Whether the run selects replies instead of writing them."""
        return self.task == "chat" and self.chat.objective == "retrieve"

    @model_validator(mode="after")
    def _tasks_have_their_symbols(self) -> "Recipe":
        needed = (MASK,) if self.is_masked else (YOU, ME) if self.task == "chat" else ()
        missing = tuple(symbol for symbol in needed if symbol not in self.text.symbols)
        if missing:
            text = self.text.model_copy(update={"symbols": (*self.text.symbols, *missing)})
            object.__setattr__(self, "text", text)  # a recipe is frozen for everybody else
        return self

    @model_validator(mode="after")
    def _family_fits_the_task(self) -> "Recipe":
        families = TASK_FAMILIES.get(self.task)
        if families is not None and self.model.kind not in families:
            raise ValueError(
                f"model.kind = '{self.model.kind}' is not a model for task = '{self.task}'; "
                f"choose {' or '.join(families)}"
            )
        return self

    @model_validator(mode="after")
    def _corpora_have_the_fields_of_the_task(self) -> "Recipe":
        names = TASK_FIELDS.get(self.task)
        if names is None:  # a task defined outside this package checks its own corpora
            return self
        for key, corpus in self.data.corpora():
            if _has_images(self.task) and not isinstance(corpus, IMAGE_CORPORA):
                kinds = " or ".join(str(kind.model_fields["kind"].default) for kind in IMAGE_CORPORA)
                raise ValueError(f"{key}.kind = '{corpus.kind}' has no pictures; choose {kinds}")
            try:
                corpus.check_fields(tuple(names))
            except ValueError as error:
                raise ValueError(f"{key}{error}") from None
        return self

    @model_validator(mode="after")
    def _sections_fit_the_task(self) -> "Recipe":
        if self.task == "translation":
            self._check_translation()
        elif self.task == "language_model":
            self._check_language_model()
        elif self.task == "classification":
            self._check_classification()
        elif self.task == "tagging":
            self._check_tagging()
        elif self.task == "chat":
            self._check_chat()
        elif self.task == "captioning":
            self._check_captioning()
        return self

    def _check_translation(self) -> None:
        self._check_tied("source")
        if self.decode.coverage_penalty and self.model.kind == "sutskever":
            raise ValueError(
                f"decode.coverage_penalty = {self.decode.coverage_penalty:g} needs attention, which model.kind = "
                "'sutskever' does not have; use decode.coverage_penalty = 0, or another family"
            )
        tags = {corpus.tag for corpus in self.data.train if corpus.tag}
        missing = sorted(tags - set(self.text.symbols))
        if missing:
            raise ValueError(f"data.train uses the tags {missing}, which text.symbols does not list; add them there")
        self._check_no_blocks()

    def _check_tied(self, field: str) -> None:
        """Raise an error if the input field shares an embedding with the output, but has a vocabulary of its own."""
        assert not isinstance(self.model, Rnn | Han), "checked before"
        if self.model.tied in ("all", "embeddings", "outer") and not self.text.joint:
            raise ValueError(
                f"model.tied = '{self.model.tied}' shares the embedding of the {field}, "
                "which needs text.joint = true; otherwise set model.tied = 'decoder'"
            )

    def _check_language_model(self) -> None:
        if self.data.stride is not None and (self.data.block is None or self.data.stride > self.data.block):
            raise ValueError(
                f"data.stride = {self.data.stride} is the distance between blocks: set data.block, "
                "and a stride of at most that many tokens"
            )
        if self.data.block is not None and self.text.sampling:
            raise ValueError("text.sampling changes the number of tokens, so data.block cannot be used with it")
        self._check_no_tags()

    def _check_classification(self) -> None:
        self._check_no_tags()
        self._check_no_blocks(", and set data.longest to the number of tokens to read of a text")
        if self.text.sampling and isinstance(self.model, Han):
            raise ValueError(
                "text.sampling does not know the sentences that model.kind = 'han' reads; use sampling = 0, or "
                "another family"
            )

    def _check_no_tags(self) -> None:
        tagged = [key for key, corpus in self.data.corpora() if corpus.tag]
        if tagged:
            raise ValueError(f"{tagged[0]}.tag is for task = 'translation'; remove it")

    def _check_no_blocks(self, hint: str = "") -> None:
        for name in ("block", "stride"):
            if getattr(self.data, name) is not None:
                raise ValueError(
                    f"data.{name} is for task = 'language_model'; {self.task} has no blocks: remove it{hint}"
                )

    def _check_tagging(self) -> None:
        self._check_no_tags()
        self._check_no_blocks()

    def _check_chat(self) -> None:
        self._check_no_tags()
        self._check_no_blocks()
        encoders = ("transformer", "rnn")
        if self.is_retrieval:
            if self.model.kind not in encoders:
                raise ValueError(
                    f"model.kind = '{self.model.kind}' has no encoder of its own, which chat.objective = 'retrieve' "
                    f"needs; choose {' or '.join(encoders)}"
                )
            if not self.text.joint:
                raise ValueError("chat.objective = 'retrieve' compares texts of one vocabulary; set text.joint = true")
            return
        if isinstance(self.model, Rnn):
            raise ValueError(
                "model.kind = 'rnn' is an encoder without a decoder; set chat.objective = 'retrieve', or choose "
                "another family"
            )
        self._check_tied("history")
        if self.decode.coverage_penalty:
            raise ValueError(
                f"decode.coverage_penalty = {self.decode.coverage_penalty:g} is for task = 'translation'; a reply need "
                "not cover its history: remove it"
            )

    def _check_captioning(self) -> None:
        self._check_no_blocks()
        if isinstance(self.model, PictureReading):
            self.model.check_image(self.image.size)
        if isinstance(self.model, ShowAttendTell) and self.model.attention == "hard" and self.train.sharding == "fsdp":
            raise ValueError("the baseline of model.attention = 'hard' cannot be sharded; set train.sharding = 'ddp'")
        if self.decode.coverage_penalty:
            raise ValueError(
                f"decode.coverage_penalty = {self.decode.coverage_penalty:g} is for task = 'translation'; a caption "
                "need not cover its picture: remove it"
            )


def _has_images(task: object) -> bool:
    """Return whether a built-in task has a field with pictures."""
    return isinstance(task, str) and "image" in TASK_FIELDS.get(task, {}).values()


_TASK_SECTIONS = {name for name in Recipe.model_fields if name in TASK_FIELDS}
