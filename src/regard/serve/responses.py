"""The JSON schemas of responses, and the functions that build them."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from regard.engines import Engine as FastEngine
from regard.predict import Translation, Translator
from regard.predict.scoring import ScoredTarget
from regard.serve.requests import TokensRequest


class TranslatedLine(BaseModel):
    """The translation of a line."""

    source: str
    text: str
    score: float | None
    logprob: float | None
    tokens: list[str]
    token_logprobs: list[float | None]
    alignment: list[tuple[int, int]] | None = Field(
        None, description="Pairs of source and target word, counted from 0."
    )
    nbest: list["TranslatedLine"] | None = Field(None, description="The n-best list, this translation first.")
    fault: str | None = Field(None, description="Why the line could not be translated.")


class TranslateResponse(BaseModel):
    """Response of `/translate`."""

    model: str
    translations: list[TranslatedLine]


class ScoredPair(BaseModel):
    """The log-probability of a target given its source, and its perplexity per token."""

    source: str
    target: str
    logprob: float
    perplexity: float
    tokens: list[str]
    token_logprobs: list[float]


class PerplexityResponse(BaseModel):
    """Response of `/perplexity`: over all pairs, and for each."""

    model: str
    perplexity: float
    logprob: float
    tokens: int
    pairs: list[ScoredPair]


class AlignedPair(BaseModel):
    """The word alignment of a pair: source and target words, counted from 0."""

    source: str
    target: str
    alignment: list[tuple[int, int]]


class AlignResponse(BaseModel):
    """Response of `/align`."""

    model: str
    pairs: list[AlignedPair]


class LineToken(BaseModel):
    """A token of a line: subword piece, id, span of characters, and word."""

    piece: str
    id: int
    start: int
    end: int
    word: int | None


class TokensResponse(BaseModel):
    """Response of `/tokens`."""

    model: str
    lines: list[list[LineToken]]


class ModelDescription(BaseModel):
    """A model of this server."""

    name: str
    parameters: int
    vocabulary: tuple[int, int] = Field(description="Vocabulary sizes of source and target.")
    longest: int = Field(description="Source tokens the model was trained on; longer lines are split.")
    device: str
    precision: str
    aligns: bool = Field(description="Whether the model has attention to read word alignments from.")
    symbols: list[str] = Field(description="Symbols a source line may start with, such as a target language.")


class ModelsResponse(BaseModel):
    """Response of `/models`."""

    models: list[ModelDescription]


class HealthResponse(BaseModel):
    """Response of `/health`."""

    status: Literal["ready", "stuck"]
    version: str


class ErrorResponse(BaseModel):
    """Response of every request that fails: what is wrong, and what to do."""

    error: str


def translate_response(model: str, translations: Sequence[Translation]) -> dict[str, Any]:
    """Build the response of `/translate`."""
    return {"model": model, "translations": [translation.to_json() for translation in translations]}


def perplexity_response(model: str, pairs: Sequence[ScoredTarget]) -> dict[str, Any]:
    """Build the response of `/perplexity`."""
    logprob, tokens = math.fsum(pair.logprob for pair in pairs), sum(len(pair.tokens) for pair in pairs)
    total = {"model": model, "perplexity": math.exp(-logprob / tokens), "logprob": logprob, "tokens": tokens}
    return {**total, "pairs": [pair.to_json() for pair in pairs]}


def align_response(model: str, pairs: Sequence[ScoredTarget]) -> dict[str, Any]:
    """Build the response of `/align`."""
    aligned = [
        {"source": pair.source, "target": pair.target, "alignment": [list(link) for link in pair.alignment or ()]}
        for pair in pairs
    ]
    return {"model": model, "pairs": aligned}


def tokens_response(model: str, translator: Translator, request: TokensRequest) -> dict[str, Any]:
    """Build the response of `/tokens`."""
    tokenizer = translator.tokenizers[request.side]
    lines = [
        [{name: getattr(token, name) for name in LineToken.model_fields} for token in tokenizer.tokens(line)]
        for line in request.lines
    ]
    return {"model": model, "lines": lines}


def describe_model(name: str, translator: Translator) -> dict[str, Any]:
    """Describe a model, for the response of `/models`."""
    tokenizers, engine = translator.tokenizers, translator.engine
    return {
        "name": name,
        "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
        "vocabulary": [len(tokenizers["source"]), len(tokenizers["target"])],
        "longest": translator.longest,
        "device": str(translator.device),
        "precision": engine.precision if isinstance(engine, FastEngine) else "float32",
        "aligns": translator.alignment_head is not None,
        "symbols": list(tokenizers["source"].settings.symbols),
    }
