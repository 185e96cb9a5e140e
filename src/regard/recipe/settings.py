"""A recipe: all settings of a run, each with its default, its description and, if it has one, its paper.

`data.py`, `model.py`, `training.py`, `tasks.py` and `decode.py` declare the other sections. An unknown key is an error,
and no value is converted to another type.
"""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from regard.recipe.captioning import PictureReading, ShowAttendTell
from regard.recipe.data import Data, as_dialogues
from regard.recipe.decode import Decode
from regard.recipe.images import IMAGE_CORPORA, ImageSettings, as_images
from regard.recipe.model import Model, Transformer
from regard.recipe.recurrent import Han, Rnn
from regard.recipe.section import Fraction, Section, TupleOf
from regard.recipe.series import SERIES_CORPORA, as_series
from regard.recipe.tasks import (
    MASK,
    ME,
    TASK_FAMILIES,
    TASK_FIELDS,
    YOU,
    Captioning,
    Chatting,
    Classification,
    Forecasting,
    ImageClassification,
    LanguageModelling,
    Tagging,
    TaskSection,
)
from regard.recipe.training import Train

SHORTEST_HISTORY = 3  # tokens: the symbol of a speaker, one of the turn, and its end


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
    image_classification: ImageClassification = ImageClassification()
    """Classification of pictures: patches, and how a picture varies in training."""
    tagging: Tagging = Tagging()
    """Tagging: how the tokens of a word become one vector."""
    chat: Chatting = Chatting()
    """Chat: how a reply is found."""
    forecasting: Forecasting = Forecasting()
    """Forecasting: how much of the past is read, and what is forecast."""
    captioning: Captioning = Captioning()
    """Captioning: what is added to the loss of a model with attention to regions."""

    @model_validator(mode="before")
    @classmethod
    def _files_are_what_the_task_needs(cls, value: object) -> object:
        """Read files as the task needs them, unless a corpus says otherwise: as dialogues, pictures or series."""
        if not isinstance(value, dict):
            return value
        task = value["task"] if isinstance(value.get("task"), str) else ""
        if task == "forecasting" and isinstance(value.get("model", {}), dict):
            value = {**value, "model": {"kind": "patch", **value.get("model", {})}}
        if not isinstance(value.get("data"), dict):
            return value
        read = _CORPUS_READERS.get(task) or (as_images if _has_images(task) else None)
        if read is None:
            return value
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
            for has_them, kinds, what in (
                (_has_images(self.task), IMAGE_CORPORA, "pictures"),
                (self.task == "forecasting", SERIES_CORPORA, "numbers over time"),
            ):
                if has_them and not isinstance(corpus, kinds):
                    names_of = " or ".join(str(kind.model_fields["kind"].default) for kind in kinds)
                    raise ValueError(f"{key}.kind = '{corpus.kind}' has no {what}; choose {names_of}")
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
        elif self.task == "image_classification":
            self._check_no_tags()
            self._check_no_blocks()
            self.image_classification.check(self.model, self.image)
        elif self.task in ("tagging", "forecasting"):
            self._check_plain()
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
        tied = getattr(self.model, "tied", "none")
        if tied in ("all", "embeddings", "outer") and not self.text.joint:
            raise ValueError(
                f"model.tied = '{tied}' shares the embedding of the {field}, "
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

    def _check_plain(self) -> None:
        self._check_no_tags()
        self._check_no_blocks()

    def _check_chat(self) -> None:
        self._check_no_tags()
        self._check_no_blocks()
        if self.data.longest < SHORTEST_HISTORY:
            raise ValueError(
                f"data.longest = {self.data.longest} is too short for a turn, which has a symbol of its speaker and an "
                f"end beside its tokens; use at least {SHORTEST_HISTORY}"
            )
        encoders = ("transformer", "rnn")
        if self.is_retrieval:
            if self.model.kind not in encoders:
                raise ValueError(
                    f"model.kind = '{self.model.kind}' has no encoder of its own, which chat.objective = 'retrieve' "
                    f"needs; choose {' or '.join(encoders)}"
                )
            if not self.text.joint:
                raise ValueError("chat.objective = 'retrieve' compares texts of one vocabulary; set text.joint = true")
            if self.train.rdrop:
                raise ValueError(
                    f"train.rdrop = {self.train.rdrop:g} is for models that predict tokens or labels, which "
                    "chat.objective = 'retrieve' does not; remove it"
                )
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


_CORPUS_READERS = {"chat": as_dialogues, "forecasting": as_series}
"""How the corpora of a task are read."""
_TASK_SECTIONS = {name for name in Recipe.model_fields if name in TASK_FIELDS}
