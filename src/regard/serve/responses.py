"""The JSON schemas of responses, and the functions that build them."""

import json
import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from regard.engines import Engine as FastEngine
from regard.nn.cost import count_parameters
from regard.predict import Chatbot, Translation, Translator
from regard.predict.scoring import ScoredTarget
from regard.serve.languages import LanguagePair
from regard.serve.predictor_service import PredictorService
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


class Fault(BaseModel):
    """Why nothing could be predicted about a text."""

    fault: str


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


class ClassifiedTextFields(BaseModel):
    """The label of a text."""

    label: str = Field(description="The predicted label; several are separated by commas.")
    labels: list[str]
    probability: float
    probabilities: dict[str, float] = Field(description="Probability of each class, the most probable first.")
    words: list[tuple[int, int, float]] | None = Field(
        None, description="Of each word first and last character, exclusive, and attention weight, if requested."
    )
    sentences: list[tuple[int, int, float]] | None = Field(None, description="The same of each sentence of a document.")


class ClassifyResponse(BaseModel):
    """Response of `/classify`: for each text its label, or a fault."""

    model: str
    results: list[ClassifiedTextFields | Fault]


class TaggedSentenceFields(BaseModel):
    """The words of a sentence, with a tag and its probability for each."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]


class TagResponse(BaseModel):
    """Response of `/tag`: for each sentence the tags of its words, or a fault."""

    model: str
    results: list[TaggedSentenceFields | Fault]


class MaskCandidateFields(BaseModel):
    """A candidate for a mask."""

    word: str
    token: str
    probability: float


class FilledTextFields(BaseModel):
    """A text with its masks filled, and the candidates for each mask."""

    text: str
    filled: str
    masks: list[list[MaskCandidateFields]]


class FillResponse(BaseModel):
    """Response of `/fill`: for each text the candidates for its masks, or a fault."""

    model: str
    results: list[FilledTextFields | Fault]


class ModelDescription(BaseModel):
    """A model of this server."""

    name: str
    route: Literal["translate", "classify", "tag", "fill", "chat"] = Field(description="The route that it answers.")
    parameters: int
    vocabulary: list[int] = Field(
        description="Size of each vocabulary of texts: source and target, or history and reply."
    )
    longest: int | None = Field(
        None,
        description="Source tokens a translator was trained on, longer lines are split; tokens of a history that a "
        "chatbot reads.",
    )
    device: str
    precision: str
    aligns: bool = Field(description="Whether the model has attention to read word alignments from.")
    symbols: list[str] = Field(description="Symbols a source line may start with, such as a target language.")
    languages: list[tuple[str, str]] = Field(description="Codes of source and target language, as far as known.")


class ModelsResponse(BaseModel):
    """Response of `/models`."""

    models: list[ModelDescription]


class OpenAIModel(ModelDescription):
    """A model of this server in the form of the OpenAI API, with the fields of `/models`."""

    id: str = Field(description="Its name.")
    object: Literal["model"]
    created: int = Field(description="When this server loaded it, in seconds since 1970.")
    owned_by: Literal["regard"]


class OpenAIModelsResponse(BaseModel):
    """Response of `/v1/models`."""

    object: Literal["list"]
    data: list[OpenAIModel]


class LibreTranslateLanguage(BaseModel):
    """A language, in the form of LibreTranslate."""

    code: str
    name: str
    targets: list[str] = Field(description="Codes of the languages it can be translated to.")


class LibreTranslateResponse(BaseModel):
    """Response of `/translate` to a request in the form of LibreTranslate."""

    translatedText: str | list[str] = Field(description="The translation, or a list of them for a list of texts.")
    alternatives: list[str] | list[list[str]] | None = Field(
        None, description="Other translations, best first, if they were requested."
    )


class HealthResponse(BaseModel):
    """Response of `/health`, `/live` and `/ready`."""

    status: Literal["live", "ready"]
    version: str


class ErrorResponse(BaseModel):
    """Response of every request that fails."""

    code: str = Field(description="What is wrong, as a name that does not change.")
    message: str = Field(description="What is wrong, what was found and what to do.")
    field: str | None = Field(description="The field of the request that is wrong, if it is one.")
    request_id: str = Field(description="The same as in the header `X-Request-ID`.")
    error: str = Field(description="The same as `message`, for clients that read it here.")


class UnhealthyResponse(ErrorResponse):
    """Response of `/health`, `/live` and `/ready` with status 503."""

    status: Literal["loading", "stopping", "stuck"]
    version: str


class StreamTokens(BaseModel):
    """An event of a stream: tokens of a line that have become final, and its text so far."""

    line: int = Field(description="Number of the line in the request, from 0.")
    tokens: list[str]
    text: str


class StreamTranslation(BaseModel):
    """An event of a stream: the translation of a line, which is complete."""

    line: int
    translation: TranslatedLine


class StreamError(ErrorResponse):
    """An event of a stream: a line has no translation or reply, or without `line`, the whole request failed."""

    line: int | None = None


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


def tokens_response(model: str, translator: Translator, request: TokensRequest) -> bytes:
    """Build and encode the response of `/tokens`. It takes a while for long lines, so call it in a thread."""
    tokenizer = translator.tokenizers[request.side]
    lines = []
    for line in request.lines:
        tokens = [{name: getattr(token, name) for name in LineToken.model_fields} for token in tokenizer.tokens(line)]
        # One call of `json.dumps` holds Python's lock from start to end, so lines are encoded one by one.
        lines.append(json.dumps(tokens, ensure_ascii=False))
    return f'{{"model": {json.dumps(model, ensure_ascii=False)}, "lines": [{", ".join(lines)}]}}'.encode()


def describe_model(name: str, translator: Translator, languages: Sequence[LanguagePair]) -> dict[str, Any]:
    """Describe a model, for the response of `/models`."""
    tokenizers, engine = translator.tokenizers, translator.engine
    return {
        "name": name,
        "route": "translate",
        "parameters": count_parameters(translator.model),
        "vocabulary": [len(tokenizers["source"]), len(tokenizers["target"])],
        "longest": translator.longest,
        "device": str(translator.device),
        "precision": engine.precision if isinstance(engine, FastEngine) else "float32",
        "aligns": translator.alignment_head is not None,
        "symbols": list(tokenizers["source"].settings.symbols),
        "languages": [[pair.source, pair.target] for pair in languages],
    }


def describe_predictor(service: PredictorService) -> dict[str, Any]:
    """Describe a model that does not translate, for the response of `/models`."""
    return {
        "name": service.name,
        "route": service.route,
        "parameters": count_parameters(service.model),
        "vocabulary": [len(service.tokenizer)],
        "longest": None,
        "device": str(next(service.model.parameters()).device),
        "precision": service.precision,
        "aligns": False,
        "symbols": list(service.tokenizer.settings.symbols),
        "languages": [],
    }


def describe_chatbot(name: str, chatbot: Chatbot) -> dict[str, Any]:
    """Describe a chatbot, for the response of `/models`."""
    engine = chatbot.engine
    return {
        "name": name,
        "route": "chat",
        "parameters": count_parameters(chatbot.model),
        "vocabulary": [len(field.tokenizer) for field in (chatbot.history_field, chatbot.reply_field)],
        "longest": chatbot.longest,
        "device": str(chatbot.device),
        "precision": engine.precision if isinstance(engine, FastEngine) else "float32",
        "aligns": False,
        "symbols": [],
        "languages": [],
    }


def predictions_response(model: str, results: Sequence[Any], name: str = "results") -> dict[str, Any]:
    """Build the response of `/classify`, `/tag`, `/fill` and `/chat`, which has a field of some name."""
    found = [{"fault": str(result)} if isinstance(result, ValueError) else result.to_json() for result in results]
    return {"model": model, name: found}


def openai_model(description: dict[str, Any], created: int) -> dict[str, Any]:
    """Return the description of a model in the form of the OpenAI API."""
    return {"id": description["name"], "object": "model", "created": created, "owned_by": "regard", **description}
