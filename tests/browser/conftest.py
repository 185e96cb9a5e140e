"""A real Chromium before a real server, and nothing between them but localhost."""

import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.conftest import ROOT, learned_by_heart

from regard.analysis.look import about
from regard.bundle import load_bundle
from regard.serve.look import Known, make_look_app, page_folder
from regard.serve.settings import Settings
from regard.translator import Translator

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed; it is in the extra dev")

Page, Browser = playwright.Page, playwright.Browser

PICTURES = ROOT / "build" / "browser"
"""Where every test leaves what it saw at its end."""
PATIENCE = 60_000
"""Milliseconds that something may take to appear, on cores that others use too."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium with an empty profile."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, headless=True, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def memorised_arabic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that knows twenty Arabic sentences by heart."""
    return learned_by_heart(tmp_path_factory.mktemp("runs") / "arabic", "ar")


@pytest.fixture(scope="session")
def models(memorised: Path, memorised_arabic: Path) -> Known:
    """A German and an Arabic model that know twenty sentences each."""
    if not (page_folder() / "index.html").is_file():
        pytest.skip("the page is not built here")
    return {"german": _opened(memorised), "arabic": _opened(memorised_arabic)}


def _opened(run: Path) -> tuple[Translator, Any]:
    bundle = load_bundle(run)
    return Translator.from_bundle(bundle), about(bundle.recipe)


@contextmanager
def serving(models: Known, port: int = 0) -> Iterator[str]:
    """A server of its own, as long as the context lasts."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(make_look_app(models, Settings()), ws="websockets-sansio", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="session")
def address(models: Known) -> Iterator[str]:
    """Where both models are shown."""
    with serving(models) as place:
        yield place


@contextmanager
def opened(browser: Any, name: str = "", faults: tuple[str, ...] = (), **told: Any) -> Iterator[Any]:
    """A window of a browser of its own; whatever its console complains of, but for what is foreseen, is a failure."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, **told)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield page
        if name:
            PICTURES.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURES / f"{name}.png")
    finally:
        context.close()
    assert [each for each in said if not any(fault in each for fault in faults)] == []


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A window for one test, whose last sight is kept."""
    with opened(browser, re.sub(r"\W+", "-", request.node.name).strip("-")) as window:
        yield window
