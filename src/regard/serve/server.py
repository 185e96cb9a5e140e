"""Run an application: listen on a socket, handle signals, and shut down after the last accepted request."""

import asyncio
import errno
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from regard.engines.kv_pool import drop_spare_pools
from regard.engines.malloc import limit_arenas, trim_memory
from regard.serve.app import make_app
from regard.serve.connections import ConnectionLimitMiddleware, HttpConnection, WebSocketConnection
from regard.serve.languages import ModelLanguages
from regard.serve.listener import Listener, raise_file_limit
from regard.serve.services import Predictor
from regard.serve.settings import ServerLimits, ServerSettings

MAX_WEBSOCKET_MESSAGE = 1 << 22
"""Bytes of a WebSocket message that is still read, to be refused with a message; a longer one closes the connection."""
SWITCH_INTERVAL = 0.001
"""Python's thread switch interval in seconds: short, so that workers do not hold up the event loop."""

IDLE_SECONDS, BUSY_SECONDS = 20, 120
"""Free memory is returned to the kernel after so many seconds without requests in progress, and after so many with. A
busy server fetches it again page by page, which took 4 % of its time when this was done every ten seconds."""


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
    predictors: Mapping[str, Predictor],
    settings: ServerSettings,
    listener: socket.socket,
    languages: ModelLanguages | None = None,
) -> None:
    """Serve models until SIGINT, SIGTERM or SIGHUP; then finish the accepted requests and return.

    Example:
        ```python
        settings = ServerSettings(port=8000)
        serve({"de": regard.load("runs/en-de")}, settings, listen(settings.host, settings.port))
        ```
    """
    app, address = make_app(predictors, settings, languages), url(listener)
    names = ", ".join(predictors)
    run(app, settings, listener, lambda: log_line(f"ready: {names} on {address}, documentation at {address}/docs"))
    log_line(f"stopped; {app.state.metrics.answered_requests()} requests answered")


def run(
    app: ASGIApp,
    settings: ServerSettings,
    listener: socket.socket,
    on_ready: Callable[[], None],
    websockets: bool = False,
) -> None:
    """Run an ASGI application until SIGINT, SIGTERM or SIGHUP."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    limit_arenas()
    limits = settings.limits
    allowed = raise_file_limit(limits.connections)
    if allowed < limits.connections:
        log_line(
            f"the limit of open files allows {allowed} of {limits.connections} connections; raise it with ulimit -n"
        )
    config = uvicorn.Config(
        ConnectionLimitMiddleware(app),
        http="h11",
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=MAX_WEBSOCKET_MESSAGE,
        ws_per_message_deflate=False,  # the messages are arrays of numbers, and seldom leave the machine
        log_config=None,
        access_log=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=round(limits.seconds + limits.read_timeout + limits.write_timeout),
        server_header=False,
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    server = _Server(config, replace(limits, connections=allowed), settings.drain_seconds, on_ready)
    server.run(sockets=[listener])


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


class TrimSchedule:
    """Decides when a server returns free memory to the kernel: when it is idle, and now and then if it never is."""

    def __init__(self, now: float) -> None:
        """Begin at this time, without requests."""
        self._last_trim = self._last_busy = now
        self._requests_at_trim = 0

    def is_due(self, now: float, requests: int, is_busy: bool) -> bool:
        """Return whether memory is to be returned now; never twice without a request in between.

        Args:
            now: The time in seconds.
            requests: Requests that have arrived so far.
            is_busy: Whether any request is in progress.
        """
        has_served = requests != self._requests_at_trim
        if is_busy or not has_served:
            self._last_busy = now
        is_due = has_served and (now - self._last_busy >= IDLE_SECONDS or now - self._last_trim >= BUSY_SECONDS)
        if is_due:
            self._last_trim, self._requests_at_trim = now, requests
        return is_due


def _return_memory() -> None:
    """Return memory to the kernel that no request in progress uses."""
    drop_spare_pools()
    trim_memory()


class _Server(uvicorn.Server):
    """A server that limits its connections, says when it is ready, and is not ready for a while before it stops."""

    def __init__(
        self, config: uvicorn.Config, limits: ServerLimits, drain_seconds: float, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._limits, self._drain_seconds, self._on_ready = limits, drain_seconds, on_ready
        self._trims = TrimSchedule(time.monotonic())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Unlike uvicorn's own method, this one does not let asyncio accept connections: asyncio accepts them without a
        # limit, and logs a traceback for each one that finds no file descriptor.
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)

        def make_connection() -> HttpConnection:
            return HttpConnection(self.config, self.server_state, self.lifespan.state, self._limits)

        self.servers = [Listener(listening, make_connection) for listening in sockets or ()]  # type: ignore[misc]
        self.started = True
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._captured_signals[:1] == [signal.SIGTERM]:
            await self._drain()
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        """Answer requests for a while, with a header that asks clients to reconnect, perhaps to another server."""
        self.lifespan.state["draining"] = True
        for connection in self.server_state.connections:
            assert isinstance(connection, HttpConnection | WebSocketConnection), "no other protocol is in use"
            connection.drain()
        end = time.monotonic() + self._drain_seconds
        while time.monotonic() < end and len(self._captured_signals) == 1:
            await asyncio.sleep(min(0.1, max(0.0, end - time.monotonic())))

    async def on_tick(self, counter: int) -> bool:
        # Called ten times a second. The thread does not hold Python's lock while it returns memory.
        if self._trims.is_due(time.monotonic(), self.server_state.total_requests, bool(self.server_state.tasks)):
            await asyncio.to_thread(_return_memory)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Unlike uvicorn's own method, this one handles SIGHUP, which a closed terminal sends, and does not raise the
        # signal again after shutdown.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            numbers.append(signal.SIGHUP)
        previous = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
