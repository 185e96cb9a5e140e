"""The connections of a server: how many there may be, and how long a client may take to send and to read.

A client that sends nothing, sends its head slowly, or does not read its response is disconnected, so that none can keep
a connection for ever. When all connections are in use, the one that has been idle longest makes room for a new one. If
none is idle, a new connection gets status 503; only health checks are still answered.
"""

import asyncio
import socket
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from regard.serve.errors import early_error, send_error
from regard.serve.request_context import RequestContextMiddleware
from regard.serve.settings import ServerLimits

HEALTH_PATHS = ("/health", "/live", "/ready")
"""Paths that are answered even if there are too many connections."""
RESERVED_CONNECTIONS = 16
"""Connections above the limit, for health checks and for refusals with status 503."""
WRITE_PROGRESS = 1 << 16
"""Bytes of a response that a client must read within the write timeout, unless fewer are left."""
RECENT = 1.0
"""Seconds after its last bytes in which a connection is closed only if there is no other one to make room."""
SHUTDOWN_GRACE = 0.3
"""Seconds during shutdown in which an idle connection may still deliver a request."""
INVALID_DATA = 1007
"""Close code of a WebSocket that received invalid UTF-8 (RFC 6455, section 7.4.1)."""

_CLIENT_CHECKS = (0.005, 0.5)  # seconds until the first check of a client that closed its side, and at most between two


class WriteTimer:
    """Resets a connection whose client does not read what was written to it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        """Watch a transport, which reports from now on whenever it has to keep bytes back."""
        self._transport, self._loop, self._timeout = transport, loop, timeout
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0
        transport.set_write_buffer_limits(high=0)

    def start(self) -> None:
        """Start to wait, because the transport has bytes that the kernel does not take."""
        self._unread = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._timeout, self._check)

    def stop(self) -> None:
        """Stop to wait, because nothing is left to write."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        unread = self._transport.get_write_buffer_size()
        if self._unread - unread >= WRITE_PROGRESS:
            self.start()
            return
        # Without this option the kernel would keep the unread bytes for minutes after the connection is closed.
        connection = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


