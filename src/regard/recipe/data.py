"""Which text a run learns from, and which pairs of it."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from regard.recipe.section import Positive, Section, Sequence, lists_are_tuples


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
    columns: Annotated[tuple[Positive, Positive], BeforeValidator(lists_are_tuples)] = (1, 2)
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
    keys: Annotated[tuple[str, str], BeforeValidator(lists_are_tuples)] = ("source", "target")
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
