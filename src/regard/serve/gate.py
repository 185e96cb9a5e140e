"""What every request passes first: who asks is known by a token, what is sent has an end, and all is counted."""

import hmac
import json
from asyncio import timeout
from collections.abc import Container
from time import perf_counter

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.meter import Meter
from regard.serve.settings import Limits

NO_TOKEN = "this server asks for a token: send it as 'Authorization: Bearer TOKEN'"
OPEN = ("/health", "/docs", "/openapi.json")
"""What may be asked without a token: whether the server lives, and how to talk to it."""
CLOSE = {"Connection": "close"}
"""For an answer before the request was read: what is still to come of it is not waited for."""

HEAD = 1 << 16
"""Bytes of a request's address and headers; whoever parses them counts only what has not come to its end yet."""
WASTE = 16
"""Times the bytes of a request that are read of one too big and thrown away: who is still sending hears no answer."""


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, meter: Meter, token: str, routes: Container[str]) -> None:
        """Without a token anybody may pass."""
        self.app, self.meter, self.routes = app, meter, routes
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = perf_counter(), 500
        # Paths nobody serves are counted as one, or a client could make us count without end.
        route = scope["path"] if scope["path"] in self.routes else "other"

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if (fault := _fault_of_head(scope)) is not None:
                await _refuse(counted, *fault)
            elif self._may_pass(scope):
                await self.app(scope, receive, counted)
            else:
                await _refuse(counted, 401, NO_TOKEN, (b"www-authenticate", b"Bearer"))
        finally:
            self.meter.requests.labels(route, str(status)).inc()
            self.meter.seconds.labels(route).observe(perf_counter() - begin)

    def _may_pass(self, scope: Scope) -> bool:
        """Whether a request shows the token, compared in a time that tells nothing of it."""
        # A browser asks with OPTIONS whether a page may ask at all, and shows no token with that.
        if not self._token or scope["path"] in OPEN or scope["method"] == "OPTIONS":
            return True
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, word = shown.partition(b" ")
        return hmac.compare_digest(word.strip(), self._token) and kind.lower() == b"bearer"


def _fault_of_head(scope: Scope) -> tuple[int, str] | None:
    """What is wrong with a request before its body, if something is: a status, and a sentence."""
    size = len(scope["raw_path"]) + len(scope["query_string"])
    lengths = 0
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4  # with what stands between and behind them
        lengths += name in (b"content-length", b"transfer-encoding")
    if size > HEAD:
        return 431, f"address and headers have at most {HEAD} bytes; send less of them"
    if lengths > 1:
        # A proxy may believe the one and we the other, and take the rest of a body for somebody's next request.
        return 400, "a body has a length or comes in chunks, not both; send one of Content-Length and Transfer-Encoding"
    return None


async def _refuse(send: Send, status: int, said: str, *more: tuple[bytes, bytes]) -> None:
    """Answer here; what is still to come of the request is not waited for."""
    body = json.dumps({"error": said}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(request: Request, limits: Limits) -> bytes:
    """The body of a request, which has an end, in bytes and in time."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # A page elsewhere can make a browser send plain text here, but not JSON without asking us first.
        raise HTTPException(415, "send JSON, with 'Content-Type: application/json'", CLOSE)
    found, size = bytearray(), 0
    try:
        async with timeout(limits.patience):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.body:
                    found += chunk
                elif size > WASTE * limits.body:
                    break
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limits.patience:g} s", CLOSE) from None
    if size > limits.body:
        raise HTTPException(413, f"a request has at most {limits.body} bytes; send it in parts", CLOSE)
    return bytes(found)
