"""Run an application: listen on a socket, handle signals, and shut down after the last accepted request."""

import asyncio
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.predict import Translator
from regard.serve.app import make_app
from regard.serve.errors import early_error, send_error
from regard.serve.languages import ModelLanguages
from regard.serve.request_context import RequestContextMiddleware
from regard.serve.settings import ServerLimits, ServerSettings

SHUTDOWN_GRACE = 0.3
"""Seconds during shutdown in which an idle connection may still deliver a request."""
MAX_WEBSOCKET_MESSAGE = 1 << 22
"""Bytes of a WebSocket message that is still read, to be refused with a message; a longer one closes the connection."""
SWITCH_INTERVAL = 0.001
"""Python's thread switch interval in seconds: short, so that workers do not hold up the event loop."""


class PortInUseError(ValueError):
    """Raised when another program listens on a port."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address. Call it before loading models, to find a wrong address early.

    Raises:
        PortInUseError: Another program listens there.
        ValueError: The address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it, small responses are delayed.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        problem = f"cannot listen on {host}, port {port}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"{problem}: the port is in use; choose another --port") from None
        raise ValueError(f"{problem}: {error}; choose another --host or --port") from None
    return listener


def serve(
    translators: dict[str, Translator],
    settings: ServerSettings,
    listener: socket.socket,
    languages: ModelLanguages | None = None,
) -> None:
    """Serve models until SIGINT or SIGTERM; then finish the accepted requests and return.

    Example:
        ```python
        settings = ServerSettings(port=8000)
        serve({"de": regard.load("runs/en-de")}, settings, listen(settings.host, settings.port))
        ```
    """
    app, address = make_app(translators, settings, languages), url(listener)
    names = ", ".join(translators)
    run(app, settings, listener, lambda: log_line(f"ready: {names} on {address}, documentation at {address}/docs"))
    log_line(f"stopped; {app.state.metrics.answered_requests()} requests answered")


def run(
    app: ASGIApp,
    settings: ServerSettings,
    listener: socket.socket,
    on_ready: Callable[[], None],
    websockets: bool = False,
) -> None:
    """Run an ASGI application until SIGINT or SIGTERM."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    limits = settings.limits
    config = uvicorn.Config(
        app,
        http=_http_protocol(limits),
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=MAX_WEBSOCKET_MESSAGE,
        ws_per_message_deflate=False,  # the messages are arrays of numbers, and seldom leave the machine
        log_config=None,
        access_log=False,
        timeout_keep_alive=60,
        # A client that does not read its response is waited for no longer than the response may take.
        timeout_graceful_shutdown=round(limits.seconds + limits.read_timeout),
        server_header=False,
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    _Server(config, on_ready).run(sockets=[listener])


def url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def log_line(message: str) -> None:
    """Print a message to stderr; ignore a full or closed stderr, which must not stop a server."""
    try:
        print(f"regard: {message}", file=sys.stderr, flush=True)
    except OSError:
        return


class _Server(uvicorn.Server):
    """A server that reports when it is ready, and exits with code 0 after a signal."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Unlike uvicorn's own method, this one does not raise the signal again after shutdown.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection over the limit."""
    headers = (b"connection", b"close"), (b"retry-after", b"1")
    await send_error(send, 503, "there are too many connections; retry later", *headers)


def _http_protocol(limits: ServerLimits) -> type[asyncio.Protocol]:
    """Return an HTTP protocol class that limits connections, and closes those whose request does not arrive in time."""
    read_timeout, refuse = limits.read_timeout, RequestContextMiddleware(_refuse)

    class TimedProtocol(H11Protocol):
        """Closes a connection that does not complete its headers in time, and drains connections on shutdown."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._shutting_down = False
            self._timer: asyncio.TimerHandle | None = None
            self._served = self.app

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(read_timeout, self._close_if_idle)

        def data_received(self, data: bytes) -> None:
            if self._is_idle() and self._timer is None:
                self._timer = self.loop.call_later(read_timeout, self._close_if_idle)
            super().data_received(data)

        def handle_events(self) -> None:
            is_full = max(len(self.connections), len(self.tasks)) >= limits.connections
            self.app = refuse if is_full else self._served
            super().handle_events()
            if not self._is_idle() and self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._shutting_down and self.cycle is not None:
                self.cycle.keep_alive = False

        def send_400_response(self, msg: str) -> None:
            message = "this is not a valid HTTP/1.1 request; check the request line and the headers"
            body, headers = early_error(400, message)
            head = h11.Response(status_code=400, headers=[*headers, (b"connection", b"close")], reason=b"Bad Request")
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().handle_websocket_upgrade(event)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            # A request that is on its way already is still read and answered.
            self._shutting_down = True
            if self._is_idle():
                self.loop.call_later(SHUTDOWN_GRACE, self._close_if_idle)
            else:
                self.cycle.keep_alive = False

        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _close_if_idle(self) -> None:
            self._timer = None
            if self._is_idle() and not self.transport.is_closing():
                if self.conn.our_state in (h11.IDLE, h11.DONE):
                    self.conn.send(h11.ConnectionClosed())
                self.transport.close()

    return TimedProtocol
