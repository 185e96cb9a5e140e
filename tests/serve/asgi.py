"""Requests to an ASGI application in this process, without a server."""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import ASGIApp
from tests.serve.client import Response

Result = TypeVar("Result")


def run_async(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a thread of its own: an event loop of browser tests may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def asgi_request(
    app: ASGIApp, path: str, method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b""
) -> Response:
    """Send a request to an application, and return the response, also if the application then raises an exception."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), *headers],
        "client": None,
        "server": None,
        "state": {},
    }

    async def run() -> None:
        with suppress(ArithmeticError):
            await app(scope, receive, send)

    run_async(run())
    names = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return Response(sent[0]["status"], names, b"".join(message.get("body", b"") for message in sent[1:]))
