"""Who may come in: a page of ours, or a program; not a page of somebody else's that runs in the same browser.

A name that a stranger's DNS points here (rebinding) shows in `Host`; a stranger's page that opens a WebSocket here
shows in `Origin`, which no browser lets a page forge. Both are checked before anything else is done.
"""

import ipaddress
import json
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

FORBIDDEN = 1008
"""What a WebSocket is closed with that may not be opened."""


class Door:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, names: Collection[str] = (), origins: Collection[str] = ()) -> None:
        """Besides this machine's own, `names` may be in an address, all if one is `*`; pages of `origins` may ask."""
        self.app, self.origins = app, frozenset(origins)
        self.names = frozenset(each.lower() for each in ("localhost", socket.gethostname(), *names) if each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        fault = self.fault(Headers(scope=scope)) if scope["type"] in ("http", "websocket") else None
        if fault is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": FORBIDDEN, "reason": fault[:100]})
        else:
            await _refuse(send, fault)

    def fault(self, headers: Headers) -> str | None:
        """Why a request may not pass, if so."""
        host = headers.get("host")  # every browser sends one, so who sends none is no page
        if host is not None and not self._ours(host):
            return "this server does not go by that name; use the address it printed, or start it with --allow-host"
        origin = headers.get("origin")
        if origin is None or origin in self.origins or origin in (f"http://{host}", f"https://{host}"):
            return None
        return "pages of other servers may not ask here"

    def _ours(self, host: str) -> bool:
        """Whether an address is by number, which no DNS can forge, or by a name of ours."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            # What remains of an address once its name and port are taken must be nothing: no user, no path.
            if urlsplit(f"//{host}").netloc != host or "@" in host:
                return False
        except ValueError:
            return False
        if name in self.names or "*" in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def _refuse(send: Send, fault: str) -> None:
    body = json.dumps({"error": fault}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
