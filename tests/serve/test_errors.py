"""Every error has one shape, and every response the id of its request."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from tests.serve.asgi import asgi_request
from tests.serve.client import Response, Server, read_all

from regard.predict import Translator
from regard.serve.app import make_app
from regard.serve.errors import ERRORS
from regard.serve.request_context import RequestContextMiddleware
from regard.serve.settings import ServerSettings

FIELDS = ["code", "error", "field", "message", "request_id"]
REQUESTS: dict[str, tuple[str, Any, dict[str, str], int, str | None]] = {
    "an unknown path": ("/nowhere", None, {}, 404, None),
    "an unknown model": ("/translate", {"source": "x", "model": "y"}, {}, 404, "model"),
    "an unknown model in the path": ("/v1/models/nobody", None, {}, 404, "model"),
    "a wrong method": ("/translate", None, {}, 405, None),
    "a wrong type of body": ("/translate", b"x", {"Content-Type": "text/plain"}, 415, None),
    "a wrong host": ("/models", None, {"Host": "evil.example"}, 403, None),
    "a wrong type of field": ("/translate", {"source": 3}, {}, 422, "source"),
    "a missing field": ("/perplexity", {"source": "x"}, {}, 422, "target"),
    "an unknown field": ("/translate", {"source": "x", "baem": 3}, {}, 422, "baem"),
    "a beam over the limit": ("/translate", {"source": "x", "beam": 9}, {}, 422, "beam"),
    "pairs of different number": ("/align", {"source": ["a", "b"], "target": "c"}, {}, 422, "target"),
    "a body that is not JSON": ("/translate", b"{", {}, 422, None),
    "a body too large": ("/translate", {"source": "x" * 200_000}, {}, 413, None),
}


def check(response: Response, status: int, field: str | None = None) -> None:
    assert response.status == status
    assert response.headers["content-type"] == "application/json"
    content = response.json
    assert sorted(content) == FIELDS
    assert content["code"] == ERRORS[status][0]
    assert content["error"] == content["message"] != ""
    assert content["field"] == field
    assert content["request_id"] == response.headers["x-request-id"] != ""


@pytest.mark.parametrize("name", REQUESTS)
def test_an_error_has_code_message_field_and_request_id(server: Server, name: str) -> None:
    path, body, headers, status, field = REQUESTS[name]
    check(server.request(path, body, **headers), status, field)


def test_bytes_that_are_not_http_get_an_error_of_the_same_shape(server: Server) -> None:
    connection = server.connect()
    connection.sendall(b"\x16\x03\x01\x00\x00 hello\r\n\r\n")
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    lines = [line.partition(": ") for line in head.decode().splitlines()[1:]]
    check(Response(int(head.split()[1]), {name.lower(): value for name, _, value in lines}, body), 400)


def test_a_line_that_fails_in_a_stream_has_the_same_fields(server: Server) -> None:
    body = {"source": ["the shirt", "word " * 60], "long": "error", "stream": True}
    response = server.request("/translate", body, **{"X-Request-ID": "stream-1"})
    events = [json.loads(line) for line in response.body.splitlines()]
    (error,) = [event for event in events if "error" in event]
    assert sorted(error) == sorted([*FIELDS, "line"])
    assert (error["line"], error["code"], error["request_id"]) == (1, "invalid_request", "stream-1")


def test_an_unexpected_exception_is_an_error_of_the_same_shape(translator: Translator) -> None:
    app = make_app({"model": translator}, ServerSettings())

    async def fail() -> None:
        raise ZeroDivisionError

    app.add_api_route("/fail", fail)
    response = asgi_request(app, "/fail", headers=[(b"x-request-id", b"mine")])
    check(response, 500)
    assert response.json["request_id"] == "mine"


@pytest.mark.parametrize("path", ["/health", "/translate", "/metrics", "/docs", "/nowhere"])
def test_a_request_id_is_returned_on_every_response(server: Server, path: str) -> None:
    assert server.request(path, **{"X-Request-ID": "client:7.a_B-c"}).headers["x-request-id"] == "client:7.a_B-c"
    generated = {server.request(path).headers["x-request-id"] for _ in range(3)}
    assert len(generated) == 3


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@given(st.binary(max_size=140) | st.text("ab-.:_ \n", max_size=140).map(str.encode))
def test_an_id_of_the_client_is_kept_only_if_it_is_a_short_name(sent: bytes) -> None:
    response = asgi_request(RequestContextMiddleware(echo), "/", headers=[(b"x-request-id", sent)])
    returned = response.headers["x-request-id"]
    assert returned.isascii()
    assert 0 < len(returned) <= 128
    assert not set(returned) & set(" \r\n\"'\\{}<>")
    if sent != returned.encode():
        assert len(returned) == 32


def test_the_table_of_errors_in_the_documentation_is_complete() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    for status, (code, _) in ERRORS.items():
        assert f"| {status} | `{code}` |" in text
