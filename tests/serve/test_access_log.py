"""The access log: one JSON object per request, without any text; and what else needs a server of its own."""

import json
import socket
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.serve.client import SECONDS, Server, running_server, serve_command

from regard.serve.access_log import MAX_WAITING, AccessLog
from regard.serve.metrics import Metrics

TOKEN = {"Authorization": "Bearer s3cret"}
FIELDS = ["lines", "method", "model", "path", "request_id", "seconds", "status", "time", "tokens"]
CONNECTIONS = 6


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "access.jsonl"


@pytest.fixture(scope="module")
def logged(memorised: Path, written: Path) -> Iterator[Server]:
    """A server that requires a token, allows few connections, and writes an access log to a file."""
    command = serve_command(str(memorised), "--access-log", "json", "--max-connections", str(CONNECTIONS))
    command += ["--languages", "en-de"]
    with running_server(
        ["bash", "-c", 'exec "${@:2}" > "$1"', "serve", str(written), *command], REGARD_TOKEN="s3cret"
    ) as running:
        yield running


def entry(written: Path, request_id: str) -> dict[str, Any]:
    """Wait for the line of a request, and return it."""
    while True:
        for line in written.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and json.loads(line)["request_id"] == request_id:
                found: dict[str, Any] = json.loads(line)
                return found


def test_a_request_is_logged_with_its_counts_and_without_its_text(
    logged: Server, written: Path, lines: list[str]
) -> None:
    response = logged.request("/v1/translate", {"source": lines[:3]}, **TOKEN, **{"X-Request-ID": "counted"})
    tokens = sum(len(translation["tokens"]) for translation in response.json["translations"])
    found = entry(written, "counted")
    assert sorted(found) == FIELDS
    assert (found["method"], found["path"], found["status"]) == ("POST", "/v1/translate", 200)
    assert (found["model"], found["lines"], found["tokens"]) == ("memorised", 3, tokens)
    assert found["seconds"] > 0
    assert datetime.fromisoformat(found["time"]).tzinfo is not None


def test_a_stream_and_scored_pairs_are_logged_with_their_tokens(
    logged: Server, written: Path, pairs: list[tuple[str, str]]
) -> None:
    source, target = pairs[0]
    logged.request("/translate", {"source": source, "stream": True}, **TOKEN, **{"X-Request-ID": "streamed"})
    logged.request("/perplexity", {"source": source, "target": target}, **TOKEN, **{"X-Request-ID": "scored"})
    assert entry(written, "streamed")["tokens"] > 3
    assert entry(written, "scored")["tokens"] > 3
    assert entry(written, "scored")["lines"] == 1


def test_no_text_of_a_request_is_logged(logged: Server, written: Path) -> None:
    secret = "hippopotamus"
    logged.request("/translate", {"source": secret, "prefix": secret}, **TOKEN)
    logged.request(f"/translate?q={secret}&source=en&target={secret}", method="POST", **TOKEN)
    logged.request(f"/{secret}?{secret}", **TOKEN, Cookie=secret, **{"User-Agent": secret})
    logged.request(f"/v1/models/{secret}", **TOKEN)
    logged.request("/health", method=secret.upper(), Authorization=secret)
    logged.request("/translate", {secret: secret}, **{"X-Request-ID": f"{secret} {secret}"})
    logged.request("/ready", **{"X-Request-ID": "end"})
    entry(written, "end")
    text = written.read_text(encoding="utf-8")
    assert secret not in text.lower()
    assert "s3cret" not in text
    assert '"/v1/models/{model}"' in text
    assert '"method": "other"' in text


def test_errors_are_logged_too(logged: Server, written: Path) -> None:
    logged.request("/models", **{"X-Request-ID": "refused"})
    assert (entry(written, "refused")["status"], entry(written, "refused")["model"]) == (401, None)


