"""Require a token for the explorer: programs send it as a header, and a browser gets a page to type it into.

A browser cannot add a header to a page or a WebSocket that it opens, so it gets a cookie in exchange for the token.
"""

import asyncio
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.auth import TokenCheck
from regard.serve.errors import send_error
from regard.serve.limits import PUBLIC_PATHS
from regard.serve.origins import POLICY_VIOLATION

LOGIN_PATH = "/login"
COOKIE = "regard_session"
MAX_FORM_BYTES = 4096
"""Largest form that is read."""

_PAGES = ("/", "/index.html", LOGIN_PATH)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_FORM = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>regard</title>
<style>body { font: 1rem system-ui, sans-serif; margin: 20vh auto; max-width: 24rem; color-scheme: light dark; }</style>
<form method="post" action="/login">
<p><label for="token">This server requires its token.</label></p>
<p><input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button>Open</button></p>
</form></html>
"""


class ExplorerLoginMiddleware:
    """ASGI middleware that lets only clients with the token through."""

    def __init__(self, app: ASGIApp, token: str, read_timeout: float) -> None:
        """Wrap an application.

        Args:
            app: The application to protect.
            token: The token to require.
            read_timeout: Seconds a client has to send the form.
        """
        self.app, self._token, self._read_timeout = app, TokenCheck(token), read_timeout
        self._session = secrets.token_urlsafe(32)  # the cookie of this process: it tells nothing about the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an authorised request on to the application; offer the form to a browser, and refuse any other."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif scope["type"] == "http" and (scope["path"], scope["method"]) == (LOGIN_PATH, "POST"):
            response = await self._log_in(Request(scope, receive))
            await response(scope, receive, send)
        elif self._is_authorised(Headers(scope=scope)) or scope["path"] in PUBLIC_PATHS:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "a token is required"})
        elif scope["path"] in _PAGES:
            await HTMLResponse(_FORM, 401, _HEADERS)(scope, receive, send)
        else:
            message = "a token is required; open / in a browser, or send it as 'Authorization: Bearer TOKEN'"
            await send_error(send, 401, message, (b"www-authenticate", b"Bearer"), (b"connection", b"close"))

    def _is_authorised(self, headers: Headers) -> bool:
        if self._token.accepts_header(headers.raw):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._session.encode())

    async def _log_in(self, request: Request) -> Response:
        """Exchange the token in a form for a cookie."""
        form = b""
        try:
            async with asyncio.timeout(self._read_timeout):
                async for chunk in request.stream():
                    form += chunk
                    if len(form) > MAX_FORM_BYTES:
                        return HTMLResponse(_FORM, 413, {**_HEADERS, "Connection": "close"})
        except TimeoutError:
            return HTMLResponse(_FORM, 408, {**_HEADERS, "Connection": "close"})
        token = parse_qs(form.decode(errors="replace")).get("token", [""])[0]
        if not self._token.accepts(token.strip().encode(errors="replace")):
            return HTMLResponse(_FORM, 401, _HEADERS)
        response = RedirectResponse("/", 303, _HEADERS)
        response.set_cookie(COOKIE, self._session, httponly=True, samesite="strict")
        return response
