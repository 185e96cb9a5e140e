"""The context of a request: its id, which every response carries, and the counts that the access log writes."""

import re
from collections.abc import Container
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.access_log import AccessLog

HEADER = "x-request-id"
OPENAI_PATH = "/v1/chat/completions"
"""The route whose errors have the form of OpenAI."""
_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_METHODS = frozenset(("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"))
_random = Random()
"""Seeded by the operating system once: to ask it for each id takes longer, and an id is no secret."""
_KEY = "regard.request"  # in the scope of a request that has a context


@dataclass
class RequestContext:
    """What is known about a request besides its content."""

    id: str = field(default_factory=lambda: f"{_random.getrandbits(128):032x}")
    model: str | None = None
    """Name of the model that it uses."""
    lines: int | None = None
    """Number of lines or sentence pairs."""
    tokens: int | None = None
    """Number of target tokens: generated, or scored."""
    is_openai: bool = False
    """Whether errors have the form of OpenAI."""


_current: ContextVar[RequestContext] = ContextVar("request")


def current_request() -> RequestContext:
    """Return the context of the request that is being handled; outside of requests a new one."""
    return _current.get(None) or RequestContext()


def route_path(scope: Scope, routes: Container[str]) -> str:
    """Return the path of a request for labels and logs: that of its route, or `other`.

    Clients choose paths. With the paths themselves they could create labels without bound, or write text into a log.
    """
    matched = getattr(scope.get("route"), "path_format", None)
    if isinstance(matched, str):
        return matched
    return scope["path"] if scope["path"] in routes else "other"


class RequestContextMiddleware:
    """ASGI middleware that gives every request an id, returns it in `X-Request-ID`, and writes the access log."""

    def __init__(self, app: ASGIApp, routes: Container[str] = (), log: AccessLog | None = None) -> None:
        """Wrap an application, which may be part of another one that has this middleware too.

        Args:
            app: The application.
            routes: Paths that the application serves.
            log: Where to write a line for each request.
        """
        self.app, self.routes, self.log = app, routes, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request within a context of its own."""
        if scope["type"] != "http" or _KEY in scope:
            await self.app(scope, receive, send)
            return
        start, status = perf_counter(), 500
        sent = next((value for name, value in scope["headers"] if name == HEADER.encode()), b"")
        # An id of the client is written to logs, so it may not contain anything but a short name.
        context = RequestContext(sent.decode()) if _VALID_ID.fullmatch(sent) else RequestContext()
        context.is_openai = scope["path"] == OPENAI_PATH
        scope[_KEY] = context
        _current.set(context)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (HEADER.encode(), context.id.encode())]}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            if self.log is not None:
                self.log.write(
                    request_id=context.id,
                    method=scope["method"] if scope["method"] in _METHODS else "other",
                    path=route_path(scope, self.routes),
                    status=status,
                    seconds=round(perf_counter() - start, 6),
                    model=context.model,
                    lines=context.lines,
                    tokens=context.tokens,
                )
