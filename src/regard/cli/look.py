"""`regard look`: explore trained models in the browser."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.flags import Device
from regard.cli.serve import AllowHost, Host, TokenFile, limit_kernel_caches, missing_extra, named_runs, read_token
from regard.serve.settings import ServerSettings

if TYPE_CHECKING:
    import socket

    from regard.explore import ExploredPredictor, ModelInfo

PORT = 8017
PORTS_TRIED = 20
"""Number of ports to try, from `PORT` on, when the user names none."""

Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Folders of trained runs; NAME=RUN sets a name."),
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help=f"Port to listen on. Default: {PORT}, or the next free one.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address only; do not open a browser.")]


def look(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = None,
    no_browser: NoBrowser = False,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    device: Device = "auto",
) -> None:
    """Explore trained models in the browser: attention, candidates, beam search, and what-if changes.

    \b
    regard look runs/phrasebook
    regard look runs/shakespeare
    regard look runs/en-de ar=runs/en-ar
    regard look --port 8080 --no-browser

    A run is a translation model, a language model, a classifier or a chatbot.
    Without a run, a small model is trained once on generated sentences, and the page shows its progress.
    Only this machine can connect, unless --host says otherwise; then require a token. Ctrl-C stops the server.
    """
    from regard.cli.demo import demo_recipe

    limit_kernel_caches()
    try:
        from regard.serve.explorer import make_explorer_app
        from regard.serve.explorer_models import BackgroundTraining, training_folder
        from regard.serve.server import log_line, run, url
    except ModuleNotFoundError as error:
        raise missing_extra("regard look", error) from None

    folders = named_runs(runs or [])
    settings = ServerSettings(host, token=read_token(token_file), hosts=tuple(allow_host or ()), drain_seconds=0)
    with open_listener(host, port) as listener:
        training = None
        if not folders:
            recipe = demo_recipe("de")
            training = BackgroundTraining(recipe, training_folder(recipe), device)
        models = {name: _load(folder, device) for name, folder in folders.items()}
        app = make_explorer_app(models, settings, training)
        address = url(listener).replace("//0.0.0.0:", "//127.0.0.1:")

        def on_ready() -> None:
            log_line(f"ready: {', '.join(folders) or 'a small model, trained on first use'} on {address}, until Ctrl-C")
            if not no_browser:
                _open_browser(address)

        run(app, settings, listener, on_ready, websockets=True)
    log_line("stopped")


def _load(folder: str, device: str) -> "tuple[ExploredPredictor, ModelInfo]":
    """Load a trained run of any task that the explorer shows, and what its recipe says about its languages."""
    from regard.explore import Explorer, model_info
    from regard.tasks import load_bundle, make_task

    bundle = load_bundle(folder, device)
    predictor = make_task(bundle.recipe).predictor(bundle)
    Explorer({folder: predictor})  # raises a `ValueError` for a task that the explorer does not show
    return predictor, model_info(bundle.recipe, folder)


def open_listener(host: str, port: int | None) -> "socket.socket":
    """Return a socket bound to a port; without one, to the first free port from `PORT` on."""
    from regard.serve.server import PortInUseError, listen

    if port is not None:
        return listen(host, port)
    for candidate in range(PORT, PORT + PORTS_TRIED):
        try:
            return listen(host, candidate)
        except PortInUseError:
            continue
    raise ValueError(f"no port from {PORT} to {PORT + PORTS_TRIED - 1} is free; choose one with --port")


def _open_browser(address: str) -> None:
    """Open the page in a browser, if this machine has a display."""
    import os
    import sys
    import threading
    import webbrowser

    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if has_display:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
