"""Malformed, huge, slow and aborted requests are refused with a clear message, and do not affect other clients."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.serve.client import SECONDS, Server, read_all

INVALID: dict[str, tuple[Any, str]] = {
    "not JSON": (b"{", "Invalid JSON"),
    "not UTF-8": (b'{"source": "\xff"}', "Invalid JSON"),
    "half a surrogate pair": (b'{"source": "\\ud800"}', "Invalid JSON"),
    "too deeply nested": (b'{"source": ' + b"[" * 5000 + b'"x"' + b"]" * 5000 + b"}", "Invalid JSON"),
    "not an object": (["x"], "should be an object"),
    "no source": ({}, "source: Field required"),
    "no lines": ({"source": []}, "at least 1 item"),
    "a number in quotes": ({"source": "x", "beam": "3"}, "beam: Input should be a valid integer"),
    "NaN": (b'{"source": "x", "top_p": NaN}', "top_p"),
    "an unknown field": ({"source": "x", "baem": 3}, "baem: Extra inputs are not permitted"),
    "a beam over the limit": ({"source": "x", "beam": 9}, "beam is 9, and this server allows 8"),
    "n-best over the beam": ({"source": "x", "beam": 2, "nbest": 4}, "beam"),
    "groups that do not divide the beam": ({"source": "x", "beam": 4, "groups": 3}, "must divide"),
    "constraints with sampling": ({"source": "x", "sample": True, "constraints": ["y"]}, "beam"),
    "streaming with avoided phrases": ({"source": "x", "stream": True, "avoid": ["y"]}, "without 'stream'"),
    "too many lines": ({"source": ["x"] * 41}, "send several requests"),
    "too many characters": ({"source": ["x" * 1000] * 5}, "there are 5000 characters"),
    "too many characters after normalisation": ({"source": "\ufdfa" * 1000}, "18000 characters after normalisation"),
    "too many tokens": ({"source": ["x" * 500, "\U0001f600" * 1000]}, "4501 tokens"),
    "a phrase too long": ({"source": "x", "avoid": ["y" * 300]}, "avoid.0"),
    "a line too long": ({"source": "word " * 60, "long": "error"}, "more than the 40"),
    "a prefix over the maximum length": ({"source": "x", "max_length": 2, "prefix": "Das Hemd kostet"}, "at most 2"),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_request_is_refused_with_a_reason(server: Server, name: str) -> None:
    body, message = INVALID[name]
    response = server.request("/translate", body)
    assert response.status == 422
    assert message in response.json["error"]


def test_sources_and_targets_of_different_number_are_refused(server: Server) -> None:
    for path in ("/perplexity", "/align"):
        response = server.request(path, {"source": ["a", "b"], "target": "c"})
        assert response.status == 422
        assert "2 sources and 1 targets" in response.json["error"]


def test_a_pair_too_long_to_be_scored_is_refused(server: Server) -> None:
    response = server.request("/align", {"source": "x " * 300, "target": "y"})
    assert response.status == 422
    assert "at most 40 are allowed" in response.json["error"]


def test_other_paths_methods_and_content_types_are_refused(server: Server) -> None:
    assert server.request("/etc/passwd").status == 404
    assert server.request("/../../etc/passwd").status == 404
    assert server.request("/translate").status == 405
    assert server.request("/translate", b"source=x", **{"Content-Type": "text/plain"}).status == 415


@pytest.mark.parametrize("name", ["/etc", "../again", "memorised/../again", "", "file:///etc/passwd"])
def test_a_model_is_a_name_and_never_a_path(server: Server, name: str) -> None:
    response = server.request("/translate", {"source": "x", "model": name})
    assert response.status == 404
    assert response.json["error"].endswith("memorised, again")


def test_the_name_of_a_file_in_a_request_is_plain_text(server: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("Das Hemd", encoding="utf-8")
    response = server.request("/translate", {"source": "the shirt", "prefix": f"@{secret}"})
    assert response.status == 422 or "Hemd" not in response.json["translations"][0]["text"]


CHUNKED = (
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"


def test_a_body_too_large_is_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(CHUNKED + CHUNK * 2 + b"0\r\n\r\n")
    assert b" 413 " in read_all(connection).split(b"\r\n")[0]


def test_an_endless_body_is_not_read_for_long(server: Server) -> None:
    connection, sent = server.connect(), 0
    with connection, suppress(OSError):
        connection.sendall(CHUNKED)
        while sent < 1000:
            connection.sendall(CHUNK)
            sent += 1
    assert sent < 1000
    assert server.metric("process_resident_memory_bytes") < 2**30


def test_headers_too_large_are_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000)
    assert b" 400 " in read_all(connection).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X%d: y\r\n" % at for at in range(9000)),
        b"GET /health?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n",
    ],
    ids=["many headers", "a long URL"],
)
def test_the_limit_on_the_head_holds_however_it_arrives(server: Server, head: bytes) -> None:
    connection = server.connect()
    connection.sendall(head + b"\r\n")
    response = read_all(connection)
    assert response.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))  # received in one piece, or in several


def test_a_body_of_ambiguous_length_is_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + b"0\r\n\r\n")
    response = read_all(connection)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"not both" in response


def test_bytes_that_are_not_http_are_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(b"\x16\x03\x01\x00\x00 hello\r\n\r\n")
    assert b" 400 " in read_all(connection).split(b"\r\n")[0]


def test_a_slow_client_is_disconnected(server: Server) -> None:
    silent, in_headers, in_body = server.connect(), server.connect(), server.connect()
    in_headers.sendall(b"POST /translate HTTP/1.1\r\nHost")
    in_body.sendall(
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    assert read_all(silent) == b""
    assert read_all(in_headers) == b""
    assert b" 408 " in read_all(in_body).split(b"\r\n")[0]


def test_memory_stays_constant_over_many_requests(server: Server, lines: list[str]) -> None:
    """Send batches of many sizes, because what is cached for each batch size is what grows."""

    def send(number: int) -> int:
        source = lines[: 1 + number % 13] if number % 3 else lines[number % 20]
        return server.request("/translate", {"source": source, "beam": 1 + number % 2, "max_length": 3}).status

    def memory_after(numbers: range) -> float:
        with ThreadPoolExecutor(12) as clients:
            assert set(clients.map(send, numbers)) == {200}
        return server.metric("process_resident_memory_bytes")

    before = memory_after(range(150))
    memory_after(range(150, 350))
    start = monotonic()
    while (memory := server.metric("process_resident_memory_bytes")) > before + 24 * 2**20:
        assert monotonic() - start < SECONDS, f"{before} bytes have become {memory}"  # it is returned now and then


def test_a_client_that_disconnects_is_counted_and_its_lines_are_dropped(server: Server, lines: list[str]) -> None:
    before = server.metric("regard_clients_left_total")
    for streamed in (False, True):
        server.send({"source": lines * 2, "beam": 8, "stream": streamed}).close()
    server.wait_for("regard_clients_left_total", before + 2)
    assert json.loads(server.request("/translate", {"source": lines[0]}).body)["translations"][0]["text"]
    while server.metric("regard_running_sentences"):
        pass  # a worker drops the lines at its next step
