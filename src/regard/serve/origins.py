"""Check the `Host` and `Origin` headers, to keep web pages of other sites from reaching this server.

In a DNS rebinding attack, a host name of the attacker resolves to this machine; the name shows in `Host`. A page of
another site that opens a WebSocket, or sends a request, shows in `Origin`, which a browser lets no page forge. Both
headers are checked before anything else happens.
"""

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.errors import send_error

POLICY_VIOLATION = 1008
"""Close code of a refused WebSocket (RFC 6455, section 7.4.1)."""


class OriginCheckMiddleware:
    """ASGI middleware that refuses unknown hosts and foreign origins with status 403, or WebSocket code 1008."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), origins: Collection[str] = ()) -> None:
        """Wrap an application.

        Args:
            app: The application to protect.
            hosts: Host names to accept besides `localhost`, the name of this machine and IP addresses; `*` accepts any.
            origins: Origins of web pages to accept besides the pages of this server.
        """
        self.app, self.origins = app, frozenset(origins)
        self.hosts = frozenset(name.lower() for name in ("localhost", socket.gethostname(), *hosts) if name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request on to the application, and refuse any other."""
        reason = self.refusal(Headers(scope=scope)) if scope["type"] in ("http", "websocket") else None
        if reason is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason[:100]})
        else:
            await send_error(send, 403, reason)

    def refusal(self, headers: Headers) -> str | None:
        """Return the reason to refuse a request with these headers, or None."""
        host = headers.get("host")  # every browser sends it, so a request without it does not come from a page
        if host is not None and not self._is_allowed_host(host):
            return "unknown host name; use the address that the server printed, or start it with --allow-host NAME"
        origin = headers.get("origin")
        if origin is None or origin in self.origins or origin in (f"http://{host}", f"https://{host}"):
            return None
        return "requests from pages of other origins are not allowed; start the server with --origin URL to allow one"

    def _is_allowed_host(self, host: str) -> bool:
        """Return whether a `Host` header holds an IP address, which DNS cannot forge, or an allowed name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            # Nothing but a name and a port may be there: no user, no path.
            if urlsplit(f"//{host}").netloc != host or "@" in host:
                return False
        except ValueError:
            return False
        if name in self.hosts or "*" in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
