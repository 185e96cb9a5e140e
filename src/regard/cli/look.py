"""`regard look`: a trained model in the browser, live."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import socket

    from regard.analysis.look import About
    from regard.translator import Translator

PORT = 8017
TRIED = 20
"""Ports after the usual one that are tried where it is taken."""

Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN]...", help="Folders of trained runs; NAME=RUN gives one a name."),
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one of this machine.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help=f"Port to listen on; {PORT} or the next free one if not told.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name besides this machine's own by which browsers may address it; * is any."),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Open no browser; the address is printed anyway.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1; a GPU if there is one.")]


def look(
    runs: Runs = None,
    host: Host = "127.0.0.1",
    port: Port = None,
    no_browser: NoBrowser = False,
    allow_host: AllowHost = None,
    device: Device = "auto",
) -> None:
    """Look at trained models in the browser: where they look, what they consider, what if it were otherwise.

    \b
    regard look runs/phrasebook
    regard look runs/en-de ar=runs/en-ar
    regard look --port 8080 --no-browser

    Without a run, a small model is trained on sentences that come with the package, once, while the page shows how far
    it is. Everything stays on this machine unless --host says otherwise. Ctrl-C ends it.
    """
    from regard.cli.demo import demo_recipe
    from regard.cli.serve import keep_few_kernels, named

    keep_few_kernels()
    try:
        from regard.serve.look import make_look_app
        from regard.serve.look_making import Making, kept_at
        from regard.serve.server import address, run, say
        from regard.serve.settings import Settings
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the explorer needs {error.name}, which is not installed; use: pip install 'regard[serve]'"
        ) from None

    places = named(runs or [])
    settings = Settings(host, hosts=tuple(allow_host or ()))
    with listening_on(host, port) as listening:
        making = None
        if not places:
            recipe = demo_recipe("de")
            making = Making(recipe, kept_at(recipe), device)
        app = make_look_app({name: _opened(place, device) for name, place in places.items()}, settings, making)
        place = address(listening).replace("//0.0.0.0:", "//127.0.0.1:")

        def ready() -> None:
            say(f"ready: {', '.join(places) or 'a small model, made on first use'} on {place}, until Ctrl-C")
            if not no_browser:
                _open_browser(place)

        run(app, settings, listening, ready, sockets=True)
    say("stopped")


def _opened(place: str, device: str) -> "tuple[Translator, About]":
    """A trained run, and what its recipe tells of its text."""
    from regard.analysis.look import about
    from regard.bundle import find_device, load_bundle
    from regard.translator import Translator

    bundle = load_bundle(place, find_device(device))
    return Translator.from_bundle(bundle), about(bundle.recipe, place)


def listening_on(host: str, port: int | None) -> "socket.socket":
    """A socket on the port that was told, or on the first free one from the usual on."""
    from regard.serve.server import listen

    if port is not None:
        return listen(host, port)
    for each in range(PORT, PORT + TRIED):
        try:
            return listen(host, each)
        except ValueError as error:
            if "another program" not in str(error):
                raise
    raise ValueError(f"no port from {PORT} to {PORT + TRIED - 1} is free; choose one with --port")


def _open_browser(place: str) -> None:
    """Show the page, where there is a screen to show it on."""
    import os
    import sys
    import threading
    import webbrowser

    windows = sys.platform in ("darwin", "win32") or any(
        os.environ.get(each) for each in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if windows:
        threading.Thread(target=webbrowser.open, args=(place,), daemon=True).start()
