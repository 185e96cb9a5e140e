"""Middleware that authenticates, bounds and counts every HTTP request, and the bounded reading of request bodies."""

from asyncio import timeout
from collections.abc import Container
from time import perf_counter

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.auth import TOKEN_REQUIRED, TokenCheck
from regard.serve.errors import send_error
from regard.serve.metrics import Metrics
from regard.serve.request_context import route_path
from regard.serve.settings import ServerLimits

PUBLIC_PATHS = ("/health", "/live", "/ready", "/docs", "/openapi.json", "/languages", "/v1/languages")
"""Paths that need no token."""
TOKEN_IN_BODY_PATHS = ("/translate", "/v1/translate")
"""Paths whose handler checks the token, because LibreTranslate clients send it in the body."""
JSON_TYPE = "application/json"
MAX_HEAD_BYTES = 1 << 16
"""Limit on URL and headers. The HTTP parser limits only an incomplete head, so a complete one is checked here."""
DISCARD_FACTOR = 16
"""A body over its limit is read and discarded up to this many times the limit: a client sees the response only after
it has sent its request."""
_CLOSE = {"Connection": "close"}  # a response sent before the whole request is read


class RequestLimitsMiddleware:
    """ASGI middleware that checks the token and the size of the head, and records metrics."""

    def __init__(self, app: ASGIApp, metrics: Metrics, token: str, routes: Container[str]) -> None:
        """Wrap an application.

        Args:
            app: The application to protect.
            metrics: Where requests are counted.
            token: Bearer token to require; empty requires none.
            routes: Paths that the application serves, as labels of metrics.
        """
        self.app, self.metrics, self.routes = app, metrics, routes
        self._token = TokenCheck(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request on to the application, and refuse any other."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = perf_counter(), 500

        async def send_and_record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if (refusal := _check_head(scope)) is not None:
                await send_error(send_and_record_status, *refusal, (b"connection", b"close"))
            elif self._is_authorized(scope):
                await self.app(scope, receive, send_and_record_status)
            else:
                headers = (b"connection", b"close"), (b"www-authenticate", b"Bearer")
                await send_error(send_and_record_status, 401, TOKEN_REQUIRED, *headers)
        finally:
            route = route_path(scope, self.routes)
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(perf_counter() - start)

    def _is_authorized(self, scope: Scope) -> bool:
        """Return whether a request needs no token, has the right one, or is checked by its handler."""
        # A browser sends a CORS preflight request with OPTIONS, and without the token.
        if scope["path"] in (*PUBLIC_PATHS, *TOKEN_IN_BODY_PATHS) or scope["method"] == "OPTIONS":
            return True
        return self._token.accepts_header(scope["headers"])


def _check_head(scope: Scope) -> tuple[int, str] | None:
    """Return status and message to refuse a request with because of its URL or headers, or None."""
    size = len(scope["raw_path"]) + len(scope["query_string"])
    lengths = 0
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4  # ": " and CRLF
        lengths += name in (b"content-length", b"transfer-encoding")
    if size > MAX_HEAD_BYTES:
        return 431, f"URL and headers have more than {MAX_HEAD_BYTES} bytes; send fewer"
    if lengths > 1:
        # Request smuggling: a proxy may use one header and this server the other, and take the rest of the body for
        # the next request.
        return 400, "the length of the body is ambiguous; send one of Content-Length and Transfer-Encoding, not both"
    return None


def media_type(request: Request) -> str:
    """Return the type of the body of a request, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, limits: ServerLimits, types: Container[str] = (JSON_TYPE,)) -> bytes:
    """Read the body of a request, which is JSON unless other `types` are given.

    Raises:
        HTTPException: 415 if the body is declared as another type, 408 if it arrives too slowly, 413 if it is too
            large.
    """
    if media_type(request) not in types:
        # A page of another origin can make a browser send plain text here, but JSON only after a CORS preflight.
        raise HTTPException(415, "send JSON, with 'Content-Type: application/json'", _CLOSE)
    body, size = bytearray(), 0
    try:
        async with timeout(limits.read_timeout):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.body:
                    body += chunk
                elif size > DISCARD_FACTOR * limits.body:
                    break
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limits.read_timeout:g} s", _CLOSE) from None
    if size > limits.body:
        raise HTTPException(413, f"the body has more than {limits.body} bytes; send several requests", _CLOSE)
    return bytes(body)
