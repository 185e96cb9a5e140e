"""What is known of a model beside its numbers: languages, directions of writing, sentences to try."""

import unicodedata
from dataclasses import dataclass
from typing import Any

from regard.analysis.look.parts import family_of, parts_of
from regard.data.phrasebook import lectures
from regard.nn.embedding import Embedding
from regard.nn.position import Learned
from regard.recipe import Recipe
from regard.recipe.data import PhrasebookCorpus
from regard.text import Tokenizer
from regard.translator import Translator

LONGEST = 512
"""Source tokens that are looked at, also where a model has learned from shorter lines."""
EXAMPLES = 8

_RIGHT_TO_LEFT = {"ar", "fa", "he", "ur", "yi", "ps", "sd", "ug", "dv"}


@dataclass(frozen=True)
class About:
    """What a run's recipe says of its model's text."""

    source_language: str | None = None
    target_language: str | None = None
    examples: tuple[str, ...] = ()
    run: str = ""
    """The folder it was opened from."""


def about(recipe: Recipe, run: str = "") -> About:
    """What can be told from a recipe: all of it for the phrasebook; of files, what their names end in."""
    first = recipe.data.train[0]
    if isinstance(first, PhrasebookCorpus):
        return About("en", first.to, tuple(each.source for each in lectures(first.to))[:EXAMPLES], run)
    endings = [name.removesuffix(".gz").rpartition(".")[2] for name in first.files]
    known = [each if 2 <= len(each) <= 3 and each.isalpha() and each != "txt" else None for each in endings]
    return About(known[0], known[1], run=run) if len(known) == 2 else About(run=run)


def longest(translator: Translator) -> int:
    """Most source tokens a question may have."""
    return min(translator.reads, max(translator.longest, LONGEST))


def facts(name: str, translator: Translator, told: About) -> dict[str, Any]:
    """What a page must know of a model."""
    model, both = translator.model, translator.tokenizers
    parts = [
        {"part": part, "layers": len(places), "heads": places[0].heads} for part, places in parts_of(model).items()
    ]
    embedding = model.get_submodule("encoder.embedding")
    assert isinstance(embedding, Embedding)
    languages = {"source_language": told.source_language, "target_language": told.target_language}
    sides = (("source", told.source_language, both.source), ("target", told.target_language, both.target))
    return {
        "name": name,
        "family": family_of(model),
        "parts": parts,
        "width": model.output.weight.shape[1],
        "vocabulary": len(both.target),
        "parameters": sum(each.numel() for each in model.parameters()),
        **{key: value for key, value in languages.items() if value is not None},
        "rtl": {side: _runs_leftwards(language, tokenizer) for side, language, tokenizer in sides},
        "examples": list(told.examples),
        "longest": longest(translator),
        "learned_positions": isinstance(embedding.position, Learned),
    }


def _runs_leftwards(language: str | None, tokenizer: Tokenizer) -> bool:
    """Whether a side is written from right to left: by its language, else by most letters of its vocabulary."""
    if language is not None:
        return language in _RIGHT_TO_LEFT
    letters = [each for number in range(len(tokenizer)) for each in tokenizer.piece(number) if each.isalpha()]
    return 2 * sum(unicodedata.bidirectional(each) in ("R", "AL") for each in letters) > len(letters)
