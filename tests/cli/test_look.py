"""The command `regard look`: errors at start, and the choice of a port."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.look import PORT, open_listener


def error(*arguments: str) -> str:
    """Return the error message of `regard look`."""
    result = CliRunner().invoke(app, ["look", *arguments])
    assert result.exit_code != 0
    return str(result.exception)


def test_a_missing_run_is_an_error(tmp_path: Path) -> None:
    assert str(tmp_path / "nowhere") in error(str(tmp_path / "nowhere"), "--port", "0")


def test_two_runs_of_one_name_are_an_error(memorised: Path) -> None:
    assert "two runs are named memorised" in error(str(memorised), str(memorised), "--port", "0")


def test_a_given_port_in_use_is_an_error(memorised: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert "the port is in use" in error(str(memorised), "--port", str(port))


def test_without_a_port_the_next_free_one_is_used() -> None:
    with open_listener("127.0.0.1", None) as first:
        first.listen()
        with open_listener("127.0.0.1", None) as second:
            ports = [listener.getsockname()[1] for listener in (first, second)]
    assert PORT <= ports[0] < ports[1]


def test_an_unavailable_address_is_not_tried_on_every_port() -> None:
    with pytest.raises(ValueError, match=r"cannot listen on 198\.51\.100\.1"):
        open_listener("198.51.100.1", None)
