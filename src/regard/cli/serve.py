"""`regard serve`: serve trained models over HTTP."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.flags import Device, Dtype, Quantize, Workers
from regard.cli.streams import existing_file
from regard.serve.settings import ServerLimits, ServerSettings

if TYPE_CHECKING:
    from regard.serve.languages import ModelLanguages

_ACCESS, _LIMITS, _LOG = "Access", "Limits", "Log"
_DEFAULT = ServerLimits()

Runs = Annotated[list[str], typer.Argument(metavar="RUN", help="Folders of trained runs; NAME=RUN sets a name.")]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all addresses of this machine.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free port.")]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="File with a token that clients must send; or set REGARD_TOKEN.",
        rich_help_panel=_ACCESS,
    ),
]
Origin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL", help="Origin of web pages that may send requests. Default: none.", rich_help_panel=_ACCESS
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Host name that clients may use, besides localhost and this machine's; * is any.",
        rich_help_panel=_ACCESS,
    ),
]
AccessLog = Annotated[
    Literal["json"] | None,
    typer.Option(
        help="Write one JSON object per request to stdout: route, status, duration, counts; no text.",
        rich_help_panel=_LOG,
    ),
]
Languages = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PAIR",
        help="Languages of a model for LibreTranslate clients, as en-de or NAME=en-de. Default: from its recipe.",
    ),
]
Characters = Annotated[int, typer.Option(min=1, help="Maximum characters per request.", rich_help_panel=_LIMITS)]
Sentences = Annotated[int, typer.Option(min=1, help="Maximum lines per request.", rich_help_panel=_LIMITS)]
Beam = Annotated[int, typer.Option(min=1, help="Maximum beam width, or samples, per line.", rich_help_panel=_LIMITS)]
Tokens = Annotated[int, typer.Option(min=1, help="Maximum tokens of a chatbot's reply.", rich_help_panel=_LIMITS)]
Seconds = Annotated[float, typer.Option(min=0.1, help="Maximum seconds per request.", rich_help_panel=_LIMITS)]
Waiting = Annotated[int, typer.Option(min=1, help="Maximum lines in the queue of a model.", rich_help_panel=_LIMITS)]
Connections = Annotated[int, typer.Option(min=1, help="Maximum number of connections.", rich_help_panel=_LIMITS)]
ReadTimeout = Annotated[
    float,
    typer.Option(
        "--read-timeout",
        "--patience",
        min=0.1,
        help="Maximum seconds a client may take to send its headers, and its body.",
        rich_help_panel=_LIMITS,
    ),
]
WriteTimeout = Annotated[
    float,
    typer.Option(
        min=0.1, help="Maximum seconds a client may take to read 64 KiB of a response.", rich_help_panel=_LIMITS
    ),
]
DrainSeconds = Annotated[float, typer.Option(min=0, help="Seconds after SIGTERM in which requests are still accepted.")]


def serve(
    runs: Runs,
    host: Host = ServerSettings.host,
    port: Port = ServerSettings.port,
    languages: Languages = None,
    token_file: TokenFile = None,
    origin: Origin = None,
    allow_host: AllowHost = None,
    max_characters: Characters = _DEFAULT.characters,
    max_sentences: Sentences = _DEFAULT.sentences,
    max_beam: Beam = _DEFAULT.beam,
    max_tokens: Tokens = _DEFAULT.tokens,
    max_seconds: Seconds = _DEFAULT.seconds,
    max_waiting: Waiting = _DEFAULT.waiting,
    max_connections: Connections = _DEFAULT.connections,
    read_timeout: ReadTimeout = _DEFAULT.read_timeout,
    access_log: AccessLog = None,
    write_timeout: WriteTimeout = _DEFAULT.write_timeout,
    drain_seconds: DrainSeconds = ServerSettings.drain_seconds,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantize: Quantize = None,
    workers: Workers = None,
) -> None:
    """Serve trained models over HTTP, until Ctrl-C or SIGTERM.

    \b
    regard serve runs/phrasebook
    regard serve runs/phrasebook --port 8080 --token-file token.txt
    regard serve de=runs/en-de fr=runs/en-fr --host 0.0.0.0
    curl http://127.0.0.1:8000/translate --json '{"source": "I can go alone"}'
    curl http://127.0.0.1:8000/classify --json '{"text": "we liked the food"}'
    curl http://127.0.0.1:8000/chat --json '{"history": ["I am Anna.", "Hello Anna.", "Who am I?"]}'

    Only this machine can connect, unless --host says otherwise.
    On SIGTERM it reports for some seconds that it is stopping, finishes accepted requests and exits.
    """
    limit_kernel_caches()
    try:
        from regard.serve.languages import parse_languages
        from regard.serve.server import listen
        from regard.serve.server import serve as run
    except ModuleNotFoundError as error:
        raise missing_extra("regard serve", error) from None
    counts = max_characters, max_sentences, max_beam, max_tokens, max_seconds, max_waiting, max_connections
    limits = ServerLimits(*counts, read_timeout, write_timeout)
    token, origins, hosts = read_token(token_file), tuple(origin or ()), tuple(allow_host or ())
    settings = ServerSettings(host, port, token, origins, limits, hosts, access_log == "json", drain_seconds)
    folders = named_runs(runs)
    given = parse_languages(languages or (), list(folders))
    with listen(host, port) as listener:
        predictors = _load_predictors(folders, device, quantize or dtype, workers)
        run(predictors, settings, listener, {**_recipe_languages(folders), **given})


def _load_predictors(folders: dict[str, str], device: str, precision: str, workers: int | None) -> "dict[str, Any]":
    from regard.engines.thread_sharing import single_threaded
    from regard.predict import Chatbot, Translator
    from regard.tasks import load

    with single_threaded(1):  # no OpenMP threads may stay with this thread, or the workers would compete with them
        predictors = {name: load(folder, device, precision) for name, folder in folders.items()}
    for predictor in predictors.values():
        if isinstance(predictor, Translator | Chatbot):
            predictor.workers = workers or predictor.workers
    return predictors


def _recipe_languages(folders: dict[str, str]) -> "ModelLanguages":
    """Return the languages of models, as far as their recipes name them."""
    from regard.bundle import load_bundle_recipe
    from regard.run_path import find_run
    from regard.serve.languages import recipe_languages

    return {name: recipe_languages(load_bundle_recipe(find_run(folder).folder)) for name, folder in folders.items()}


def limit_kernel_caches() -> None:
    """Limit how many kernels torch and oneDNN cache. Call it before torch is imported.

    They cache a kernel for every shape of a batch, and the batches of a server have all shapes. With default limits
    the kernels took 900 MiB after ten thousand requests. With these limits memory stays constant, for about 10 % more
    time.
    """
    for name, count in (("LRU_CACHE_CAPACITY", 128), ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", 256)):
        os.environ.setdefault(name, str(count))


def missing_extra(command: str, error: ModuleNotFoundError) -> ValueError:
    """Return the error for a command whose optional dependencies are not installed."""
    return ValueError(f"{command} needs {error.name}, which is not installed; run: pip install 'regard[serve]'")


def named_runs(runs: list[str]) -> dict[str, str]:
    """Return the folders of runs by name: the name before `=`, or that of the folder."""
    folders: dict[str, str] = {}
    for run in runs:
        name, equals, folder = run.partition("=")
        if not equals or not folder:
            name, folder = Path(run).resolve().name, run
        if name in folders:
            raise ValueError(
                f"two runs are named {name}: {folders[name]} and {folder}; rename one, as in: other={folder}"
            )
        folders[name] = folder
    return folders


def read_token(file: str | None) -> str:
    """Read the token from a file or the environment; not from the command line, which other users can see."""
    token = existing_file(file).read_text(encoding="utf-8") if file else os.environ.get("REGARD_TOKEN", "")
    token = token.strip()
    if file and not token:
        raise ValueError(f"{file} is empty; write a token into it, for example with: openssl rand -hex 32 > {file}")
    if not token.isascii() or any(character.isspace() for character in token):
        raise ValueError("a token consists of printable ASCII characters without spaces; choose another one")
    return token
