"""A command in a pseudo-terminal, as a user sees it."""

import codecs
import os
import re
import select
import subprocess
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from tests.fork_server import forked_python

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\x01\x02\x07]")
"""Escape sequences of styles and of readline, and other characters without a column."""
PATIENCE = 60.0


class PseudoTerminal:
    """A pseudo-terminal with `regard` in it."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process, self.master = process, master
        self.slave: int | None = slave
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.raw = ""
        self.pending = ""

    def type(self, text: str | bytes) -> None:
        """Press keys; `\\r` is the key Enter."""
        data = text.encode() if isinstance(text, str) else text
        while data:
            # A terminal holds few keys: what it answers must be read before it takes more.
            readable, writable, _ = select.select([self.master], [self.master], [], PATIENCE)
            assert readable or writable
            if readable:
                self._receive()
            if writable:
                data = data[os.write(self.master, data[:1000]) :]

    def read_until(self, expected: str) -> str:
        """Return what is shown from the last call on until after this text, without escape sequences."""
        shown = self._wait_for(expected, PATIENCE)
        assert shown is not None, f"no {expected!r} in {self.pending!r}"
        return shown

    def interrupt(self, expected: str) -> str:
        """Press Ctrl-C until a text is shown, and return what is shown until after it.

        In CPython, a signal that arrives while readline handles a key has no effect until the next signal.
        """
        self.type("\x03")
        for _ in range(20):
            if (shown := self._wait_for(expected, PATIENCE / 20)) is not None:
                return shown
            self.type("\x03")
        raise AssertionError(f"no {expected!r} in {self.pending!r}")

    def _wait_for(self, expected: str, seconds: float) -> str | None:
        deadline = monotonic() + seconds
        while (shown := SEQUENCE.sub("", self.pending)).find(expected) < 0:
            readable, _, _ = select.select([self.master], [], [], max(0.0, deadline - monotonic()))
            if not readable:
                return None
            assert self._receive(), f"the terminal was closed without {expected!r} in {shown!r}"
        end = shown.find(expected) + len(expected)
        self.pending = shown[end:]
        return shown[:end]

    def ask(self, line: str) -> str:
        """Type a line, and return what is shown between it and the next prompt."""
        self.type(f"{line}\r")
        shown = self.read_until("you> ")
        return shown.partition("\n")[2].removesuffix("you> ")

    def resize(self, columns: int) -> None:
        """Change the width of the window."""
        termios.tcsetwinsize(self.master, (24, columns))

    def wait(self) -> int:
        """Return the exit code of the command."""
        while self._receive():
            pass
        return self.process.wait(PATIENCE)

    def _receive(self) -> bool:
        """Read what has arrived; return false if the command has closed the terminal."""
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO
            data = b""
        if self.slave is not None:
            os.close(self.slave)  # not before the command has opened it, which would look like its end
            self.slave = None
        text = self.decoder.decode(data, final=not data)
        self.raw += text
        self.pending += text
        return bool(data)


@contextmanager
def pseudo_terminal(
    *arguments: str, environment: Mapping[str, str] | None = None, redirect: str = ""
) -> Iterator[PseudoTerminal]:
    """Run `regard` with arguments in a terminal of 80 columns.

    Args:
        *arguments: The arguments.
        environment: Environment variables; the terminal is an xterm in which colours are allowed.
        redirect: Redirections of a shell, such as `2> file`.
    """
    master, slave = os.openpty()
    termios.tcsetwinsize(master, (24, 80))
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    # The first terminal that the leader of a session opens is the one whose keys send it signals.
    script = f'exec "$@" <> "$0" >&0 2>&0 {redirect}'
    process = subprocess.Popen(
        ["/bin/sh", "-c", script, os.ttyname(slave), forked_python(), "-m", "regard", *arguments],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**variables, "TERM": "xterm", **(environment or {})},
    )
    terminal = PseudoTerminal(process, master, slave)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        for descriptor in (master, terminal.slave):
            if descriptor is not None:
                os.close(descriptor)