def test_libretranslate_clients_send_the_token_in_a_field(logged: Server, pairs: list[tuple[str, str]]) -> None:
    source, body = pairs[0][0], {"source": "en", "target": "de"}
    for key, status in (({"api_key": "s3cret"}, 200), ({"api_key": "wrong"}, 401), ({}, 401)):
        response = logged.request("/translate", {"q": source, **body, **key})
        assert response.status == status
        form = "&".join(f"{name}={value}" for name, value in {**body, **key}.items())
        assert logged.request(f"/translate?q=x&{form}", method="POST").status == status
    assert list(logged.request("/translate", {"q": source, **body}, **TOKEN).json) == ["translatedText"]
    assert response.headers["www-authenticate"] == "Bearer"
    own = logged.request("/translate", {"source": source, "api_key": "s3cret"})
    assert own.status == 401  # our own form has its token in the header only
    assert logged.request("/languages").status == 200


def test_the_openapi_document_requires_the_token(logged: Server) -> None:
    paths = logged.request("/openapi.json").json["paths"]
    assert paths["/models"]["get"]["security"] == [{"token": []}]
    assert paths["/ready"]["get"]["security"] == []


def request_in_progress(server: Server) -> socket.socket:
    """Open a connection with a request whose body the server waits for; an idle one would make room for others."""
    connection = server.connect()
    head = "POST /tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\nContent-Length: 9\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
    return connection


def test_a_connection_over_the_limit_gets_an_error_of_the_usual_shape(logged: Server) -> None:
    held = [request_in_progress(logged) for _ in range(CONNECTIONS)]
    try:
        response = logged.request("/models", **TOKEN, **{"X-Request-ID": "one-too-many"})
    finally:
        for connection in held:
            connection.close()
    assert response.status == 503
    assert response.json["code"] == "unavailable"
    assert response.json["request_id"] == response.headers["x-request-id"] == "one-too-many"
    assert response.headers["retry-after"] == "1"


def test_queue_time_and_first_token_time_are_measured_for_each_model(logged: Server, lines: list[str]) -> None:
    for name in ("regard_queue_seconds", "regard_first_token_seconds"):
        before = logged_metric(logged, f"{name}_count")
        logged.request("/translate", {"source": lines[:4]}, **TOKEN)
        assert logged_metric(logged, f"{name}_count") == before + 4
        assert logged_metric(logged, f"{name}_sum") > 0


def logged_metric(server: Server, name: str) -> float:
    lines = server.request("/metrics", **TOKEN).body.decode().splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith(f'{name}{{model="memorised"}}')]
    return float(value)


def dropped(metrics: Metrics) -> float:
    """Return the number of lines that were not written."""
    value = metrics.registry.get_sample_value("regard_access_log_dropped_total")
    assert value is not None
    return value


class UnreadPipe(StringIO):
    """A stream that blocks until somebody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = Event()

    def write(self, text: str) -> int:
        self.is_read.wait()
        return super().write(text)


def test_a_reader_that_stops_does_not_block_the_server() -> None:
    metrics, pipe = Metrics(), UnreadPipe()
    log = AccessLog(pipe, metrics)
    log.start()
    for number in range(MAX_WAITING + 100):
        log.write(status=number)
    assert dropped(metrics) >= 99  # the thread holds one line
    pipe.is_read.set()
    log.close(SECONDS)
    assert len(pipe.getvalue().splitlines()) + dropped(metrics) == MAX_WAITING + 100


class FullDisk:
    """A stream to which nothing can be written."""

    def __init__(self) -> None:
        self.tried = Event()

    def write(self, text: str) -> int:
        self.tried.set()
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_does_not_stop_the_log() -> None:
    metrics, disk = Metrics(), FullDisk()
    log = AccessLog(disk, metrics)  # type: ignore[arg-type]
    log.start()
    log.write(status=200)
    log.write(status=200)
    log.close()
    assert disk.tried.is_set()
    assert dropped(metrics) == 2
