"""Run a real Chromium against a real server on localhost."""

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
from tests.conftest import ROOT, train_memorised

from regard.explore import model_info
from regard.recipe import load as load_recipe
from regard.run_files import RECIPE
from regard.serve.explorer import make_explorer_app, page_folder
from regard.serve.explorer_models import LoadedModels
from regard.serve.settings import ServerSettings
from regard.tasks import load

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed; it is in the extra dev")

Page, Browser = playwright.Page, playwright.Browser

PICTURES = ROOT / "build" / "browser"
"""Folder of the screenshots that every test takes at its end."""
PATIENCE = 60_000
"""Milliseconds to wait for something to appear, also on a busy machine."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


# Resolves when no weights are faded, after ten seconds at the latest.
OPAQUE = """() => new Promise((resolve) => {
    const end = performance.now() + 10000;
    const look = () => {
        const pairs = [...document.querySelectorAll('.pair')];
        const opaque = pairs.every((pair) => getComputedStyle(pair).opacity === '1');
        opaque || performance.now() > end ? resolve() : requestAnimationFrame(look);
    };
    look();
})"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start Chromium with an empty profile."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = next((path for path in map(shutil.which, names) if path), None)
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=executable, headless=True, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def memorised_arabic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that has memorised twenty Arabic sentences."""
    return train_memorised(tmp_path_factory.mktemp("runs") / "arabic", "ar")


@pytest.fixture(scope="session")
def models(memorised: Path, memorised_arabic: Path, memorised_text: Path) -> LoadedModels:
    """Load two translators and a language model that have memorised twenty sentences each."""
    if not (page_folder() / "index.html").is_file():
        pytest.skip("the page is not built here")
    runs = {"german": memorised, "arabic": memorised_arabic, "english": memorised_text}
    return {name: (load(run, "cpu"), model_info(load_recipe(run / RECIPE))) for name, run in runs.items()}


@contextmanager
def serving(models: LoadedModels, port: int = 0) -> Iterator[str]:
    """Serve the explorer until the context ends."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(make_explorer_app(models, ServerSettings()), ws="websockets-sansio", log_config=None)
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
def address(models: LoadedModels) -> Iterator[str]:
    """Return the address of a server with all models."""
    with serving(models) as url:
        yield url


@contextmanager
def opened(browser: Any, name: str = "", faults: tuple[str, ...] = (), **options: Any) -> Iterator[Any]:
    """Open a page in a new browser context; unexpected warnings and errors on its console are failures."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, **options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: console.append(str(error)))
    try:
        yield page
        if name:
            PICTURES.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURES / f"{name}.png")
    finally:
        context.close()
    assert [line for line in console if not any(fault in line for fault in faults)] == []


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Open a page for one test, and take a screenshot at its end."""
    with opened(browser, re.sub(r"\W+", "-", request.node.name).strip("-")) as window:
        yield window


def violations(page: Any) -> list[tuple[str, str]]:
    """Return the accessibility rules that a page violates, each with an element."""
    axe = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed; it is a development dependency of web/")
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.read_text(encoding="utf-8"))
    # Weights that are loading are faded, which is less contrast than axe asks for; what remains is a violation.
    # `wait_for_function` would evaluate a string in the page, which the content security policy forbids.
    found: list[Any] = []
    for _ in range(3):
        page.evaluate(OPAQUE)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((report) => report.violations)")
        if not found:
            break
    return [(violation["id"], violation["nodes"][0]["html"][:200]) for violation in found]
