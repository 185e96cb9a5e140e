"""Start Python processes in half a second, by forking a process that has imported torch and other libraries.

A new process that imports torch, pydantic and the other libraries computes for three to five seconds before it does
anything. `forked_python()`, and the command `regard` in the folder `forked_commands()`, start a process with streams,
signals and an exit code of its own, but with these libraries. Nothing of `regard` is among them: a forked process
imports it anew.

It has the arguments, working directory, environment, streams and warning filters of its command. It differs from a new
interpreter in three ways. Libraries have already read their environment variables: so the server declines a command
with another value of a variable that is not in `CHANGEABLE`, and a new interpreter runs it, as it does with other
resource limits or other options of Python than `-W error`. Processes of one server share the seed of hashes. A signal
passes through the server, so it may arrive after the end of the input that was closed later. Tests of imports, threads
and memory, and tests that compare the results of two processes, start `sys.executable`.
"""

import atexit
import gc
import importlib
import marshal
import os
import resource
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.fork_client import FORWARDED, LIMITS

LIBRARIES = ["torch._dynamo", "torch.distributed.checkpoint", "torch.nn.attention.flex_attention"]
LIBRARIES += ["torch.utils.flop_counter", "torch.utils.tensorboard", "safetensors.torch", "jaxtyping", "numpy"]
LIBRARIES += ["pydantic", "sentencepiece", "sacrebleu", "typer", "rich.progress", "rich.live", "tomli_w"]
LIBRARIES += ["matplotlib.figure", "fastapi", "uvicorn", "websockets.server", "prometheus_client"]
CHANGEABLE = {b"PATH", b"HOME", b"PWD", b"OLDPWD", b"SHLVL", b"_", b"TMPDIR", b"XDG_CACHE_HOME", b"COLUMNS", b"LINES"}
CHANGEABLE |= {b"TERM", b"NO_COLOR"}
CHANGEABLE |= {b"PYTEST_CURRENT_TEST", b"PYTHON_EXEC", b"TORCH_NCCL_ASYNC_ERROR_HANDLING"}
CHANGEABLE |= {b"MASTER_ADDR", b"MASTER_PORT", b"WORLD_SIZE", b"RANK", b"LOCAL_RANK", b"LOCAL_WORLD_SIZE"}
CHANGEABLE |= {b"GROUP_RANK", b"GROUP_WORLD_SIZE", b"ROLE_NAME", b"ROLE_RANK", b"ROLE_WORLD_SIZE"}
# Set by torch itself, and by `regard serve`: in the process of the tests if they call it there. They matter for memory.
CHANGEABLE |= {b"TORCHINDUCTOR_CACHE_DIR", b"LRU_CACHE_CAPACITY", b"ONEDNN_PRIMITIVE_CACHE_CAPACITY"}
PREFIXES = (b"REGARD_", b"TORCHELASTIC_")
"""Variables, and beginnings of their names, that may differ from the server's. No library reads them when imported."""
STREAMS = ("stdin", "stdout", "stderr")


class Request(NamedTuple):
    """A command, as `fork_client.py` sends it."""

    arguments: tuple[str, ...]
    folder: str
    environment: dict[bytes, bytes]
    limits: list[tuple[int, int]]
    ignored: list[int]
    closed: list[int]


class Child(NamedTuple):
    """A forked process, a descriptor that becomes readable when it ends, and the connection to the client."""

    pid: int
    pidfd: int
    connection: socket.socket


