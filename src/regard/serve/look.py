"""The explorer's server: the page, the conversation over a WebSocket, and beside them the HTTP API of `regard serve`.

All three ask the same models through the same queues. A model that is not there yet is made while one watches.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from regard.analysis.look import About, Looker
from regard.serve.app import make_app
from regard.serve.door import FORBIDDEN, Door
from regard.serve.look_making import Making, News
from regard.serve.look_talk import Talk
from regard.serve.served import Served
from regard.serve.server import say
from regard.serve.settings import Settings
from regard.translator import Translator

log = logging.getLogger(__name__)

Known = dict[str, tuple[Translator, About]]
"""Models by name, with what is known of their text."""

UNBUILT = "The page of the explorer is not built: run `make web`, or install a release of regard. The API is at /docs."
RULES = {
    # Everything the page needs comes from here; a figure to save is a blob, an icon is in the page.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page_folder() -> Path:
    """Where the built page is."""
    return Path(str(files("regard") / "web" / "page"))


class Room:
    """The models that can be talked about, and their API; both come when the models do."""

    def __init__(self, settings: Settings, making: Making | None) -> None:
        """Without models as yet."""
        self.settings, self.making = settings, making
        self.looker, self.api = Looker({}), FastAPI()
        self.models: dict[str, Served] = {}
        self.turns: dict[str, asyncio.Lock] = {}
        self.fault: str | None = None
        self._settled, self._opened = asyncio.Event(), AsyncExitStack()

    async def open(self, known: Known) -> None:
        """Let these models be talked about from now on."""
        translators = {name: each for name, (each, _) in known.items()}
        api = make_app(translators, self.settings)
        await self._opened.enter_async_context(api.router.lifespan_context(api))
        self.turns = {name: asyncio.Lock() for name in known}
        self.looker = Looker(translators, {name: told for name, (_, told) in known.items()})
        self.api, self.models = api, api.state.models

    async def make(self) -> None:
        """Make the model, and open it; what goes wrong is told to who asks."""
        assert self.making is not None, "there is something to make"
        try:
            made = await self.making.run()
            await self.open({self.making.recipe.name: made})
        except (ValueError, OSError) as error:
            self.fault = str(error)
            say(f"error: {error}")
        except Exception as error:
            self.fault = f"the model could not be made: {type(error).__name__}"
            log.exception("the model could not be made")
        finally:
            self._settled.set()

    async def ready(self, tell: Callable[[News], Awaitable[None]]) -> None:
        """Returns when there are models, and tells meanwhile how far they are."""
        if self.making is not None:
            await self.making.follow(tell)
            await self._settled.wait()
        if self.fault is not None:
            raise ValueError(self.fault)

    async def close(self) -> None:
        """Let what was taken be answered, and end."""
        if self.making is not None:
            self.making.stop()
        await self._opened.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The HTTP API, once there is one."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": FORBIDDEN, "reason": "questions go to /look"})
            return
        if self.models:
            await self.api(scope, receive, send)
            return
        told = JSONResponse({"error": self.fault or "the model is still being made"}, 503, {"Retry-After": "5"})
        await told(scope, receive, send)


def make_look_app(
    known: Known, settings: Settings, making: Making | None = None, page: Path | None = None
) -> Starlette:
    """The application that shows these models, or the one that is being made."""
    room = Room(settings, making)

    @asynccontextmanager
    async def living(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(room.make()) if making is not None else None
        if task is None:
            await room.open(known)
        yield
        await room.close()
        if task is not None:
            await task

    async def converse(socket: WebSocket) -> None:
        await socket.accept()
        await Talk(socket, room).go_on()

    routes: list[BaseRoute] = [
        WebSocketRoute("/look", converse),
        *_page_routes(page or page_folder()),
        Mount("/", room),
    ]
    door = Middleware(Door, names=settings.names, origins=settings.origins)
    return Starlette(routes=routes, middleware=[door], lifespan=living)


def _page_routes(folder: Path) -> list[BaseRoute]:
    """The page and what belongs to it."""
    index = folder / "index.html"

    async def page(request: Request) -> Response:
        if not index.is_file():
            return PlainTextResponse(UNBUILT, 503)
        return FileResponse(index, headers={**RULES, "Cache-Control": "no-cache"})

    found: list[BaseRoute] = [Route("/", page), Route("/index.html", page)]
    if (folder / "assets").is_dir():
        found.append(Mount("/assets", StaticFiles(directory=folder / "assets")))
    return found
