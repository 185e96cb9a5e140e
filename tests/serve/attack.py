"""Attack a server with a random mixture of good, malformed, slow, unread and aborted requests.

    python -m tests.serve.attack RUN --actions 20000

The server must be one of `regard look`, which has the HTTP API and a WebSocket. Every good request must get the right
answer, and none the status 500.
"""

import argparse
import json
import os
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.serve.client import Server, running_server

from regard.explore import read_frame
from regard.tasks import load_translator

CLIENTS = 8
KEPT = 6
"""Connections that each client leaves open without reading or completing a request."""
JUNK: tuple[bytes, ...] = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGARBAGE\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
    b"\r\n" * 50,
)
INVALID: tuple[bytes, ...] = (
    b"{",
    b'{"source": "\xff"}',
    b'{"source": []}',
    b'{"source": "x", "beam": 33}',
    b'{"source": "x", "' + b"y" * 500 + b'": 1}',
    json.dumps({"source": "\ufdfa" * 6000}).encode(),
)
FRAMES: tuple[bytes, ...] = (
    b"\x81\x84\x00\x00\x00\x00\xff\xfe\xfd\xfc",  # text that is not UTF-8
    b"\x81\x02{}",  # without a mask
    b"\xf3\x80\x00\x00\x00\x00",  # an unknown opcode
    b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",  # a length of 2**63
    b"\x88\x80\x00\x00\x00\x00",  # close
    b"\x01\x81\x00\x00\x00\x00{",  # a message that never ends
)
UPGRADE = (
    b"GET /look HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"beam": 1}, {"beam": 4, "nbest": 2}, {"coverage_penalty": 0.2})


class Attacker:
    """One client, with random actions of its own."""

    def __init__(self, server: Server, expected: dict[tuple[str, int], str], seed: int) -> None:
        """Attack a server whose right translations are known, by line and number of the options."""
        self.server, self.expected, self.random = server, expected, Random(seed)
        self.cases = list(expected)
        self.done: Counter[str] = Counter()
        self._kept: deque[socket.socket] = deque()
        self._actions: list[Callable[[], None]] = [
            *[self.translate, self.translate, self.stream, self.half_close, self.check_health, self.count_tokens],
            *[self.send_junk, self.send_invalid, self.leave_early, self.send_slowly, self.do_not_read],
            *[self.ask_websocket, self.send_frames, self.ask_chatbot],
        ]

    def run(self, actions: int) -> None:
        """Do a number of random actions."""
        for _ in range(actions):
            action = self.random.choice(self._actions)
            action()
            self.done[action.__name__] += 1
        while self._kept:
            self._kept.pop().close()

    def _case(self) -> tuple[dict[str, Any], str]:
        case = self.random.choice(self.cases)
        return {"source": case[0], **OPTIONS[case[1]]}, self.expected[case]

    def _keep(self, connection: socket.socket) -> None:
        self._kept.append(connection)
        if len(self._kept) > KEPT:
            self._kept.popleft().close()

    def translate(self) -> None:
        """Request a translation."""
        body, text = self._case()
        response = self.server.request("/translate", body)
        assert response.status == 200, response
        assert response.json["translations"][0]["text"] == text

    def stream(self) -> None:
        """Request a translation token by token."""
        body, text = self._case()
        response = self.server.request("/translate", {**body, "stream": True})
        assert response.status == 200, response
        assert json.loads(response.body.splitlines()[-1])["translation"]["text"] == text

    def half_close(self) -> None:
        """Request a translation, and close the own side."""
        body, text = self._case()
        connection = self.server.send(body)
        connection.shutdown(socket.SHUT_WR)
        response = _read(connection)
        assert b"HTTP/1.1 200 " in response, response
        assert json.loads(response.split(b"\r\n\r\n")[-1])["translations"][0]["text"] == text

    def check_health(self) -> None:
        """Ask whether the server is ready."""
        assert self.server.request("/health").status == 200

    def count_tokens(self) -> None:
        """Request the tokens of a line."""
        body, _ = self._case()
        response = self.server.request("/tokens", {"source": body["source"]})
        assert response.status == 200, response
        assert response.json["lines"][0][-1]["end"] == len(body["source"])

    def send_invalid(self) -> None:
        """Send a request that is not valid."""
        body = self.random.choice(INVALID)
        response = self.server.request("/translate", body)
        assert response.status == 422, (body[:60], response)

    def ask_chatbot(self) -> None:
        """Request a reply from a server that has no chatbot."""
        messages = [{"role": "user", "content": self._case()[0]["source"]}]
        body = {"messages": messages, "stream": self.random.random() < 0.5}
        response = self.server.request("/v1/chat/completions", body)
        assert response.status == 404, response
        assert "answer /translate" in response.json["error"]["message"]

    def send_junk(self) -> None:
        """Send bytes that are not HTTP, or not all of them."""
        connection = self.server.connect()
        with suppress(ConnectionError):
            connection.sendall(self.random.choice(JUNK))
            connection.shutdown(socket.SHUT_WR)
        assert b" 500 " not in _read(connection)[:40]

    def leave_early(self) -> None:
        """Request a translation, and disconnect."""
        self.server.send({**self._case()[0], "stream": self.random.random() < 0.5}).close()

    def send_slowly(self) -> None:
        """Send a part of a request, and keep the connection."""
        connection = self.server.connect()
        head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        connection.sendall(self.random.choice((b"", head, head + b"\r\n{")))
        self._keep(connection)

    def do_not_read(self) -> None:
        """Send several requests, and read nothing."""
        connection = self.server.connect()
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5)
        self._keep(connection)

    def ask_websocket(self) -> None:
        """Ask the explorer for tokens."""
        from websockets.sync.client import connect

        with connect(f"ws://127.0.0.1:{self.server.port}/look", open_timeout=60, max_size=None) as websocket:
            websocket.send(json.dumps({"id": 7, "kind": "tokens", "source": self._case()[0]["source"]}))
            frame = websocket.recv(60)
            assert isinstance(frame, bytes)
            assert read_frame(frame)[0]["kind"] == "tokens"

    def send_frames(self) -> None:
        """Send a frame that is not allowed, or not complete."""
        connection = self.server.connect()
        with suppress(ConnectionError):
            connection.sendall(UPGRADE)
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
            connection.sendall(self.random.choice(FRAMES))
            connection.shutdown(socket.SHUT_WR)
        assert b" 500 " not in _read(connection)[:40]