@cache
def forked_commands() -> Path:
    """Start a server that ends with this process, and return a folder with its commands `python` and `regard`."""
    python = Path(sys.executable)
    if not hasattr(os, "pidfd_open"):  # only Linux has it
        return python.parent
    folder = Path(tempfile.mkdtemp(prefix="regard-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, script in (("python", ()), ("regard", (python.with_name("regard"),))):
        client = [python, "-IS", Path(__file__).with_name("fork_client.py"), folder / "socket", *script]
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(map(str, client))} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        server = subprocess.Popen(
            [python, "-W", "error", "-m", "tests.fork_server", str(listener.fileno())],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    atexit.register(server.communicate)  # the end of its standard input ends the server
    return folder


def forked_python() -> str:
    """Return a command like `sys.executable` that forks instead of starting an interpreter."""
    return str(forked_commands() / "python")


class ForkServer:
    """Forks a process for each request, passes signals on to it, and tells the client how it ended."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.variables = fixed_variables(os.environb)  # before an import changes them
        self.limits = [resource.getrlimit(number) for number in LIMITS]
        self.children: list[Child] = []
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        self.selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Return the request of a forked process in that process, and None at the end of standard input."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is sys.stdin:
                    for child in self.children:
                        os.kill(child.pid, signal.SIGKILL)
                    self.listener.close()
                    return None
                if key.fileobj is self.listener:
                    if request := self.accept():
                        return request
                elif key.data in self.children:  # it may have been removed in this loop
                    if key.fileobj == key.data.pidfd:
                        self.report(key.data)
                    else:
                        self.pass_signals(key.data)

    def accept(self) -> Request | None:
        """Fork for a request, unless only a new interpreter can run it, and return the request in the new process."""
        connection = self.listener.accept()[0]
        request, streams = receive(connection)
        if request is None or not self.can_run(request):
            with suppress(OSError):
                connection.sendall(b"n")
            connection.close()
        elif pid := os.fork():
            child = Child(pid, os.pidfd_open(pid), connection)
            self.children.append(child)
            self.selector.register(child.pidfd, selectors.EVENT_READ, child)
            self.selector.register(connection, selectors.EVENT_READ, child)
            with suppress(OSError):
                connection.sendall(b"y")
        else:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for descriptor in (*streams, *(child.pidfd for child in self.children)):
                os.close(descriptor)
            self.selector.close()
            for opened in (self.listener, connection, *(child.connection for child in self.children)):
                opened.close()
            return request
        for stream in streams:
            os.close(stream)
        return None

    def can_run(self, request: Request) -> bool:
        """Return whether a forked process runs a command as a new interpreter would."""
        match split_arguments(request.arguments):
            case _, ["-m" | "-c", _, *_]:
                known = True
            case _, [file, *_]:
                known = file.startswith("/")
            case _:
                known = False
        same = (fixed_variables(request.environment), request.limits) == (self.variables, self.limits)
        return known and same

    def pass_signals(self, child: Child) -> None:
        """Send a process the signals of its client, and kill it if the client has ended."""
        for number in child.connection.recv(100) or [signal.SIGKILL]:
            os.kill(child.pid, number)

    def report(self, child: Child) -> None:
        """Tell the client how its process ended."""
        _, status = os.waitpid(child.pid, 0)
        with suppress(OSError):
            child.connection.sendall(struct.pack("=i", status))
        self.children.remove(child)
        self.selector.unregister(child.pidfd)
        self.selector.unregister(child.connection)
        os.close(child.pidfd)
        child.connection.close()


def receive(connection: socket.socket) -> tuple[Request | None, list[int]]:
    """Return a request and the standard streams of the client; None if the client has ended."""
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    size, data = struct.unpack("=I", head)[0] if len(head) == 4 else 0, b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None, streams
        data += part
    return (Request(*marshal.loads(data)) if data else None), streams


def split_arguments(arguments: tuple[str, ...]) -> tuple[bool, list[str]]:
    """Return whether the arguments of Python start with `-W error`, and the other arguments."""
    errors = arguments[:2] == ("-W", "error")
    return errors, list(arguments[2 * errors :])


def fixed_variables(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that libraries may have read when they were imported."""
    return {
        name: value for name, value in environment.items() if name not in CHANGEABLE and not name.startswith(PREFIXES)
    }


def run(request: Request) -> None:
    """Run a command as a new interpreter would."""
    importlib.import_module("numpy").random.seed()  # the fork seeds Python's own generator, but not this one
    importlib.invalidate_caches()
    os.chdir(request.folder)
    os.environ.clear()
    os.environb.update(request.environment)
    for number in FORWARDED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request.ignored else default)
    for stream in request.closed:
        os.close(stream)
        setattr(sys, STREAMS[stream], None)
        setattr(sys, f"__{STREAMS[stream]}__", None)
    errors, words = split_arguments(request.arguments)
    if not errors:
        sys.warnoptions.clear()
        warnings.filters.remove(("error", None, Warning, None, 0))  # type: ignore[attr-defined]
        warnings.simplefilter("default", append=True)  # changes nothing, but makes the change above take effect
    match words:
        case ["-m", name, *arguments]:
            sys.argv, sys.path[0] = [name, *arguments], request.folder
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case ["-c", program, *arguments]:
            sys.argv, sys.path[0] = ["-c", *arguments], ""
            sys.modules["__main__"] = module = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), module.__dict__)
        case [file, *_]:
            sys.argv, sys.path[0] = words, str(Path(file).parent)
            runpy.run_path(file, run_name="__main__")


def main(descriptor: int) -> None:
    """Import the libraries, and fork a process for each command."""
    server = ForkServer(socket.socket(fileno=descriptor))
    for library in LIBRARIES:
        importlib.import_module(library)
    assert len(list(Path("/proc/self/task").iterdir())) == 1  # a forked process would lack the threads of a library
    gc.collect()
    gc.freeze()
    if request := server.serve():
        if "triton" in sys.modules:
            # Triton complains about objects that exist when the process ends, and frozen ones are never collected.
            atexit.register(gc.unfreeze)
        run(request)


if __name__ == "__main__":
    main(int(sys.argv[1]))
