"""Settings of the training data: corpora, filters and the order of examples."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from regard.recipe.images import DigitsCorpus, ImagesCorpus, ScenesCorpus
from regard.recipe.section import BaseCorpus, Positive, Section, Size, TupleOf


class TextCorpus(BaseCorpus):
    """Plain text files, one for each field: line i of every file belongs to record i. `.gz` files are decompressed."""

    kind: Literal["text"] = "text"
    """Plain text files, one for each field."""
    files: dict[str, str] = Field(min_length=1)
    """File of each field, one value per line: `source` and `target` for translation, `text` for a language model,
    `words` and `tags` for tagging. Write the field names directly: { source = "train.en", target = "train.de" }."""

    @model_validator(mode="before")
    @classmethod
    def _field_names_are_keys(cls, value: object) -> object:
        """Collect keys that are not settings, such as `source`, into `files`."""
        if not isinstance(value, dict):
            return value
        settings = {name: entry for name, entry in value.items() if name in cls.model_fields}
        named = {name: entry for name, entry in value.items() if name not in cls.model_fields}
        return {**settings, "files": {**settings.get("files", {}), **named}}

    @model_serializer(mode="wrap")
    def _files_are_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write field names as keys of the corpus, as a recipe spells them."""
        table: dict[str, Any] = serialize(self)
        return {**table.pop("files", {}), **table}

    @property
    def paths(self) -> tuple[str, ...]:
        """One file for each field."""
        return tuple(self.files.values())

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless there is exactly one file for each field."""
        unknown = [name for name in self.files if name not in names]
        if unknown and (similar := get_close_matches(unknown[0], [*names, *type(self).model_fields], n=1)):
            raise ValueError(f".{unknown[0]}: no such setting; did you mean data.train.{similar[0]}?")
        if set(self.files) != set(names):
            raise ValueError(
                f" names a file for {' and '.join(self.files)}, but this task needs a file for {' and '.join(names)}"
            )


class TsvCorpus(BaseCorpus):
    """A file of tab-separated columns, one record per line. `.gz` files are decompressed."""

    kind: Literal["tsv"] = "tsv"
    """A file of tab-separated columns."""
    path: str
    """The file."""
    columns: TupleOf[Positive] | None = None
    """Columns of the task's fields, in order, counted from 1; by default the first ones."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless there is a column for each field."""
        if self.columns is not None and len(self.columns) != len(names):
            raise ValueError(
                f".columns = {list(self.columns)} names {len(self.columns)} columns, but this task has the fields "
                f"{', '.join(names)}: give one column for each"
            )


class JsonlCorpus(BaseCorpus):
    """A file with a JSON object on each line, one record per line. `.gz` files are decompressed."""

    kind: Literal["jsonl"] = "jsonl"
    """A file with a JSON object on each line."""
    path: str
    """The file."""
    keys: TupleOf[str] | None = None
    """Keys of the task's fields, in order; by default the names of the fields."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless there is a key for each field."""
        if self.keys is not None and len(self.keys) != len(names):
            raise ValueError(
                f".keys = {list(self.keys)} names {len(self.keys)} keys, but this task has the fields "
                f"{', '.join(names)}: give one key for each"
            )


class ConlluCorpus(BaseCorpus):
    """Tagged sentences in the CoNLL-U format of Universal Dependencies. `.gz` files are decompressed."""

    kind: Literal["conllu"] = "conllu"
    """Tagged sentences in the CoNLL-U format."""
    path: str
    """The file."""
    column: str = Field(default="upos", pattern=r"^(upos|xpos|deprel|[A-Z0-9][A-Za-z0-9]*(\[[a-z0-9]+\])?)$")
    """What the tags are: `upos`, `xpos`, `deprel`, or a feature such as `Number`; `_` for words without it."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are words and tags."""
        _check_words_and_tags(self.kind, names)


class ConllCorpus(BaseCorpus):
    """Tagged sentences, a word with its tags on each line and a blank line after each sentence, as in CoNLL-2003.

    Columns are separated by tabs or, in a line without tabs, by white space. `.gz` files are decompressed.
    """

    kind: Literal["conll"] = "conll"
    """Tagged sentences, one word on each line."""
    path: str
    """The file."""
    columns: TupleOf[Positive] = Field(default=(1, 2), min_length=2, max_length=2)
    """Columns of word and tag, counted from 1; [1, 4] for the entities of CoNLL-2003."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are words and tags."""
        _check_words_and_tags(self.kind, names)