def _read(connection: socket.socket) -> bytes:
    """Read until the server closes or resets the connection."""
    data = b""
    with connection, suppress(ConnectionError):
        while chunk := connection.recv(65536):
            data += chunk
    return data


def attack(server: Server, expected: dict[tuple[str, int], str], actions: int, seed: int = 1) -> Counter[str]:
    """Attack a server from several threads; return how often each action was done, and raise the first failure."""
    attackers = [Attacker(server, expected, seed * CLIENTS + number) for number in range(CLIENTS)]
    failures: list[BaseException] = []

    def run(attacker: Attacker) -> None:
        try:
            attacker.run(actions // CLIENTS)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(attacker,)) for attacker in attackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum((attacker.done for attacker in attackers), Counter())


def expected_texts(run: Path, lines: Sequence[str]) -> dict[tuple[str, int], str]:
    """Return the right translation of each line with each of the options."""
    translator = load_translator(run, "cpu")
    return {
        (line, number): translation.text
        for number, options in enumerate(OPTIONS)
        for line, translation in zip(lines, translator.translate(list(lines), **options), strict=True)
    }


def main() -> None:
    from regard.data.phrasebook import phrases

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--actions", type=int, default=20_000)
    options = parser.parse_args()
    command = [sys.executable, "-m", "regard", "look", str(options.run), "--port", "0", "--device", "cpu"]
    expected = expected_texts(options.run, [phrase.source for phrase in phrases("de", "train", 20)])
    with running_server([*command, "--no-browser"], **os.environ) as server:
        for seed in range(1, 11):
            memory = server.metric("process_resident_memory_bytes") / 2**20
            print(f"{memory:.0f} MiB", dict(attack(server, expected, options.actions // 10, seed)), flush=True)
        server.process.terminate()
        assert server.process.wait(60) == 0
        assert server.process.stderr is not None
        print(server.process.stderr.read().decode())


if __name__ == "__main__":
    main()
