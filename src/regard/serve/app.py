"""The routes: each reads a request, lets a queue have it, and writes what came back."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request

from regard import __version__
from regard.serve import answers, waiting
from regard.serve.door import Door
from regard.serve.gate import Gate, body_of
from regard.serve.manual import HEADERS, manual
from regard.serve.meter import TEXT, Meter
from regard.serve.queue import Chore, Line, Order, Queue, Ticket
from regard.serve.served import Served, workers_of
from regard.serve.settings import Limits, Settings
from regard.serve.wire import Kind, Pairs, Tokens, Translate, read, schema
from regard.serve.worker import Worker, hire
from regard.translator import Request as Wanted
from regard.translator import Translator
from regard.translator.given import Given

NDJSON = "application/x-ndjson"
BITE = 16
"""Pairs weighed in one go."""
STUCK = 60.0
"""Seconds after which a step that is not over counts as stuck."""

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": answers.Problem, "description": said}
    for code, said in {
        401: "No token, or another.",
        403: "The address is by a name, or the page of an origin, that is not let in.",
        404: "No model of that name.",
        408: "The body did not arrive in time.",
        413: "More bytes than a request may have.",
        415: "The body is not declared to be JSON.",
        422: "What was asked for cannot be, and why.",
        429: "Too much is waiting; `Retry-After` says when to come back.",
        500: "Something failed here; the server goes on.",
        504: "No answer within the time a request has.",
    }.items()
}


def make_app(translators: dict[str, Translator], settings: Settings) -> FastAPI:
    """The application that serves these models, each under its name; the first is served to who names none."""
    meter, limits = Meter(), settings.limits
    models = {
        name: Served(name, each, Queue(limits.waiting, workers_of(each)), meter) for name, each in translators.items()
    }

    staff: list[Worker] = []

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        staff.extend(worker for served in models.values() for worker in hire(served))
        yield
        for served in models.values():
            served.queue.close()
        for worker in staff:
            await asyncio.to_thread(worker.join)

    app = FastAPI(title="regard", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None)
    app.router.lifespan_context = working
    app.state.meter, app.state.models = meter, models
    app.add_exception_handler(HTTPException, _problem)
    app.add_exception_handler(ClientDisconnect, _nobody)
    app.add_exception_handler(Exception, _fault)
    _add_routes(app, _Routes(models, staff, limits), meter)
    _guard(app, settings, meter)
    return app


def _add_routes(app: FastAPI, routes: "_Routes", meter: Meter) -> None:
    """Say what is to be had, and what each answer looks like."""
    refused: dict[int | str, dict[str, Any]] = {401: _PROBLEMS[401], 403: _PROBLEMS[403]}
    for path, kind, handler, shape in (
        ("/translate", Translate, routes.translate, answers.Translations),
        ("/perplexity", Pairs, routes.perplexity, answers.Perplexity),
        ("/align", Pairs, routes.align, answers.Alignments),
        ("/tokens", Tokens, routes.tokens, answers.TokenLines),
    ):
        told = {"required": True, "content": {"application/json": {"schema": schema(kind, routes.limits)}}}
        said: dict[int | str, dict[str, Any]] = {200: {"model": shape}, **_PROBLEMS}
        if path == "/translate":
            said[200] = {"model": shape, "content": {NDJSON: {"schema": {"type": "string"}}}}
        app.add_api_route(path, handler, methods=["POST"], openapi_extra={"requestBody": told}, responses=said)
    app.add_api_route("/models", routes.models_told, responses={200: {"model": answers.Models}, **refused})
    stuck: dict[int | str, dict[str, Any]] = {
        503: {"model": answers.Health, "description": "A worker has not moved for a minute."}
    }
    app.add_api_route(
        "/health", routes.health, responses={200: {"model": answers.Health}, 403: _PROBLEMS[403], **stuck}
    )

    async def figures() -> Response:
        """All that is counted, in Prometheus' text format."""
        return Response(meter.text(), media_type=TEXT)

    said = {200: {"content": {"text/plain": {}}}, **refused}
    app.add_api_route("/metrics", figures, response_class=Response, responses=said)

    async def page() -> Response:
        """This description, for people."""
        return HTMLResponse(manual(app.openapi()), headers=HEADERS)

    app.add_api_route("/docs", page, include_in_schema=False)


