"""The shapes of answers, and how what was found becomes one."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from regard.models.fast import Engine as FastEngine
from regard.serve.wire import Tokens
from regard.translator import Translation, Translator
from regard.translator.given import Given


class Translated(BaseModel):
    """A line translated."""

    source: str
    text: str
    score: float | None
    logprob: float | None
    tokens: list[str]
    token_logprobs: list[float | None]
    alignment: list[tuple[int, int]] | None = Field(None, description="Words of source and target, counted from 0.")
    nbest: list["Translated"] | None = Field(None, description="All translations asked for, this one first.")
    fault: str | None = Field(None, description="Why there is no translation, where there is none.")


class Translations(BaseModel):
    """The answer to `/translate`."""

    model: str
    translations: list[Translated]


class Weighed(BaseModel):
    """A pair, and how probable the model finds it."""

    source: str
    target: str
    logprob: float
    perplexity: float
    tokens: list[str]
    token_logprobs: list[float]


class Perplexity(BaseModel):
    """The answer to `/perplexity`: of all pairs, and of each."""

    model: str
    perplexity: float
    logprob: float
    tokens: int
    pairs: list[Weighed]


class Aligned(BaseModel):
    """Words of a pair that belong together, counted from 0."""

    source: str
    target: str
    alignment: list[tuple[int, int]]


class Alignments(BaseModel):
    """The answer to `/align`."""

    model: str
    pairs: list[Aligned]


class TokenOfLine(BaseModel):
    """A token: its piece, its id, and which characters and word of the line it is."""

    piece: str
    id: int
    start: int
    end: int
    word: int | None


class TokenLines(BaseModel):
    """The answer to `/tokens`."""

    model: str
    lines: list[list[TokenOfLine]]


class ModelFacts(BaseModel):
    """What a model is."""

    name: str
    parameters: int
    vocabulary: tuple[int, int]
    longest: int = Field(description="Source tokens it has learned to read; longer lines are split.")
    device: str
    precision: str
    aligns: bool
    symbols: list[str] = Field(description="Symbols a source line may begin with, such as a language to translate to.")


class Models(BaseModel):
    """The answer to `/models`."""

    models: list[ModelFacts]


class Health(BaseModel):
    """The answer to `/health`."""

    status: Literal["ready", "stuck"]
    version: str


class Problem(BaseModel):
    """Every answer that is none: what was wrong, and what to do."""

    error: str


def translations(model: str, found: Sequence[Translation]) -> dict[str, Any]:
    """The answer to `/translate`."""
    return {"model": model, "translations": [each.to_json() for each in found]}


def perplexity(model: str, found: Sequence[Given]) -> dict[str, Any]:
    """The answer to `/perplexity`."""
    logprob, tokens = math.fsum(each.logprob for each in found), sum(len(each.tokens) for each in found)
    table = {"model": model, "perplexity": math.exp(-logprob / tokens), "logprob": logprob, "tokens": tokens}
    return {**table, "pairs": [each.to_json() for each in found]}


def alignments(model: str, found: Sequence[Given]) -> dict[str, Any]:
    """The answer to `/align`."""
    pairs = [
        {"source": each.source, "target": each.target, "alignment": [list(link) for link in each.alignment or ()]}
        for each in found
    ]
    return {"model": model, "pairs": pairs}


def tokens(model: str, translator: Translator, asked: Tokens) -> dict[str, Any]:
    """The answer to `/tokens`."""
    both = translator.tokenizers
    tokenizer = both.source if asked.side == "source" else both.target
    names = ("piece", "id", "start", "end", "word")
    lines = [
        [{name: getattr(token, name) for name in names} for token in tokenizer.tokens(line)] for line in asked.lines
    ]
    return {"model": model, "lines": lines}


def facts(name: str, translator: Translator) -> dict[str, Any]:
    """What a model is."""
    both, engine = translator.tokenizers, translator.engine
    return {
        "name": name,
        "parameters": sum(each.numel() for each in translator.model.parameters()),
        "vocabulary": [len(both.source), len(both.target)],
        "longest": translator.longest,
        "device": str(translator.device),
        "precision": engine.precision if isinstance(engine, FastEngine) else "float32",
        "aligns": translator.aligned_by is not None,
        "symbols": list(both.source.settings.symbols),
    }
