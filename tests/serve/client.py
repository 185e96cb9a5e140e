"""A server process, and a minimal HTTP client for it."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from tests.fork_server import forked_python

JSON = {"Content-Type": "application/json"}
SECONDS = 60
"""Time after which a test stops waiting, and fails."""


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A server process, and the port it listens on."""

    process: subprocess.Popen[bytes]
    port: int

    def request(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> Response:
        """Send a request over a new connection: a POST if it has a body, else a GET, unless `method` is given."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            verb = method or ("GET" if data is None else "POST")
            connection.request(verb, path, data, {**(JSON if data else {}), **headers})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, names, response.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Open a connection without sending anything."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def is_listening(self) -> bool:
        """Return whether connections are accepted. During shutdown a connection may be reset instead of refused."""
        try:
            self.connect().close()
        except (ConnectionRefusedError, ConnectionResetError):
            return False
        return True

    def send(self, body: dict[str, Any], path: str = "/translate") -> socket.socket:
        """Send a request without waiting for the response."""
        connection, data = self.connect(), json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}"
        connection.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + data)
        return connection

    def metric(self, name: str) -> float:
        """Return a metric of `/metrics`, summed over its labels."""
        lines = self.request("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0] == name)

    def wait_for(self, name: str, minimum: float) -> None:
        """Poll a metric until it reaches a value."""
        while self.metric(name) < minimum:
            pass

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    data = b""
    with connection:
        while chunk := connection.recv(65536):
            data += chunk
    return data


@contextmanager
def running_server(command: list[str], **environment: str) -> Iterator[Server]:
    """Start a server, wait until it is ready, and kill it at the end."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **environment})
    try:
        assert process.stderr is not None
        printed = b""
        while b"ready: " not in printed:
            line = process.stderr.readline()
            assert line, f"the server did not start: {printed.decode()}"
            printed = line
        yield Server(process, int(printed.split(b"http://127.0.0.1:")[1].split(b",")[0]))
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def serve_command(*arguments: str, python: str | None = None) -> list[str]:
    """Return a command that runs `regard serve` on a free port, by default in a forked process."""
    command = [python or forked_python(), "-m", "regard", "serve", *arguments]
    return [*command, "--port", "0", "--device", "cpu", "--workers", "2"]
