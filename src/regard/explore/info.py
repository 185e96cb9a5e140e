"""Describe a model to the page: its task and sizes, its languages and writing directions, and example sentences."""

import unicodedata
from dataclasses import dataclass
from typing import Any

from regard.data.documents import documents
from regard.data.phrasebook import lectures
from regard.data.smalltalk import dialogues
from regard.explore.adapters import TaskAdapter
from regard.explore.attention import AttentionLayers
from regard.nn.position import LearnedPositions
from regard.recipe import Recipe
from regard.recipe.data import Corpus, DocumentsCorpus, PhrasebookCorpus, SmallTalkCorpus
from regard.recipe.languages import corpus_languages
from regard.text import Tokenizer

MAX_EXAMPLES = 8

_RIGHT_TO_LEFT = {"ar", "fa", "he", "ur", "yi", "ps", "sd", "ug", "dv"}


@dataclass(frozen=True)
class ModelInfo:
    """What a recipe says about a model's text and architecture."""

    source_language: str | None = None
    target_language: str | None = None
    examples: tuple[str, ...] = ()
    run: str = ""
    """The folder it was loaded from."""
    family: str | None = None
    """The architecture, as `model.kind` in the recipe."""


def model_info(recipe: Recipe, run: str = "") -> ModelInfo:
    """Read from a recipe what the page shows: languages come from the phrasebook, or from the suffixes of files."""
    first, family = recipe.data.train[0], recipe.model.kind
    if recipe.task == "classification":
        return ModelInfo(examples=_example_documents(first, recipe.seed), run=run, family=family)
    if recipe.task == "chat":
        return ModelInfo(examples=_example_dialogues(first, recipe.data.turns, recipe.seed), run=run, family=family)
    if isinstance(first, PhrasebookCorpus):
        sentences = [phrase.source for phrase in lectures(first.to)]
        if recipe.task == "language_model":
            prompts = tuple(dict.fromkeys(map(_first_half, sentences)))
            return ModelInfo("en", "en", prompts[:MAX_EXAMPLES], run, family)
        return ModelInfo("en", first.to, tuple(sentences[:MAX_EXAMPLES]), run, family)
    source, target = corpus_languages(first)
    return ModelInfo(source, target, run=run, family=family)


def _example_documents(corpus: Corpus, seed: int) -> tuple[str, ...]:
    """Return documents that were not used for training, if they are generated."""
    if not isinstance(corpus, DocumentsCorpus):
        return ()
    unseen = documents(corpus.label, "test", 50, seed)
    return tuple(document.text for document in unseen if 5 <= len(document.sentences) <= 8)[:MAX_EXAMPLES]


def _example_dialogues(corpus: Corpus, most: int, seed: int) -> tuple[str, ...]:
    """Return conversations that were not used for training, if they are generated: a turn on each line.

    The last turn of each asks for what an earlier one says.
    """
    if not isinstance(corpus, SmallTalkCorpus):
        return ()
    unseen = dialogues("test", 200, seed)
    replies = (
        (dialogue, next(filter(dialogue.is_recalled, range(1, len(dialogue.turns), 2)), 0)) for dialogue in unseen
    )
    return tuple("\n".join(dialogue.turns[:at]) for dialogue, at in replies if 0 < at <= most)[:MAX_EXAMPLES]


def _first_half(sentence: str) -> str:
    """Return the first half of the words of a sentence, as a prompt."""
    words = sentence.split()
    return " ".join(words[: (len(words) + 1) // 2])


def describe(name: str, adapter: TaskAdapter, layers: AttentionLayers, info: ModelInfo) -> dict[str, Any]:
    """Return what the page needs to know about a model before the first question."""
    parts = [
        {"part": part, "layers": len(mechanisms), "heads": mechanisms[0].heads} for part, mechanisms in layers.items()
    ]
    languages = {"source_language": info.source_language, "target_language": info.target_language}
    rtl = {
        "source": is_right_to_left(info.source_language, adapter.input_tokenizer),
        "target": is_right_to_left(info.target_language, adapter.output_tokenizer),
    }
    return {
        "name": name,
        "task": adapter.task,
        "input": adapter.input_field,
        "family": info.family,
        "parts": parts,
        "width": adapter.width,
        "vocabulary": len(adapter.output_tokenizer),
        "parameters": sum(parameter.numel() for parameter in adapter.model.parameters()),
        **{key: language for key, language in languages.items() if language is not None},
        "rtl": rtl,
        "examples": list(info.examples),
        "longest": adapter.max_input,
        "learned_positions": isinstance(adapter.embedding.position, LearnedPositions),
    }


def is_right_to_left(language: str | None, tokenizer: Tokenizer) -> bool:
    """Return whether a text runs from right to left: by its language, or by most letters of its vocabulary."""
    if language is not None:
        return language in _RIGHT_TO_LEFT
    letters = [letter for token in range(len(tokenizer)) for letter in tokenizer.piece(token) if letter.isalpha()]
    return 2 * sum(unicodedata.bidirectional(letter) in ("R", "AL") for letter in letters) > len(letters)
