"""The explorer's server: its page, its WebSocket, and the HTTP API of `regard serve` for the same models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from regard.serve.explorer_login import ExplorerLoginMiddleware
from regard.serve.explorer_models import BackgroundTraining, ExplorerModels, LoadedModels
from regard.serve.explorer_socket import ExplorerSession
from regard.serve.origins import OriginCheckMiddleware
from regard.serve.request_context import RequestContextMiddleware
from regard.serve.settings import ServerSettings

PAGE_MISSING = (
    "The explorer's page is not built. `pip install .` in a checkout of regard builds it, unless REGARD_WITHOUT_PAGE "
    "is set; this takes Node.js 20.19 or newer, which pip fetches if the machine has none. The HTTP API works without "
    "the page: see /docs."
)
PAGE_HEADERS = {
    # The page loads everything from this server; a figure to save is a blob, an icon is a data URL.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page_folder() -> Path:
    """Return the folder of the built page."""
    return Path(str(files("regard") / "web" / "page"))


def make_explorer_app(
    models: LoadedModels, settings: ServerSettings, training: BackgroundTraining | None = None, page: Path | None = None
) -> Starlette:
    """Create the ASGI application of the explorer.

    Args:
        models: Models to show; ignored with a training.
        settings: Access control and limits.
        training: Trains the one model to show in the background.
        page: Folder of the built page. Default: the one installed with the package.
    """
    shown = ExplorerModels(settings, training)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(shown.train()) if training is not None else None
        if task is None:
            await shown.open(models)
        yield
        await shown.close()
        if task is not None:
            await task

    async def on_websocket(socket: WebSocket) -> None:
        await socket.accept()
        await ExplorerSession(socket, shown).run()

    routes: list[BaseRoute] = [
        WebSocketRoute("/look", on_websocket),
        *_page_routes(page or page_folder()),
        Mount("/", shown),
    ]
    middleware = [Middleware(RequestContextMiddleware)]
    middleware.append(Middleware(OriginCheckMiddleware, hosts=settings.allowed_hosts, origins=settings.origins))
    if settings.token:
        timeout = settings.limits.read_timeout
        middleware.append(Middleware(ExplorerLoginMiddleware, token=settings.token, read_timeout=timeout))
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


def _page_routes(folder: Path) -> list[BaseRoute]:
    """Return the routes of the page and its assets."""
    index = folder / "index.html"

    async def page(request: Request) -> Response:
        if not index.is_file():
            return PlainTextResponse(PAGE_MISSING, 503)
        return FileResponse(index, headers={**PAGE_HEADERS, "Cache-Control": "no-cache"})

    routes: list[BaseRoute] = [Route("/", page), Route("/index.html", page)]
    if (folder / "assets").is_dir():
        routes.append(Mount("/assets", StaticFiles(directory=folder / "assets")))
    return routes