class WriteTimeoutMixin(asyncio.Protocol):
    """A protocol whose connection is aborted if the client does not read; `write_timer` is set once it is connected."""

    write_timer: WriteTimer | None = None

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        if self.write_timer is not None:
            self.write_timer.start()

    def resume_writing(self) -> None:
        """Continue to write, since the client has read everything."""
        super().resume_writing()
        if self.write_timer is not None:
            self.write_timer.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request or the session in progress."""
        if self.write_timer is not None:
            self.write_timer.stop()
        super().connection_lost(exc)


class HttpConnection(WriteTimeoutMixin, H11Protocol):
    """An HTTP connection with time limits for reading and writing, which may be closed while it is idle."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], limits: ServerLimits):
        """Create the protocol of a connection that is accepted already."""
        super().__init__(config, server_state, app_state)
        self.limits = limits
        self.over_limit = False
        """Whether the connection is one above the limit, which is for health checks only."""
        self.has_served = False
        """Whether a request has arrived over this connection."""
        self.active_at = self.loop.time()
        """When the client last sent something."""
        if self.ws_protocol_class is not None:
            self.ws_protocol_class = partial(WebSocketConnection, write_timeout=limits.write_timeout)  # type: ignore[assignment]
        self._read_timer: asyncio.TimerHandle | None = None
        self._is_shutting_down = self._is_half_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress, and the last response has been handed to the kernel."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for this connection, and wait for its first request."""
        others = [other for other in self.connections if not _is_leaving(other)]
        reserved = [other for other in others if isinstance(other, HttpConnection) and other.over_limit]
        super().connection_made(transport)
        self.write_timer = WriteTimer(transport, self.loop, self.limits.write_timeout)
        self._read_timer = self.loop.call_later(self.limits.read_timeout, self._close_if_idle)
        is_full = len(others) - len(reserved) >= self.limits.connections
        if is_full and not _close_longest_idle(others, over_limit=False):
            self.over_limit = True
            if len(reserved) >= RESERVED_CONNECTIONS and not _close_longest_idle(others, over_limit=True):
                transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self.active_at = self.loop.time()
        if self.is_idle and self._read_timer is None:
            self._read_timer = self.loop.call_later(self.limits.read_timeout, self._close_if_idle)
        super().data_received(data)

    def handle_events(self) -> None:
        """Start the response to a request whose head is complete."""
        previous = self.cycle
        super().handle_events()
        if self.cycle is not previous and self.cycle is not None:
            self.has_served = True
            self.scope["state"]["over_limit"] = self.over_limit
            if self.over_limit or self._is_shutting_down or self.app_state.get("draining", False):
                self._announce_close()
        if not self.is_idle and self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if self._is_half_closed:
            self._on_half_closed()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and end the request that it belongs to or follows."""
        if self.cycle is not None and not self.cycle.response_complete:
            # The application may be waiting for the rest of the body; nothing that it sends is of use any more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body, headers = early_error(400, "this is not a valid HTTP/1.1 request; check the request line and headers")
            head = h11.Response(status_code=400, headers=[*headers, (b"connection", b"close")], reason=b"Bad Request")
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a complete request of a client that has closed its side; disconnect any other."""
        if self.is_idle or self.cycle is None or self.cycle.more_body:
            return None
        self._is_half_closed = True
        if not self.cycle.response_started and self.conn.their_http_version != b"1.0":
            # A client that has not only closed its side, but is gone, reacts to these bytes with a reset.
            interim = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(interim) or b"")
        self._on_half_closed()
        self._check_client(_CLIENT_CHECKS[0])
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request in progress."""
        self._stop_timers()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        return not self.over_limit and super()._should_upgrade()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the WebSocket protocol."""
        self._stop_timers()
        super().handle_websocket_upgrade(event)

    def drain(self) -> None:
        """Announce that the connection is closed after the request in progress."""
        if not self.is_idle:
            self._announce_close()

    def shutdown(self) -> None:
        """Close the connection after the request in progress; a request that is on its way is still answered."""
        self._is_shutting_down = True
        if self.is_idle:
            self.loop.call_later(SHUTDOWN_GRACE, self._close_if_idle)
        else:
            self._announce_close()

    def _announce_close(self) -> None:
        """Close the connection after the response in progress, and say so in its headers if they are not sent yet."""
        self.cycle.keep_alive = False
        if CLOSE_HEADER not in self.cycle.default_headers:
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE_HEADER]

    def _on_half_closed(self) -> None:
        """Close the connection after the last request that has arrived."""
        if self.is_idle:
            self._close_if_idle()
        elif not self.conn.trailing_data[0]:
            self._announce_close()

    def _check_client(self, delay: float) -> None:
        """End the request of a client that has reset the connection. A half-closed transport does not notice it."""
        if self.transport.is_closing() or self.is_idle:
            return
        connection = self.transport.get_extra_info("socket")
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(delay, self._check_client, min(2 * delay, _CLIENT_CHECKS[1]))

    def _stop_timers(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if self.write_timer is not None:
            self.write_timer.stop()

    def _close_if_idle(self) -> None:
        self._read_timer = None
        if self.is_idle and not self.transport.is_closing():
            if self.conn.our_state in (h11.IDLE, h11.DONE):
                self.conn.send(h11.ConnectionClosed())
            self.transport.close()

    def close_idle(self) -> None:
        """Close the connection, which must be idle, to make room for another one."""
        assert self.is_idle, "a request in progress is not interrupted"
        self._close_if_idle()


class WebSocketConnection(WriteTimeoutMixin, WebSocketsSansIOProtocol):
    """A WebSocket with a time limit for writing."""

    def __init__(self, *args: Any, write_timeout: float, **kwargs: Any) -> None:
        """Create the protocol of a connection that asks for an upgrade."""
        super().__init__(*args, **kwargs)
        self._write_timeout = write_timeout

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the connection."""
        super().connection_made(transport)
        self.write_timer = WriteTimer(self.transport, self.loop, self._write_timeout)

    def send_receive_event_to_app(self) -> None:
        """Pass a message on to the application; close the connection quietly if it is not valid UTF-8."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def drain(self) -> None:
        """Stay open until the shutdown; a WebSocket has no responses to announce it in."""


class ConnectionLimitMiddleware:
    """ASGI middleware that answers connections above the limit with status 503, unless they are health checks."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self.app, self.refuse = app, RequestContextMiddleware(_refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        over_limit = scope["type"] == "http" and scope.get("state", {}).get("over_limit", False)
        app = self.refuse if over_limit and scope["path"] not in HEALTH_PATHS else self.app
        await app(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection above the limit."""
    await send_error(send, 503, "there are too many connections; retry later", (b"retry-after", b"1"))


def is_draining(scope: Scope) -> bool:
    """Return whether the server that a request has reached is about to stop."""
    return bool(scope.get("state", {}).get("draining", False))


def _is_leaving(connection: Any) -> bool:
    """Return whether a connection is closed as soon as the event loop gets to it."""
    return connection.transport.is_closing() and not connection.transport.get_write_buffer_size()


def _idle_connections(connections: list[Any], over_limit: bool) -> Iterator[HttpConnection]:
    for connection in connections:
        if (
            isinstance(connection, HttpConnection)
            and connection.over_limit == over_limit
            and connection.is_idle
            and not connection.transport.is_closing()
        ):
            yield connection


def _close_longest_idle(connections: list[Any], over_limit: bool) -> bool:
    """Close the idle connection that is needed least, and return whether there was one.

    Those without a recent request come first, since a request of the others may be on its way; then those that have
    never sent one; then those that are idle longest.
    """
    idle = list(_idle_connections(connections, over_limit))
    if idle:
        now = idle[0].loop.time()
        min(idle, key=lambda other: (now - other.active_at < RECENT, other.has_served, other.active_at)).close_idle()
    return bool(idle)
