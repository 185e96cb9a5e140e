"""The socket, the signals, and how a server ends: whoever was let in is answered."""

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
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serve.app import make_app
from regard.serve.meter import Meter
from regard.serve.settings import Settings
from regard.translator import Translator

GRACE = 0.3
"""Seconds in which a connection without a request may still bring one when the server ends."""
SPOKEN = 1 << 22
"""Bytes of a message over a WebSocket that are still read, to be refused in words; who sends more is cut off."""
SWITCH = 0.001
"""Seconds a thread may keep others waiting: the event loop must not wait for the workers."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a wrong address is known before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, because asyncio sends small answers at once only on sockets that say so; others wait for a full packet.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = "another program listens there; choose another --port" if used else f"{error}; choose --host and --port"
        raise ValueError(f"cannot listen on {host}, port {port}: {hint}") from None
    return made


def serve(translators: dict[str, Translator], settings: Settings, listening: socket.socket) -> None:
    """Serve until a signal comes; then answer what was let in, and return."""
    app, place = make_app(translators, settings), address(listening)
    names = ", ".join(translators)
    run(app, settings, listening, lambda: say(f"ready: {names} on {place}, told at {place}/docs"))
    say(f"stopped; {_answered(app)} requests answered")


def run(
    app: ASGIApp, settings: Settings, listening: socket.socket, ready: Callable[[], None], sockets: bool = False
) -> None:
    """Let clients talk to an application until a signal comes; with `sockets`, over WebSockets too."""
    sys.setswitchinterval(SWITCH)
    limits = settings.limits
    config = uvicorn.Config(
        app,
        http=_patient(limits.patience),
        ws="websockets-sansio" if sockets else "none",
        ws_max_size=SPOKEN,
        ws_per_message_deflate=False,  # what goes over them is numbers, and seldom leaves the machine
        log_config=None,
        access_log=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=60,
        # Who does not read its answer is not waited for longer than the answer may take.
        timeout_graceful_shutdown=round(limits.seconds + limits.patience),
        server_header=False,
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    _Server(config, ready).run(sockets=[listening])


def address(listening: socket.socket) -> str:
    """Where a socket listens, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _answered(app: FastAPI) -> int:
    """How many requests got an answer."""
    meter: Meter = app.state.meter
    samples = (sample for metric in meter.requests.collect() for sample in metric.samples)
    return round(sum(each.value for each in samples if each.name == "regard_requests_total"))


def say(sentence: str) -> None:
    """A sentence on stderr; where that is full or closed, the server goes on without it."""
    try:
        print(f"regard: {sentence}", file=sys.stderr, flush=True)
    except OSError:
        return


class _Server(uvicorn.Server):
    """Says when it is ready, and takes a signal for a wish to end well, not for a fault."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _patient(patience: float) -> type[asyncio.Protocol]:
    """A protocol whose clients have so many seconds to say what they want."""

    class Patient(H11Protocol):
        """Closes connections that never finish their headers, and ends without cutting anybody off."""

        def __init__(self, *told: Any, **more: Any) -> None:
            super().__init__(*told, **more)
            self._ending = False
            self._clock: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._clock = self.loop.call_later(patience, self._close_if_idle)

        def data_received(self, data: bytes) -> None:
            if self._idle() and self._clock is None:
                self._clock = self.loop.call_later(patience, self._close_if_idle)
            super().data_received(data)

        def handle_events(self) -> None:
            super().handle_events()
            if not self._idle() and self._clock is not None:
                self._clock.cancel()
                self._clock = None
            if self._ending and self.cycle is not None:
                self.cycle.keep_alive = False

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            if self._clock is not None:
                self._clock.cancel()
            super().handle_websocket_upgrade(event)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._clock is not None:
                self._clock.cancel()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """What was sent already is still read and answered."""
            self._ending = True
            if self._idle():
                self.loop.call_later(GRACE, self._close_if_idle)
            else:
                self.cycle.keep_alive = False

        def _idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _close_if_idle(self) -> None:
            self._clock = None
            if self._idle() and not self.transport.is_closing():
                if self.conn.our_state in (h11.IDLE, h11.DONE):
                    self.conn.send(h11.ConnectionClosed())
                self.transport.close()

    return Patient
