"""`regard serve`: trained models behind an HTTP API."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.streams import existing

_WHO, _LIMITS, _MACHINE = "Who may ask", "How much", "Machine"

Runs = Annotated[list[str], typer.Argument(metavar="RUN…", help="Folders of trained runs; NAME=RUN gives one a name.")]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one of this machine.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any that is free.")]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="File with a token clients must show; or set REGARD_TOKEN.", rich_help_panel=_WHO
    ),
]
Origin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL", help="A web page's origin whose scripts may ask; none if not told.", rich_help_panel=_WHO
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="A name besides localhost that clients address it by; * is any.", rich_help_panel=_WHO
    ),
]
Characters = Annotated[int, typer.Option(min=1, help="Characters of a request.", rich_help_panel=_LIMITS)]
Sentences = Annotated[int, typer.Option(min=1, help="Lines of a request.", rich_help_panel=_LIMITS)]
Beam = Annotated[int, typer.Option(min=1, help="Hypotheses or samples of a line.", rich_help_panel=_LIMITS)]
Seconds = Annotated[float, typer.Option(min=0.1, help="Time a request may take.", rich_help_panel=_LIMITS)]
Waiting = Annotated[int, typer.Option(min=1, help="Lines that may wait for a model.", rich_help_panel=_LIMITS)]
Connections = Annotated[int, typer.Option(min=1, help="Connections at a time.", rich_help_panel=_LIMITS)]
Patience = Annotated[float, typer.Option(min=0.1, help="Seconds a client has to send.", rich_help_panel=_LIMITS)]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1; a GPU if there is one.", rich_help_panel=_MACHINE)]
Dtype = Annotated[Literal["auto", "float32", "bfloat16"], typer.Option(help="Number format.", rich_help_panel=_MACHINE)]
Quantize = Annotated[Literal["int8"] | None, typer.Option(help="Weights in 8 bits.", rich_help_panel=_MACHINE)]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Threads a model has on a CPU; one a core if not told.", rich_help_panel=_MACHINE),
]


def serve(
    runs: Runs,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    origin: Origin = None,
    allow_host: AllowHost = None,
    max_characters: Characters = 20_000,
    max_sentences: Sentences = 256,
    max_beam: Beam = 32,
    max_seconds: Seconds = 30.0,
    max_waiting: Waiting = 2048,
    max_connections: Connections = 512,
    patience: Patience = 10.0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantize: Quantize = None,
    workers: Workers = None,
) -> None:
    """Serve trained models over HTTP, each loaded once, until a signal comes.

    \b
    regard serve runs/phrasebook
    regard serve runs/phrasebook --port 8080 --token-file token.txt
    regard serve de=runs/en-de fr=runs/en-fr --host 0.0.0.0
    curl http://127.0.0.1:8000/translate --json '{"source": "I can go alone"}'

    It listens to this machine alone unless --host says otherwise. SIGTERM lets it answer what it has taken, and end.
    """
    keep_few_kernels()
    try:
        from regard.serve.server import listen
        from regard.serve.server import serve as run
        from regard.serve.settings import Limits, Settings
    except ModuleNotFoundError as error:
        raise ValueError(
            f"serving needs {error.name}, which is not installed; use: pip install 'regard[serve]'"
        ) from None
    from regard.models.fast.company import alone
    from regard.translator import load

    limits = Limits(max_characters, max_sentences, max_beam, max_seconds, max_waiting, max_connections, patience)
    settings = Settings(host, port, _token(token_file), tuple(origin or ()), limits, tuple(allow_host or ()))
    places = named(runs)
    with listen(host, port) as listening:
        with alone(1):  # so that no threads of OpenMP stay with this one, which the workers' would have to share with
            translators = {name: load(place, device, quantize or dtype) for name, place in places.items()}
        for translator in translators.values():
            translator.workers = workers or translator.workers
        run(translators, settings, listening)


def keep_few_kernels() -> None:
    """Let torch keep fewer of the kernels it makes for each size of a batch.

    Batches of a server have every size there is. Kept by the thousand, as torch does unless told before it is loaded,
    kernels took 900 MiB after ten thousand requests; so few, memory stays flat, for about a tenth more time.
    """
    for name, count in (("LRU_CACHE_CAPACITY", 128), ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", 256)):
        os.environ.setdefault(name, str(count))


def named(runs: list[str]) -> dict[str, str]:
    """Each run under its name: what stands before =, or the name of its folder."""
    found: dict[str, str] = {}
    for each in runs:
        name, told, place = each.partition("=")
        if not told or not place:
            name, place = Path(each).resolve().name, each
        if name in found:
            raise ValueError(f"two runs are named {name}: {found[name]} and {place}; name one, as in: other={place}")
        found[name] = place
    return found


def _token(file: str | None) -> str:
    """The token from a file or the environment; never from the command line, which everybody on a machine can read."""
    token = existing(file).read_text(encoding="utf-8") if file else os.environ.get("REGARD_TOKEN", "")
    token = token.strip()
    if file and not token:
        raise ValueError(f"{file} is empty; write a token into it, such as one of: openssl rand -hex 32")
    if not token.isascii() or any(each.isspace() for each in token):
        raise ValueError("a token is made of ASCII letters, digits and signs, without spaces; choose another")
    return token