def _check_words_and_tags(kind: str, names: Sequence[str]) -> None:
    if tuple(names) != ("words", "tags"):
        raise ValueError(
            f".kind = '{kind}' has words and tags, but this task has the fields {', '.join(names)}: set "
            "task = 'tagging', or name another file"
        )


class PhrasebookCorpus(BaseCorpus):
    """Sentence pairs generated by the built-in grammar; needs no file. A language model reads their English side, and a
    tagger the side of the language `to`, with the part of speech of each word."""

    kind: Literal["phrasebook"] = "phrasebook"
    """Sentence pairs generated by the built-in grammar."""
    to: Literal["de", "fr", "it", "ar", "en"]
    """Target language; the source is English. For tagging, the language that is tagged, which may be `en`."""
    pairs: Positive = 100_000
    """How many distinct pairs to generate."""
    split: Literal["train", "valid", "test", "novel"] = "train"
    """Part of the phrasebook; no sentence occurs in two parts."""

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError if a record has fields that the phrasebook does not know, or needs another language."""
        if len(names) > 2 or not {"label", "history", "image"}.isdisjoint(names):
            raise ValueError(
                f"generates pairs of texts, but this task has the fields {', '.join(names)}: use a file with them all"
            )
        if self.to == "en" and "tags" not in names:
            raise ValueError(".to = 'en': sentences are translated from English, so name de, fr, it or ar")


class DocumentsCorpus(BaseCorpus):
    """Generated documents with labels; needs no file. A language model reads their texts."""

    kind: Literal["documents"] = "documents"
    """Generated documents with labels."""
    label: Literal["topic", "sentiment"]
    """What the label says: the topic of a document, or whether the reviewer liked what it is about."""
    count: Positive = 20_000
    """How many distinct documents to generate."""
    split: Literal["train", "valid", "test"] = "train"
    """Part of the documents; no sentence that decides a label occurs in two parts."""

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError if a record has other fields than a text and a label."""
        if not set(names) <= {"text", "label"}:
            raise ValueError(
                f"generates a text and a label, but this task has the fields {', '.join(names)}: use a file with them"
            )


class DialogueCorpus(BaseCorpus):
    """Dialogues, of which each turn but the first is a reply to the turns before it. `.gz` files are decompressed.

    A file whose name ends in `.jsonl` or `.json` has a JSON object on each line, with an array of turns; any other file
    has a turn on each line, and a blank line after each dialogue.
    """

    kind: Literal["dialogues"] = "dialogues"
    """Dialogues, of which each turn but the first is a reply."""
    path: str
    """The file."""
    key: str = "turns"
    """Key of the turns in a JSON object. A turn is a string, or an object with a `text` and a `speaker`. Successive
    turns of one speaker are joined."""
    speaker: str = ""
    """Learn only the replies of this speaker, where speakers are named; empty learns those of all."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The one file."""
        return (self.path,)

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are history and reply."""
        _check_history_and_reply(self.kind, names)


class SmallTalkCorpus(BaseCorpus):
    """Generated dialogues in which replies depend on earlier turns; needs no file."""

    kind: Literal["smalltalk"] = "smalltalk"
    """Generated dialogues in which replies depend on earlier turns."""
    count: Positive = 20_000
    """How many distinct dialogues to generate."""
    split: Literal["train", "valid", "test"] = "train"
    """Part of the dialogues; no question about an earlier turn occurs in two parts with the turns it depends on."""
    speaker: Literal["", "user", "bot"] = "bot"
    """Learn only the replies of this speaker; empty learns those of both."""

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are history and reply."""
        _check_history_and_reply(self.kind, names)


def _check_history_and_reply(kind: str, names: Sequence[str]) -> None:
    if tuple(names) != ("history", "reply"):
        raise ValueError(
            f".kind = '{kind}' has histories and replies, but this task has the fields {', '.join(names)}: set "
            "task = 'chat', or name another file"
        )


