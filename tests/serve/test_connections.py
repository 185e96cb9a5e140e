"""Clients that are silent, do not read, half-close or are too many, and a server that stops while clients use it."""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.serve.client import JSON, SECONDS, Server, read_all, running_server, serve_command

from regard.serve.connections import RESERVED_CONNECTIONS

LIMIT = 8
"""Connections that the server under test allows."""
LARGE_GET = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
INCOMPLETE = (
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    b"Expect: 100-continue\r\n\r\n"
)


@pytest.fixture(scope="module")
def small(memorised: Path) -> Iterator[Server]:
    """A server with few connections and little patience with clients that do not read."""
    limits = ("--max-connections", str(LIMIT), "--write-timeout", "0.5", "--read-timeout", "20")
    with running_server(serve_command(str(memorised), *limits, "--drain-seconds", str(SECONDS))) as running:
        yield running


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes the connections of a test."""
    with ExitStack() as open_connections:
        yield open_connections


def busy_connection(server: Server) -> socket.socket:
    """Open a connection with a request in progress, whose body the server waits for."""
    connection = server.connect()
    connection.sendall(INCOMPLETE)
    assert connection.recv(1024).startswith(b"HTTP/1.1 100")
    return connection


def test_silent_connections_make_room_for_others(small: Server, lines: list[str], stack: ExitStack) -> None:
    for _ in range(3):
        for _ in range(5 * LIMIT):
            stack.enter_context(small.connect())
        assert small.request("/translate", {"source": lines[0]}).status == 200


def test_connections_over_the_limit_get_503_but_health_checks_are_answered(
    small: Server, lines: list[str], stack: ExitStack
) -> None:
    busy = [stack.enter_context(busy_connection(small)) for _ in range(LIMIT)]
    for _ in range(2 * RESERVED_CONNECTIONS):
        stack.enter_context(small.connect())  # silent ones do not use up the reserve
        refused = small.request("/translate", {"source": lines[0]})
        assert refused.status == 503
        assert "too many connections" in refused.json["error"]
        assert refused.headers["connection"] == "close"
        assert int(refused.headers["retry-after"]) == 1
        assert small.request("/health").status == 200
    for connection in busy:
        connection.close()
    while small.request("/translate", {"source": lines[0]}).status == 503:
        pass  # the server notices that they are closed


def test_clients_that_do_not_read_are_disconnected(small: Server, lines: list[str], stack: ExitStack) -> None:
    unread = [stack.enter_context(small.connect()) for _ in range(LIMIT)]
    for connection in unread:
        connection.setblocking(False)
        with suppress(BlockingIOError):
            while True:  # until neither side takes more
                connection.send(LARGE_GET * 100)
    while small.request("/translate", {"source": lines[0]}).status == 503:
        pass  # they have half a second
    for connection in unread:
        connection.setblocking(True)
        with pytest.raises(ConnectionResetError):
            read_all(connection)


def test_a_client_that_half_closes_gets_its_responses(small: Server, lines: list[str]) -> None:
    connection = small.send({"source": lines[0]})
    connection.shutdown(socket.SHUT_WR)
    response = read_all(connection)
    assert b"HTTP/1.1 200 OK" in response
    assert lines[0].encode() in response
    pipelined = small.connect()
    pipelined.sendall(3 * LARGE_GET)
    pipelined.shutdown(socket.SHUT_WR)
    assert read_all(pipelined).count(b"HTTP/1.1 200 OK") == 3


def test_a_body_that_is_not_http_ends_its_request(small: Server) -> None:
    connection = small.connect()
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n")
    assert read_all(connection).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_half_closes_in_the_middle_of_a_request_is_disconnected(small: Server) -> None:
    connection = busy_connection(small)
    connection.shutdown(socket.SHUT_WR)
    assert read_all(connection) == b""


def test_a_server_that_stops_is_not_ready_first_and_asks_clients_to_connect_anew(
    small: Server, lines: list[str], stack: ExitStack
) -> None:
    """This test ends the server, so it is the last one that uses it."""
    body = json.dumps({"source": lines[0]})
    count = LIMIT - 2  # so that health checks do not close idle connections
    clients = [HTTPConnection("127.0.0.1", small.port, timeout=SECONDS) for _ in range(count)]
    for client in clients:
        stack.callback(client.close)

    def post(client: HTTPConnection) -> tuple[int, str | None]:
        client.request("POST", "/translate", body, JSON)
        response = client.getresponse()
        response.read()
        return response.status, response.getheader("Connection")

    assert [post(client) for client in clients] == [(200, None)] * count
    small.process.send_signal(signal.SIGTERM)
    while (health := small.request("/health")).status == 200:
        pass
    assert health.json["status"] == "stopping"
    assert [post(client) for client in clients] == [(200, "close")] * count
    assert small.request("/translate", {"source": lines[0]}).status == 200
    small.process.send_signal(signal.SIGTERM)  # a second signal ends this phase
    assert small.process.wait(SECONDS) == 0
    assert small.process.stderr is not None
    assert len(small.process.stderr.read().splitlines()) == 1  # none of the tests left a traceback


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of open files is one of POSIX")
def test_a_server_with_few_file_descriptors_serves_through_a_flood_of_connections(
    memorised: Path, lines: list[str], stack: ExitStack
) -> None:
    command = ["bash", "-c", 'ulimit -n 240 && exec "$@"', "bash", *serve_command(str(memorised))]
    running = stack.enter_context(running_server(command))
    for _ in range(400):
        stack.enter_context(running.connect())
    assert running.request("/health").status == 200
    assert running.request("/translate", {"source": lines[0]}).status == 200
    running.process.send_signal(signal.SIGHUP)
    assert running.process.wait(SECONDS) == 0
    assert running.process.stderr is not None
    printed = running.process.stderr.read().decode()
    assert printed.startswith("regard: stopped; ")
    assert len(printed.splitlines()) == 1
