"""The HTTP application: each route reads a request, puts its jobs into the queue of a model, and writes the result."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request

from regard.predict import Translation, TranslationRequest
from regard.predict.scoring import ScoredTarget
from regard.serve import openapi, responses
from regard.serve.access_log import AccessLog
from regard.serve.auth import TOKEN_REQUIRED, TokenCheck
from regard.serve.chat_handlers import ChatHandlers
from regard.serve.chat_service import ChatService
from regard.serve.dispatch import (
    MakeJobs,
    check_results,
    check_translations,
    client_of,
    run_jobs,
    stream_jobs,
    timeout_message,
)
from regard.serve.errors import error_content, exception_content
from regard.serve.handlers import ModelHandlers, json_response, or_422
from regard.serve.health import Health
from regard.serve.languages import ModelLanguages, list_languages
from regard.serve.libretranslate import FORM_TYPE, LibreTranslateRequest, parse_form, parse_json
from regard.serve.limits import JSON_TYPE, RequestLimitsMiddleware, media_type, read_body
from regard.serve.metrics import Metrics
from regard.serve.origins import OriginCheckMiddleware
from regard.serve.predictor_service import PredictorService, PredictorWorker, start_worker
from regard.serve.queue import FunctionJob, PendingResponse, QueuedJob, TextJob, TranslationJob
from regard.serve.request_context import HEADER, RequestContextMiddleware, current_request
from regard.serve.requests import (
    ClassifyRequest,
    FillRequest,
    PairsRequest,
    RequestType,
    TagRequest,
    TextsRequest,
    TokensRequest,
    TranslateFields,
    TranslateRequest,
    parse_request,
)
from regard.serve.routes import Handler, add_operations, add_routes
from regard.serve.services import Predictor, Service, make_service
from regard.serve.settings import ServerSettings
from regard.serve.translator_service import TranslatorService
from regard.serve.worker import Worker, start_workers

PAIRS_PER_JOB = 16
"""Sentence pairs that one job scores; lines in progress wait meanwhile."""


def make_app(
    predictors: Mapping[str, Predictor], settings: ServerSettings, languages: ModelLanguages | None = None
) -> FastAPI:
    """Create the ASGI application that serves some models.

    Example:
        ```python
        app = make_app({"multi30k": regard.load("runs/multi30k")}, ServerSettings())
        ```

    Args:
        predictors: Models by name. Requests that name no model use the first one that answers their route.
        settings: Access control and limits.
        languages: Language pairs of the models, by which LibreTranslate clients choose one.

    Returns:
        The application. `app.state.health` is the `Health` that `/ready` reports; set its `phase` to `stopping` when
        the server begins to shut down.
    """
    metrics, limits = Metrics(), settings.limits
    models = {name: make_service(name, predictor, limits, metrics) for name, predictor in predictors.items()}
    workers: list[Worker | PredictorWorker] = []
    health = Health(workers)
    log = AccessLog(sys.stdout, metrics) if settings.access_log else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for service in models.values():
            workers.extend([start_worker(service)] if isinstance(service, PredictorService) else start_workers(service))
        if log is not None:
            log.start()
        health.phase = "ready"
        yield
        health.phase = "stopping"
        for service in models.values():
            service.queue.close()
        for worker in workers:
            await asyncio.to_thread(worker.join)
        if log is not None:
            await asyncio.to_thread(log.close)

    app = FastAPI(**openapi.INFO, docs_url=None, redoc_url=None)
    app.router.lifespan_context = lifespan
    app.state.metrics, app.state.models, app.state.health = metrics, models, health
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_exception)
    handlers = _Handlers(models, languages or {}, settings)
    add_routes(app, handlers.by_name())
    add_operations(app, health, metrics)
    _complete_openapi(app, settings)
    _add_middleware(app, settings, metrics, log)
    return app


def _complete_openapi(app: FastAPI, settings: ServerSettings) -> None:
    """Let the application complete its OpenAPI document when it is requested for the first time."""
    make_document = app.openapi

    def complete() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi.complete(make_document(), settings)
        return app.openapi_schema

    app.openapi = complete  # type: ignore[method-assign]


def _add_middleware(app: FastAPI, settings: ServerSettings, metrics: Metrics, log: AccessLog | None) -> None:
    """Add access control and the access log; the middleware that is added last runs first."""
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
    app.add_middleware(OriginCheckMiddleware, hosts=settings.allowed_hosts, origins=settings.origins)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    app.add_middleware(RequestLimitsMiddleware, metrics=metrics, token=settings.token, routes=paths)
    app.add_middleware(RequestContextMiddleware, routes=paths, log=log)


class _Handlers(ModelHandlers):
    """The handlers of the routes; their docstrings are the descriptions in OpenAPI."""

    def __init__(self, models: dict[str, Service], languages: ModelLanguages, settings: ServerSettings) -> None:
        super().__init__(models, settings.limits)
        self.chat = ChatHandlers(models, settings.limits)
        translators = [name for name, service in models.items() if isinstance(service, TranslatorService)]
        self.languages = {name: languages.get(name, ()) for name in translators}
        self.token, self.started = TokenCheck(settings.token), int(time.time())
        # One thread: tokenising is mostly Python code, which several threads would not make faster.
        self.tokenizing = ThreadPoolExecutor(1, "regard-tokens")

    def by_name(self) -> dict[str, Handler]:
        """Return the handlers by the names of their operations."""
        return {
            "translate": self.translate,
            "perplexity": self.perplexity,
            "align": self.align,
            "tokens": self.tokens,
            "classify": self.classify,
            "tag": self.tag,
            "fill": self.fill,
            "chat": self.chat.chat,
            "v1_chat_completions": self.chat.complete,
            "languages": self.list_languages,
            "models": self.list_models,
            "v1_models": self.list_openai_models,
            "v1_model": self.show_openai_model,
        }

    async def translate(self, request: Request) -> Response:
        """Translate lines: by beam search or sampling, with n-best lists, alignments and constraints.

        A request with the field `q` is one of LibreTranslate: JSON, or a URL-encoded form.
        """
        libre, body = await self._read_libretranslate(request)
        if not self.token.accepts_header(request.scope["headers"]) and not (
            libre is not None and self.token.accepts((libre.api_key or "").encode())
        ):
            raise HTTPException(401, TOKEN_REQUIRED, {"WWW-Authenticate": "Bearer"})
        if libre is None:
            asked, service = self._parse(TranslateRequest, body)
            if asked.stream:
                jobs = self._translation_jobs(asked, service)
                events = stream_jobs(service, jobs, self.limits.seconds, client_of(request))
                return StreamingResponse(events, media_type=openapi.NDJSON)
            translations = await self._translate(request, asked, service)
            return json_response(responses.translate_response(service.name, translations))
        asked, service = self._parse(TranslateRequest, or_422(partial(libre.own_request, self.languages)))
        translations = await self._translate(request, asked, service)
        return json_response(or_422(partial(libre.response, translations)))

    async def _read_libretranslate(self, request: Request) -> tuple[LibreTranslateRequest | None, bytes]:
        """Read a request to translate: in the form of LibreTranslate, or else the body of one in our own form."""
        if "q" in request.query_params:
            return or_422(partial(parse_form, request.scope["query_string"])), b""
        body = await read_body(request, self.limits, (JSON_TYPE, FORM_TYPE))
        parse = parse_form if media_type(request) == FORM_TYPE else parse_json
        return or_422(partial(parse, body)), body

    async def _translate(
        self, request: Request, asked: TranslateFields, service: TranslatorService
    ) -> list[Translation]:
        results = await run_jobs(request, service, self._translation_jobs(asked, service), self.limits.seconds)
        translations = check_translations(asked.lines, results)
        current_request().tokens = sum(len(translation.tokens) for translation in translations)
        return translations

    def _translation_jobs(self, asked: TranslateFields, service: TranslatorService) -> MakeJobs:
        options = or_422(partial(asked.options, service.translator, self.limits))

        def make_jobs(response: PendingResponse) -> Sequence[QueuedJob]:
            return [
                TranslationJob(response, index, TranslationRequest(line), options)
                for index, line in enumerate(asked.lines)
            ]

        return make_jobs

    async def perplexity(self, request: Request) -> Response:
        """Compute the log-probability and perplexity of given translations."""
        return await self._score(request, False, responses.perplexity_response)

    async def align(self, request: Request) -> Response:
        """Align the words of given sentence pairs by the attention of the model."""
        return await self._score(request, True, responses.align_response)

    async def _score(
        self, request: Request, alignments: bool, build: Callable[[str, Sequence[ScoredTarget]], dict[str, Any]]
    ) -> Response:
        asked, service = await self._read(request, PairsRequest)
        pairs = or_422(lambda: asked.pairs)

        def make_jobs(response: PendingResponse) -> Sequence[QueuedJob]:
            chunks = [pairs[at : at + PAIRS_PER_JOB] for at in range(0, len(pairs), PAIRS_PER_JOB)]
            return [
                FunctionJob(response, index, partial(service.score_pairs, chunk, alignments))
                for index, chunk in enumerate(chunks)
            ]

        results = await run_jobs(request, service, make_jobs, self.limits.seconds)
        for result in results:
            if isinstance(result, ValueError):
                raise HTTPException(422, str(result))
            if isinstance(result, Exception):
                raise HTTPException(500, "the pairs could not be scored")
        scored = [pair for result in results for pair in result]
        current_request().tokens = sum(len(pair.tokens) for pair in scored)
        return json_response(build(service.name, scored))

    async def tokens(self, request: Request) -> Response:
        """Tokenise lines: pieces, ids, spans of characters, and words."""
        asked, service = await self._read(request, TokensRequest)
        build = partial(responses.tokens_response, service.name, service.translator, asked)
        loop, seconds = asyncio.get_running_loop(), self.limits.seconds
        try:
            body = await asyncio.wait_for(loop.run_in_executor(self.tokenizing, build), seconds)
        except TimeoutError:
            raise HTTPException(504, timeout_message(seconds)) from None
        return Response(body, media_type="application/json")

    async def classify(self, request: Request) -> Response:
        """Classify texts: label, and probability of each class."""
        return await self._predict(request, ClassifyRequest, "classify")

    async def tag(self, request: Request) -> Response:
        """Tag the words of sentences."""
        return await self._predict(request, TagRequest, "tag")

    async def fill(self, request: Request) -> Response:
        """Fill the masks of texts with candidates."""
        return await self._predict(request, FillRequest, "fill")

    async def _predict(self, request: Request, kind: type[TextsRequest], route: str) -> Response:
        asked = or_422(partial(parse_request, kind, await read_body(request, self.limits), self.limits))
        service = self.find_service(asked.model, route)
        assert isinstance(service, PredictorService), "only these answer the route"
        self.note(asked, service, [service.tokenizer])
        options = tuple(asked.options.items())

        def make_jobs(response: PendingResponse) -> Sequence[QueuedJob]:
            return [TextJob(response, index, text, options) for index, text in enumerate(asked.lines)]

        results = await run_jobs(request, service, make_jobs, self.limits.seconds)
        check_results(results)
        return json_response(responses.predictions_response(service.name, results))

    async def list_languages(self) -> Response:
        """List the languages of the models, in the form of LibreTranslate."""
        return json_response(list_languages(self.languages))

    async def list_models(self) -> Response:
        """List the models of this server."""
        return json_response({"models": [self._describe(name) for name in self.models]})

    async def list_openai_models(self) -> Response:
        """List the models of this server in the form of the OpenAI API."""
        models = [responses.openai_model(self._describe(name), self.started) for name in self.models]
        return json_response({"object": "list", "data": models})

    async def show_openai_model(self, request: Request) -> Response:
        """Describe a model in the form of the OpenAI API."""
        service = self.find_service(request.path_params["model"])
        return json_response(responses.openai_model(self._describe(service.name), self.started))

    def _describe(self, name: str) -> dict[str, Any]:
        match service := self.models[name]:
            case PredictorService():
                return responses.describe_predictor(service)
            case ChatService():
                return responses.describe_chatbot(name, service.chatbot)
            case _:
                return responses.describe_model(name, service.translator, self.languages[name])

    async def _read(self, request: Request, kind: type[RequestType]) -> tuple[RequestType, TranslatorService]:
        """Parse the body of a request to a translator, and find the one that it names."""
        return self._parse(kind, await read_body(request, self.limits))

    def _parse(self, kind: type[RequestType], body: bytes) -> tuple[RequestType, TranslatorService]:
        asked = or_422(lambda: parse_request(kind, body, self.limits))
        service = self.find_service(asked.model, "translate")
        assert isinstance(service, TranslatorService), "only these translate"
        self.note(asked, service, service.translator.tokenizers.values())
        return asked, service


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for HTTPException"
    # Clients of OpenAI know this status as that of a wrong request.
    status = 400 if error.status_code == 422 and current_request().is_openai else error.status_code
    response = json_response(exception_content(error, status), status)
    response.headers.update(error.headers or {})
    return response


async def _on_disconnect(request: Request, error: Exception) -> Response:
    # Nobody reads this response; its status is for our metrics.
    return Response(status_code=499)


async def _on_exception(request: Request, error: Exception) -> Response:
    # This response is sent outside of all other middleware, so it needs its own header.
    response = json_response(error_content(500, "internal error; the server continues"), 500)
    response.headers[HEADER] = current_request().id
    return response