def as_dialogues(corpus: object) -> object:
    """Return the table of a corpus; a file becomes one of dialogues, unless a kind, columns or keys are named."""
    if not isinstance(corpus, dict) or not {"kind", "columns", "keys"}.isdisjoint(corpus) or "path" not in corpus:
        return corpus
    is_tsv = str(corpus["path"]).removesuffix(".gz").endswith(".tsv")
    return corpus if is_tsv else {**corpus, "kind": "dialogues"}


def _corpus_kind(value: object) -> str:
    """Return the kind that a table names, or the one that its keys and file name imply."""
    if not isinstance(value, dict):
        return getattr(value, "kind", "text") if isinstance(value, BaseCorpus) else "text"
    if "kind" in value:
        return str(value["kind"])
    if "to" in value:
        return "phrasebook"
    if "path" in value:
        name = str(value["path"]).removesuffix(".gz")
        suffixes = {".jsonl": "jsonl", ".json": "jsonl", ".conllu": "conllu", ".conll": "conll", ".npz": "images"}
        return next((kind for suffix, kind in suffixes.items() if name.endswith(suffix)), "tsv")
    return "text"


Corpus = Annotated[
    Annotated[TextCorpus, Tag("text")]
    | Annotated[TsvCorpus, Tag("tsv")]
    | Annotated[JsonlCorpus, Tag("jsonl")]
    | Annotated[ConlluCorpus, Tag("conllu")]
    | Annotated[ConllCorpus, Tag("conll")]
    | Annotated[PhrasebookCorpus, Tag("phrasebook")]
    | Annotated[DocumentsCorpus, Tag("documents")]
    | Annotated[DialogueCorpus, Tag("dialogues")]
    | Annotated[SmallTalkCorpus, Tag("smalltalk")]
    | Annotated[ImagesCorpus, Tag("images")]
    | Annotated[ScenesCorpus, Tag("scenes")]
    | Annotated[DigitsCorpus, Tag("digits")],
    Discriminator(_corpus_kind),
]

Filter = Literal["empty", "long", "ratio", "copy", "duplicate"]


class Data(Section):
    """Training data: corpora, filters and the order of examples."""

    root: str = "."
    """Folder that relative paths of corpora start from."""
    train: TupleOf[Corpus] = Field(min_length=1)
    """Training corpora, mixed by their weights."""
    valid: Corpus | None = None
    """Validation corpus: chooses the best checkpoint, drives early stopping and the `plateau` schedule."""
    test: Corpus | None = None
    """Test corpus, scored once after training; never used to choose anything."""
    drop: TupleOf[Filter] = ("empty", "long", "ratio", "copy", "duplicate")
    """Filters that drop training records; remove a name from the list to switch that filter off."""
    longest: int = Field(default=256, gt=0, le=100_000)
    """Maximum number of tokens in each text of a record; the filter `long` drops records beyond it. The end of each
    given word, turn, or sentence of a document, counts as a token too. Classification drops no long texts: it cuts
    their ends off. Chat cuts the beginnings of long histories off."""
    ratio: float = Field(default=9.0, gt=1.0)
    """Maximum ratio of the lengths, in tokens, of the texts of a record; `ratio` drops the record beyond (KFTT: 9)."""
    order: Literal["random", "length"] = "random"
    """`random` fills batches in shuffled order; `length` batches records of similar length, for kernels that pad."""
    documents: Literal["line", "paragraph", "file"] = "line"
    """What is one record of a text file of a language model: a line, a paragraph (before a blank line) or the file."""
    turns: Size = 6
    """Dialogues: the number of turns before a reply that its history has, at most."""
    reverse: bool = False
    """Dialogues: predict each turn from the turn after it, for reranking by mutual information (Li et al. 2016)."""
    block: Size | None = None
    """Language models: concatenate all documents and train on blocks of this many tokens; unset keeps them apart."""
    stride: Size | None = None
    """Tokens from the start of one block to the start of the next; unset is `block`, less makes blocks overlap."""

    def corpora(self) -> Iterator[tuple[str, Corpus]]:
        """Yield every corpus with its key in the recipe, such as `data.train.0`."""
        yield from ((f"data.train.{number}", corpus) for number, corpus in enumerate(self.train))
        yield from ((f"data.{name}", corpus) for name, corpus in (("valid", self.valid), ("test", self.test)) if corpus)