def _guard(app: FastAPI, settings: Settings, meter: Meter) -> None:
    """Let in who may ask; what is added last is passed first."""
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Door, names=settings.names, origins=settings.origins)
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    app.add_middleware(Gate, meter=meter, token=settings.token, routes=paths)


_ABOUT = """Translations by trained models. Send `{"source": "a line"}` to `/translate`.

Requests of different clients are searched together; what is sent may be one line or many."""


class _Routes:
    """What is done for each path."""

    def __init__(self, models: dict[str, Served], staff: list[Worker], limits: Limits) -> None:
        self.models, self.staff, self.limits = models, staff, limits

    async def translate(self, request: Request) -> Response:
        """Translate a line, or several: by a beam, with n-best, alignments, samples and constraints."""
        asked, served = await self._read(request, Translate)
        options = _tried(partial(asked.options, served.translator, self.limits))

        def tickets(order: Order) -> Sequence[Ticket]:
            return [Line(order, place, Wanted(line), options) for place, line in enumerate(asked.lines)]

        if asked.stream:
            told = waiting.tokens(served, tickets, self.limits.seconds)
            return StreamingResponse(told, media_type=NDJSON)
        found = await waiting.gather(request, served, tickets, self.limits.seconds)
        return _json(answers.translations(served.name, waiting.translations(asked.lines, found)))

    async def perplexity(self, request: Request) -> Response:
        """Tell how probable the model finds given translations."""
        return await self._weigh(request, False, answers.perplexity)

    async def align(self, request: Request) -> Response:
        """Tell which words of given pairs belong together, as the model's attention sees it."""
        return await self._weigh(request, True, answers.alignments)

    async def _weigh(
        self, request: Request, alignments: bool, answer: Callable[[str, Sequence[Given]], dict[str, Any]]
    ) -> Response:
        asked, served = await self._read(request, Pairs)
        pairs = _tried(lambda: asked.pairs)

        def tickets(order: Order) -> Sequence[Ticket]:
            bites = [pairs[at : at + BITE] for at in range(0, len(pairs), BITE)]
            return [Chore(order, at, partial(served.weigh, bite, alignments)) for at, bite in enumerate(bites)]

        found = await waiting.gather(request, served, tickets, self.limits.seconds)
        for each in found:
            if isinstance(each, ValueError):
                raise HTTPException(422, str(each))
            if isinstance(each, Exception):
                raise HTTPException(500, "this could not be done")
        return _json(answer(served.name, [given for each in found for given in each]))

    async def tokens(self, request: Request) -> Response:
        """Show what a line becomes: pieces, ids, characters and words."""
        asked, served = await self._read(request, Tokens)
        return _json(answers.tokens(served.name, served.translator, asked))

    async def models_told(self) -> Response:
        """The models of this server."""
        return _json({"models": [answers.facts(name, served.translator) for name, served in self.models.items()]})

    async def health(self) -> Response:
        """Whether the server works: 503 where a worker has not moved for a minute."""
        since = [worker.busy_since for worker in self.staff]
        stuck = any(each is not None and time.monotonic() - each > STUCK for each in since)
        return _json({"status": "stuck" if stuck else "ready", "version": __version__}, 503 if stuck else 200)

    async def _read(self, request: Request, kind: type[Kind]) -> tuple[Kind, Served]:
        """What is asked, and of whom."""
        body = await body_of(request, self.limits)
        asked = _tried(lambda: read(kind, body, self.limits))
        if asked.model is None:
            return asked, next(iter(self.models.values()))
        if asked.model not in self.models:
            raise HTTPException(404, f"there is no such model here; there are: {', '.join(self.models)}")
        return asked, self.models[asked.model]


def _tried(make: Callable[[], Any]) -> Any:
    """What is made, or an answer that says why it cannot be."""
    try:
        return make()
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def _json(table: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(table, ensure_ascii=False).encode(), status, media_type="application/json")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "that is what it was registered for"
    told = _json({"error": error.detail}, error.status_code)
    told.headers.update(error.headers or {})
    return told


async def _nobody(request: Request, error: Exception) -> Response:
    """There is nobody to read this; the status is for our own count."""
    return Response(status_code=499)


async def _fault(request: Request, error: Exception) -> Response:
    return _json({"error": "an internal error; the server goes on"}, 500)
