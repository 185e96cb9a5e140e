"""A server process, and the plainest client there is."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

JSON = {"Content-Type": "application/json"}
SECONDS = 60
"""After which a test stops waiting for an answer, and fails."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A process that listens."""

    process: subprocess.Popen[bytes]
    port: int

    def ask(self, path: str, asked: Any = None, method: str | None = None, **headers: str) -> Answer:
        """One request on a connection of its own; with a body it is a POST unless told."""
        body = asked if isinstance(asked, bytes) or asked is None else json.dumps(asked).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            way = method or ("GET" if body is None else "POST")
            connection.request(way, path, body, {**(JSON if body else {}), **headers})
            said = connection.getresponse()
            return Answer(said.status, {name.lower(): value for name, value in said.getheaders()}, said.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def listens(self) -> bool:
        """Whether a connection is let in: who comes while the door closes is reset, who comes later refused."""
        try:
            self.connect().close()
        except (ConnectionRefusedError, ConnectionResetError):
            return False
        return True

    def send(self, asked: dict[str, Any]) -> socket.socket:
        """Ask for translations, and do not wait for the answer."""
        made, body = self.connect(), json.dumps(asked).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        made.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
        return made

    def figure(self, name: str) -> float:
        """A figure of `/metrics`, summed over its labels."""
        lines = self.ask("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0] == name)

    def until(self, name: str, least: float) -> None:
        """Look at a figure until it has come so far."""
        while self.figure(name) < least:
            pass

    def stop(self) -> int:
        """Ask it to end, and say how it did."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    with connection:
        while part := connection.recv(65536):
            found += part
    return found


@contextmanager
def started(command: list[str], **environment: str) -> Iterator[Server]:
    """A server that has said it is ready, while the context lasts."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **environment})
    try:
        assert process.stderr is not None
        said = b""
        while b"ready: " not in said:
            line = process.stderr.readline()
            assert line, f"it never was ready: {said.decode()}"
            said = line
        yield Server(process, int(said.split(b"http://127.0.0.1:")[1].split(b",")[0]))
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def command(*told: str) -> list[str]:
    """`regard serve`, on a port that is free."""
    return [sys.executable, "-m", "regard", "serve", *told, "--port", "0", "--device", "cpu", "--workers", "2"]
