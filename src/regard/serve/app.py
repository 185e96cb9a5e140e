"""The HTTP application: each route reads a request, puts its jobs into the queue of a model, and writes the result."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request

from regard import __version__
from regard.predict import TranslationRequest, Translator
from regard.predict.scoring import ScoredTarget
from regard.serve import responses
from regard.serve.api_page import HEADERS, render_api_page
from regard.serve.dispatch import check_translations, run_jobs, stream_jobs
from regard.serve.limits import RequestLimitsMiddleware, read_body
from regard.serve.metrics import CONTENT_TYPE, Metrics
from regard.serve.origins import OriginCheckMiddleware
from regard.serve.queue import FunctionJob, JobQueue, PendingResponse, QueuedJob, TranslationJob
from regard.serve.requests import (
    PairsRequest,
    RequestType,
    TokensRequest,
    TranslateRequest,
    parse_request,
    request_schema,
)
from regard.serve.service import ModelService, worker_count
from regard.serve.settings import ServerLimits, ServerSettings
from regard.serve.worker import Worker, start_workers

NDJSON = "application/x-ndjson"
PAIRS_PER_JOB = 16
"""Sentence pairs that one job scores; lines in progress wait meanwhile."""
STUCK_SECONDS = 60.0
"""Duration after which a step that has not ended counts as stuck."""

Result = TypeVar("Result")
OpenApiResponses = dict[int | str, dict[str, Any]]

_ERRORS: OpenApiResponses = {
    status: {"model": responses.ErrorResponse, "description": description}
    for status, description in {
        401: "The token is missing or wrong.",
        403: "The host name or the origin of the page is not allowed.",
        404: "There is no model of that name.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body is not declared to be JSON.",
        422: "The request is invalid; the error says why.",
        429: "The queue is full; `Retry-After` says when to retry.",
        500: "Internal error; the server continues.",
        504: "The time limit of a request has elapsed.",
    }.items()
}

_DESCRIPTION = """Translation by trained models. Send `{"source": "a line"}` to `/translate`.

