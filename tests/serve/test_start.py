"""How a server starts, or says why it does not; who may ask; and that it needs no disk."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.serve.talk import SECONDS, Server, command
from typer.testing import CliRunner

from regard.cli import app

FULL = Path("/dev/full")
"""A disk that is always full; Linux has it."""


def told(*words: str) -> str:
    """The sentence with which `regard serve` refuses."""
    said = CliRunner().invoke(app, ["serve", *words])
    assert said.exit_code != 0
    return str(said.exception)


def test_a_missing_model_is_told_before_anything_is_served(tmp_path: Path) -> None:
    assert "there is no run at" in told(str(tmp_path / "nowhere"), "--port", "0")


def test_a_port_in_use_is_told_at_once(memorised: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = told(str(memorised), "--port", str(port))
    assert said == f"cannot listen on 127.0.0.1, port {port}: another program listens there; choose another --port"


def test_an_address_of_another_machine_is_told(memorised: Path) -> None:
    assert "choose --host and --port" in told(str(memorised), "--host", "192.0.2.1", "--port", "0")


def test_two_runs_of_one_name_are_told_apart(memorised: Path) -> None:
    assert "two runs are named memorised" in told(str(memorised), str(memorised), "--port", "0")


def test_a_token_file_that_is_empty_or_cannot_be_sent_is_refused(memorised: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("\n", encoding="utf-8")
    assert "is empty" in told(str(memorised), "--token-file", str(token))
    token.write_text("zwölf Hühner", encoding="utf-8")
    assert "ASCII" in told(str(memorised), "--token-file", str(token))


def test_without_the_extra_the_command_says_what_to_install(memorised: Path) -> None:
    hide = "import sys; sys.modules['fastapi'] = None; from regard.cli import main; main()"
    words = [sys.executable, "-c", hide, "serve", str(memorised)]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert said.returncode == 1
    assert "pip install 'regard[serve]'" in said.stderr


@pytest.fixture(scope="module")
def guarded(memorised: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for a token, lets one origin in, and can write nothing anywhere."""
    token = tmp_path_factory.mktemp("secrets") / "token"
    token.write_text("s3cret\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*command(str(memorised)), "--port", str(port), "--token-file", str(token)]
    with FULL.open("wb") as full:
        process = subprocess.Popen(
            [*words, "--origin", "https://example.org", "--allow-host", "translator.example"],
            stderr=full,
            stdout=full,
            cwd="/proc",
        )
    server = Server(process, port)
    try:
        while not server.listens():
            with suppress(subprocess.TimeoutExpired):
                assert process.wait(0.2) is None
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("shown", ["", "s3cret", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "Bearer \xff"])
def test_who_does_not_show_the_token_is_refused(guarded: Server, shown: str) -> None:
    refused = guarded.ask("/translate", {"source": "x"}, Authorization=shown)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"


def test_health_is_told_to_everybody_and_figures_are_not(guarded: Server) -> None:
    assert guarded.ask("/health").status == 200
    assert guarded.ask("/metrics").status == 401


def test_only_the_origin_that_was_named_is_let_in(guarded: Server) -> None:
    let_in = guarded.ask("/models", Authorization="Bearer s3cret", Origin="https://example.org")
    assert let_in.status == 200
    assert let_in.headers["access-control-allow-origin"] == "https://example.org"
    elsewhere = guarded.ask("/models", Authorization="Bearer s3cret", Origin="https://example.com")
    assert elsewhere.status == 403
    assert "access-control-allow-origin" not in elsewhere.headers


def test_a_browser_that_asks_for_a_page_of_that_origin_is_told_it_may(guarded: Server) -> None:
    """As browsers do before they send JSON and a token from a page; they show no token with the question."""
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    told = guarded.ask("/translate", method="OPTIONS", Origin="https://example.org", **wanted)
    assert told.status == 200
    assert "POST" in told.headers["access-control-allow-methods"]
    assert told.headers["access-control-allow-origin"] == "https://example.org"


def test_a_name_that_was_allowed_is_let_in(guarded: Server) -> None:
    assert guarded.ask("/health", Host="translator.example:8000").status == 200
    assert guarded.ask("/health", Host="other.example").status == 403


def test_a_full_disk_does_not_stop_a_server(guarded: Server) -> None:
    """The last test of this server: it ends here."""
    assert guarded.ask("/translate", b"{", Authorization="Bearer s3cret").status == 422
    assert guarded.ask("/translate", {"source": "the shirt"}, Authorization="Bearer s3cret").status == 200
    assert guarded.stop() == 0
