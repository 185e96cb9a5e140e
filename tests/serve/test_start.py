"""How a server starts or says why it cannot, which clients it accepts, and that it writes nothing to disk."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.serve.client import SECONDS, Server, serve_command
from typer.testing import CliRunner

from regard.cli import app
from regard.serve.settings import ServerSettings

FULL = Path("/dev/full")
"""A device of Linux that behaves like a full disk."""


def error(*arguments: str) -> str:
    """Return the error message of `regard serve`."""
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code != 0
    return str(result.exception)


def test_a_missing_run_is_an_error(tmp_path: Path) -> None:
    assert str(tmp_path / "nowhere") in error(str(tmp_path / "nowhere"), "--port", "0")


def test_a_port_in_use_is_an_error(memorised: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        message = error(str(memorised), "--port", str(port))
    assert message == f"cannot listen on 127.0.0.1, port {port}: the port is in use; choose another --port"


def test_an_address_of_another_machine_is_an_error(memorised: Path) -> None:
    assert "choose another --host or --port" in error(str(memorised), "--host", "192.0.2.1", "--port", "0")


def test_two_runs_of_one_name_are_an_error(memorised: Path) -> None:
    assert "two runs are named memorised" in error(str(memorised), str(memorised), "--port", "0")


def test_an_empty_or_non_ascii_token_is_an_error(memorised: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("\n", encoding="utf-8")
    assert "is empty" in error(str(memorised), "--token-file", str(token))
    token.write_text("zwölf Hühner", encoding="utf-8")
    assert "ASCII" in error(str(memorised), "--token-file", str(token))


@pytest.mark.parametrize(
    ("origin", "proposal"),
    [
        ("*", "https://example.org"),
        ("example.org", "https://example.org"),
        ("https://example.com/", "https://example.com"),
        ("https://example.com/page", "https://example.com"),
        ("HTTPS://Example.com", "https://example.com"),
        ("https://example.com:443", "https://example.com"),
        ("https://*.example.com", "https://example.org"),
        ("http://localhost:99999", "https://example.org"),
        ("null", "https://example.org"),
    ],
)
def test_an_origin_that_no_browser_sends_is_an_error(memorised: Path, origin: str, proposal: str) -> None:
    assert error(str(memorised), "--origin", origin).endswith(f"give one such as {proposal}")


@pytest.mark.parametrize("origin", ["https://example.org", "http://localhost:8080", "http://[::1]:3000"])
def test_an_origin_that_browsers_send_is_accepted(origin: str) -> None:
    assert ServerSettings(origins=(origin,)).origins == (origin,)


def test_without_the_extra_the_command_says_what_to_install(memorised: Path) -> None:
    hide = "import sys; sys.modules['fastapi'] = None; from regard.cli import main; main()"
    command = [sys.executable, "-c", hide, "serve", str(memorised)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 1
    assert "pip install 'regard[serve]'" in done.stderr


@pytest.fixture(scope="module")
def guarded(memorised: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a token, allows one origin, and cannot write anywhere."""
    token = tmp_path_factory.mktemp("secrets") / "token"
    token.write_text("s3cret\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*serve_command(str(memorised)), "--port", str(port), "--token-file", str(token)]
    with FULL.open("wb") as full:
        process = subprocess.Popen(
            [*command, "--origin", "https://example.org", "--allow-host", "translator.example"],
            stderr=full,
            stdout=full,
            cwd="/proc",
        )
    server = Server(process, port)
    try:
        while not server.is_listening():
            with suppress(subprocess.TimeoutExpired):
                assert process.wait(0.2) is None
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("header", ["", "s3cret", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "Bearer \xff"])
def test_a_request_without_the_token_is_refused(guarded: Server, header: str) -> None:
    refused = guarded.request("/translate", {"source": "x"}, Authorization=header)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token_and_metrics_do(guarded: Server) -> None:
    assert guarded.request("/health").status == 200
    assert guarded.request("/metrics").status == 401


def test_only_the_allowed_origin_may_send_requests(guarded: Server) -> None:
    allowed = guarded.request("/models", Authorization="Bearer s3cret", Origin="https://example.org")
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-origin"] == "https://example.org"
    other = guarded.request("/models", Authorization="Bearer s3cret", Origin="https://example.com")
    assert other.status == 403
    assert "access-control-allow-origin" not in other.headers


def test_a_cors_preflight_of_the_allowed_origin_needs_no_token(guarded: Server) -> None:
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    response = guarded.request("/translate", method="OPTIONS", Origin="https://example.org", **headers)
    assert response.status == 200
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-origin"] == "https://example.org"


def test_only_an_allowed_host_name_is_accepted(guarded: Server) -> None:
    assert guarded.request("/health", Host="translator.example:8000").status == 200
    assert guarded.request("/health", Host="other.example").status == 403


def test_a_full_disk_does_not_stop_a_server(guarded: Server) -> None:
    """This test ends the server, so it is the last one that uses it."""
    assert guarded.request("/translate", b"{", Authorization="Bearer s3cret").status == 422
    assert guarded.request("/translate", {"source": "the shirt"}, Authorization="Bearer s3cret").status == 200
    assert guarded.stop() == 0