A request may have one line or many. Lines of different clients are translated in one batch."""


def make_app(translators: dict[str, Translator], settings: ServerSettings) -> FastAPI:
    """Create the ASGI application that serves some models.

    Example:
        ```python
        app = make_app({"multi30k": regard.load("runs/multi30k")}, ServerSettings())
        ```

    Args:
        translators: Models by name. Requests that name no model use the first one.
        settings: Access control and limits.
    """
    metrics, limits = Metrics(), settings.limits
    models = {
        name: ModelService(name, translator, JobQueue(limits.waiting, worker_count(translator)), metrics)
        for name, translator in translators.items()
    }
    workers: list[Worker] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers.extend(worker for service in models.values() for worker in start_workers(service))
        yield
        for service in models.values():
            service.queue.close()
        for worker in workers:
            await asyncio.to_thread(worker.join)

    app = FastAPI(title="regard", version=__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None)
    app.router.lifespan_context = lifespan
    app.state.metrics, app.state.models = metrics, models
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_exception)
    _add_routes(app, _Handlers(models, workers, limits), metrics)
    _add_middleware(app, settings, metrics)
    return app


def _add_routes(app: FastAPI, handlers: "_Handlers", metrics: Metrics) -> None:
    """Add every route, with the schemas of its request and responses."""
    refused: OpenApiResponses = {401: _ERRORS[401], 403: _ERRORS[403]}
    for path, kind, handler, schema in (
        ("/translate", TranslateRequest, handlers.translate, responses.TranslateResponse),
        ("/perplexity", PairsRequest, handlers.perplexity, responses.PerplexityResponse),
        ("/align", PairsRequest, handlers.align, responses.AlignResponse),
        ("/tokens", TokensRequest, handlers.tokens, responses.TokensResponse),
    ):
        content = {"application/json": {"schema": request_schema(kind, handlers.limits)}}
        body = {"requestBody": {"required": True, "content": content}}
        documented: OpenApiResponses = {200: {"model": schema}, **_ERRORS}
        if path == "/translate":
            documented[200] = {"model": schema, "content": {NDJSON: {"schema": {"type": "string"}}}}
        app.add_api_route(path, handler, methods=["POST"], openapi_extra=body, responses=documented)
    app.add_api_route("/models", handlers.list_models, responses={200: {"model": responses.ModelsResponse}, **refused})
    health: OpenApiResponses = {
        200: {"model": responses.HealthResponse},
        403: _ERRORS[403],
        503: {"model": responses.HealthResponse, "description": "A worker has made no progress for a minute."},
    }
    app.add_api_route("/health", handlers.health, responses=health)

    async def export_metrics() -> Response:
        """Return the metrics of this server in the Prometheus text format."""
        return Response(metrics.export(), media_type=CONTENT_TYPE)

    text: OpenApiResponses = {200: {"content": {"text/plain": {}}}, **refused}
    app.add_api_route("/metrics", export_metrics, response_class=Response, responses=text)

    async def api_page() -> Response:
        return HTMLResponse(render_api_page(app.openapi()), headers=HEADERS)

    app.add_api_route("/docs", api_page, include_in_schema=False)


def _add_middleware(app: FastAPI, settings: ServerSettings, metrics: Metrics) -> None:
    """Add access control; the middleware that is added last runs first."""
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(OriginCheckMiddleware, hosts=settings.allowed_hosts, origins=settings.origins)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    app.add_middleware(RequestLimitsMiddleware, metrics=metrics, token=settings.token, routes=paths)


class _Handlers:
    """The handlers of the routes; their docstrings are the descriptions in OpenAPI."""

    def __init__(self, models: dict[str, ModelService], workers: list[Worker], limits: ServerLimits) -> None:
        self.models, self.workers, self.limits = models, workers, limits

    async def translate(self, request: Request) -> Response:
        """Translate lines: by beam search or sampling, with n-best lists, alignments and constraints."""
        asked, service = await self._read(request, TranslateRequest)
        options = _or_422(partial(asked.options, service.translator, self.limits))

        def make_jobs(response: PendingResponse) -> Sequence[QueuedJob]:
            return [
                TranslationJob(response, index, TranslationRequest(line), options)
                for index, line in enumerate(asked.lines)
            ]

        if asked.stream:
            return StreamingResponse(stream_jobs(service, make_jobs, self.limits.seconds), media_type=NDJSON)
        results = await run_jobs(request, service, make_jobs, self.limits.seconds)
        return _json(responses.translate_response(service.name, check_translations(asked.lines, results)))

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
        pairs = _or_422(lambda: asked.pairs)

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
        return _json(build(service.name, [pair for result in results for pair in result]))

    async def tokens(self, request: Request) -> Response:
        """Tokenise lines: pieces, ids, spans of characters, and words."""
        asked, service = await self._read(request, TokensRequest)
        return _json(responses.tokens_response(service.name, service.translator, asked))

    async def list_models(self) -> Response:
        """List the models of this server."""
        models = [responses.describe_model(name, service.translator) for name, service in self.models.items()]
        return _json({"models": models})

    async def health(self) -> Response:
        """Return whether the server works: 503 if a worker has made no progress for a minute."""
        starts = [worker.busy_since for worker in self.workers]
        stuck = any(start is not None and time.monotonic() - start > STUCK_SECONDS for start in starts)
        return _json({"status": "stuck" if stuck else "ready", "version": __version__}, 503 if stuck else 200)

    async def _read(self, request: Request, kind: type[RequestType]) -> tuple[RequestType, ModelService]:
        """Parse the body of a request, and find the model that it names."""
        body = await read_body(request, self.limits)
        asked = _or_422(lambda: parse_request(kind, body, self.limits))
        if asked.model is None:
            return asked, next(iter(self.models.values()))
        if asked.model not in self.models:
            raise HTTPException(404, f"there is no model of that name; this server has: {', '.join(self.models)}")
        return asked, self.models[asked.model]


def _or_422(make: Callable[[], Result]) -> Result:
    """Call a function, and turn its `ValueError` into status 422."""
    try:
        return make()
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def _json(value: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(value, ensure_ascii=False).encode(), status, media_type="application/json")


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for HTTPException"
    response = _json({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _on_disconnect(request: Request, error: Exception) -> Response:
    # Nobody reads this response; its status is for our metrics.
    return Response(status_code=499)


async def _on_exception(request: Request, error: Exception) -> Response:
    return _json({"error": "internal error; the server continues"}, 500)
