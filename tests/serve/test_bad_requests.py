"""What is malformed, huge, slow or cut off gets a clear answer, or none, and does no harm to others."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.serve.talk import Server, read_all

MALFORMED: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "Invalid JSON"),
    "no UTF-8": (b'{"source": "\xff"}', "Invalid JSON"),
    "half a character": (b'{"source": "\\ud800"}', "Invalid JSON"),
    "too deep": (b'{"source": ' + b"[" * 5000 + b'"x"' + b"]" * 5000 + b"}", "Invalid JSON"),
    "no object": (["x"], "should be an object"),
    "no source": ({}, "source: Field required"),
    "no lines": ({"source": []}, "at least 1 item"),
    "a number in quotes": ({"source": "x", "beam": "3"}, "beam: Input should be a valid integer"),
    "a number that is none": (b'{"source": "x", "top_p": NaN}', "top_p"),
    "an unknown name": ({"source": "x", "baem": 3}, "baem: Extra inputs are not permitted"),
    "a beam too wide": ({"source": "x", "beam": 9}, "beam is 9, and this server allows 8"),
    "more best than beams": ({"source": "x", "beam": 2, "nbest": 4}, "widen it"),
    "groups that do not divide": ({"source": "x", "beam": 4, "groups": 3}, "does not divide"),
    "phrases for samples": ({"source": "x", "sample": True, "constraints": ["y"]}, "plain beam"),
    "a stream of what may change": ({"source": "x", "stream": True, "avoid": ["y"]}, "without stream"),
    "too many lines": ({"source": ["x"] * 41}, "send them in parts"),
    "too many characters": ({"source": ["x" * 1000] * 5}, "there are 5000 characters"),
    "a phrase too long": ({"source": "x", "avoid": ["y" * 300]}, "avoid.0"),
    "only a line too long": ({"source": "word " * 60, "long": "error"}, "more than the 40"),
    "more asked for than fits": ({"source": "x", "max_length": 2, "prefix": "Das Hemd kostet"}, "at most 2"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_told_so(server: Server, name: str) -> None:
    body, told = MALFORMED[name]
    said = server.ask("/translate", body)
    assert said.status == 422
    assert told in said.json["error"]


def test_sides_of_unlike_number_are_refused(server: Server) -> None:
    for path in ("/perplexity", "/align"):
        said = server.ask(path, {"source": ["a", "b"], "target": "c"})
        assert said.status == 422
        assert "2 sources and 1 targets" in said.json["error"]


def test_a_pair_too_long_to_be_weighed_is_refused(server: Server) -> None:
    said = server.ask("/align", {"source": "x " * 300, "target": "y"})
    assert said.status == 422
    assert "at most 40 are weighed" in said.json["error"]


def test_other_paths_methods_and_kinds_of_body_are_refused(server: Server) -> None:
    assert server.ask("/etc/passwd").status == 404
    assert server.ask("/../../etc/passwd").status == 404
    assert server.ask("/translate").status == 405
    assert server.ask("/translate", b"source=x", **{"Content-Type": "text/plain"}).status == 415


@pytest.mark.parametrize("name", ["/etc", "../again", "memorised/../again", "", "file:///etc/passwd"])
def test_a_model_is_a_name_and_never_a_path(server: Server, name: str) -> None:
    said = server.ask("/translate", {"source": "x", "model": name})
    assert said.status == 404
    assert said.json["error"].endswith("memorised, again")


def test_a_file_named_in_a_request_is_text(server: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("Das Hemd", encoding="utf-8")
    said = server.ask("/translate", {"source": "the shirt", "prefix": f"@{secret}"})
    assert said.status == 422 or "Hemd" not in said.json["translations"][0]["text"]


CHUNKED = (
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"


def test_a_body_too_big_is_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(CHUNKED + CHUNK * 2 + b"0\r\n\r\n")
    assert b" 413 " in read_all(connection).split(b"\r\n")[0]


def test_a_body_without_end_is_not_read_for_long(server: Server) -> None:
    connection, sent = server.connect(), 0
    with connection, suppress(OSError):
        connection.sendall(CHUNKED)
        while sent < 1000:
            connection.sendall(CHUNK)
            sent += 1
    assert sent < 1000
    assert server.figure("process_resident_memory_bytes") < 2**30


def test_headers_too_big_are_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000)
    assert b" 400 " in read_all(connection).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X%d: y\r\n" % at for at in range(9000)),
        b"GET /health?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n",
    ],
    ids=["many headers", "a long address"],
)
def test_a_head_that_comes_at_once_has_no_more_bytes_than_one_that_comes_slowly(server: Server, head: bytes) -> None:
    connection = server.connect()
    connection.sendall(head + b"\r\n")
    said = read_all(connection)
    assert said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))  # as it comes in one piece, or in several


def test_a_body_with_two_ends_is_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + b"0\r\n\r\n")
    said = read_all(connection)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"not both" in said


def test_what_is_no_http_is_refused(server: Server) -> None:
    connection = server.connect()
    connection.sendall(b"\x16\x03\x01\x00\x00 hello\r\n\r\n")
    assert b" 400 " in read_all(connection).split(b"\r\n")[0]


def test_a_slow_client_is_not_waited_for(server: Server) -> None:
    silent, in_headers, in_body = server.connect(), server.connect(), server.connect()
    in_headers.sendall(b"POST /translate HTTP/1.1\r\nHost")
    in_body.sendall(
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    assert read_all(silent) == b""
    assert read_all(in_headers) == b""
    assert b" 408 " in read_all(in_body).split(b"\r\n")[0]


def test_memory_stays_flat_over_many_requests(server: Server, lines: list[str]) -> None:
    """Batches of every size, because what is kept for each size of a batch is what grows."""

    def ask(number: int) -> int:
        some = lines[: 1 + number % 13] if number % 3 else lines[number % 20]
        return server.ask("/translate", {"source": some, "beam": 1 + number % 2, "max_length": 3}).status

    def used(numbers: range) -> float:
        with ThreadPoolExecutor(12) as clients:
            assert set(clients.map(ask, numbers)) == {200}
        return server.figure("process_resident_memory_bytes")

    before = used(range(150))
    assert used(range(150, 350)) < before + 24 * 2**20


def test_who_leaves_is_counted_and_nothing_is_left_behind(server: Server, lines: list[str]) -> None:
    before = server.figure("regard_clients_left_total")
    for streamed in (False, True):
        server.send({"source": lines * 2, "beam": 8, "stream": streamed}).close()
    server.until("regard_clients_left_total", before + 2)
    assert json.loads(server.ask("/translate", {"source": lines[0]}).body)["translations"][0]["text"]
    while server.figure("regard_running_sentences"):
        pass  # a worker sees at its next step that nobody waits any more
