"""The routes of the application, with what the OpenAPI document says about each."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

from regard.serve import responses
from regard.serve.api_page import HEADERS, render_api_page
from regard.serve.chat_responses import ChatResponse
from regard.serve.errors import ERRORS
from regard.serve.health import Health
from regard.serve.metrics import CONTENT_TYPE, Metrics
from regard.serve.openai_chat import CompletionResponse
from regard.serve.openapi import (
    CHAT_EVENTS,
    TRANSLATION_EVENTS,
    OpenApiResponses,
    error_responses,
    event_stream_content,
    request_body,
    stream_content,
)
from regard.serve.request_context import OPENAI_PATH

Handler = Callable[..., Awaitable[Response]]

_REFUSALS = (400, 403, 431, 503)  # what any request may get
_POST_ROUTES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "translate": (
        "translation",
        responses.TranslateResponse | responses.LibreTranslateResponse,
        request_body("TranslateRequest", "LibreTranslateRequest", form="LibreTranslateRequest"),
    ),
    "perplexity": ("scoring", responses.PerplexityResponse, request_body("PairsRequest")),
    "align": ("scoring", responses.AlignResponse, request_body("PairsRequest")),
    "tokens": ("scoring", responses.TokensResponse, request_body("TokensRequest")),
    "classify": ("prediction", responses.ClassifyResponse, request_body("ClassifyRequest")),
    "tag": ("prediction", responses.TagResponse, request_body("TagRequest")),
    "fill": ("prediction", responses.FillResponse, request_body("FillRequest")),
    "chat": ("chat", ChatResponse, request_body("ChatRequest")),
}
"""Tag, response and request of each route that reads a body."""
_STREAMS = {"translate": stream_content(TRANSLATION_EVENTS), "chat": stream_content(CHAT_EVENTS)}
"""What the streams of a route contain."""
_MODEL_PARAMETER = {
    "name": "model",
    "in": "path",
    "required": True,
    "description": "Name of a model.",
    "schema": {"type": "string", "minLength": 1},
}


def add_routes(app: FastAPI, handlers: Mapping[str, Handler]) -> None:
    """Add the routes of the API. Those of version 1 have a prefix; the same routes without it remain."""
    for prefix, version in (("", ""), ("/v1", "v1_")):
        for name, (tag, schema, body) in _POST_ROUTES.items():
            documented: OpenApiResponses = {200: {"model": schema}, **error_responses()}
            if name in _STREAMS:
                documented[200]["content"] = _STREAMS[name]
            app.add_api_route(
                f"{prefix}/{name}",
                handlers[name],
                methods=["POST"],
                operation_id=version + name,
                tags=[tag],
                openapi_extra=body,
                responses=documented,
            )
        languages = list[responses.LibreTranslateLanguage]
        _add_get(app, f"{prefix}/languages", handlers["languages"], f"{version}languages", languages)
    app.add_api_route(
        OPENAI_PATH,
        handlers["v1_chat_completions"],
        methods=["POST"],
        operation_id="v1_chat_completions",
        tags=["chat"],
        openapi_extra=request_body("CompletionRequest"),
        responses={
            200: {"model": CompletionResponse, "content": event_stream_content()},
            **error_responses(*(status for status in ERRORS if status not in (405, 422)), openai=True),
        },
    )
    _add_get(app, "/models", handlers["models"], "models", responses.ModelsResponse, 401)
    _add_get(app, "/v1/models", handlers["v1_models"], "v1_models", responses.OpenAIModelsResponse, 401)
    app.add_api_route(
        "/v1/models/{model:path}",
        handlers["v1_model"],
        operation_id="v1_model",
        tags=["models"],
        openapi_extra={"parameters": [_MODEL_PARAMETER]},
        responses={200: {"model": responses.OpenAIModel}, **error_responses(*_REFUSALS, 401, 404)},
    )


def _add_get(app: FastAPI, path: str, handler: Handler, name: str, schema: Any, *errors: int) -> None:
    """Add a route that describes the models."""
    documented: OpenApiResponses = {200: {"model": schema}, **error_responses(*_REFUSALS, *errors)}
    app.add_api_route(path, handler, operation_id=name, tags=["models"], responses=documented)


def add_operations(app: FastAPI, health: Health, metrics: Metrics) -> None:
    """Add health checks, metrics and the page of documentation."""
    documented: OpenApiResponses = {
        200: {"model": responses.HealthResponse},
        **error_responses(400, 403, 431),
        503: {"model": responses.UnhealthyResponse, "description": "The answer is no; `status` says why."},
    }
    without_body: OpenApiResponses = {
        status: {"description": response["description"]} for status, response in documented.items() if status != 200
    }
    for name, handler in (("health", health.health), ("live", health.live), ("ready", health.ready)):
        app.add_api_route(f"/{name}", handler, operation_id=name, tags=["operations"], responses=documented)
        app.add_api_route(
            f"/{name}",
            handler,
            methods=["HEAD"],
            operation_id=f"head_{name}",
            tags=["operations"],
            response_class=Response,
            responses=without_body,
        )

    async def export_metrics() -> Response:
        """Return the metrics of this server in the Prometheus text format."""
        return Response(metrics.export(), media_type=CONTENT_TYPE)

    text: OpenApiResponses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    app.add_api_route(
        "/metrics",
        export_metrics,
        operation_id="metrics",
        tags=["operations"],
        response_class=Response,
        responses={**text, **error_responses(*_REFUSALS, 401)},
    )

    async def api_page() -> Response:
        return HTMLResponse(render_api_page(app.openapi()), headers=HEADERS)

    app.add_api_route("/docs", api_page, include_in_schema=False)
