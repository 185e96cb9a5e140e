"""`regard look`: what it says when it cannot begin, and which port it takes."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.look import PORT, listening_on


def told(*words: str) -> str:
    """The sentence with which `regard look` refuses."""
    said = CliRunner().invoke(app, ["look", *words])
    assert said.exit_code != 0
    return str(said.exception)


def test_a_missing_run_is_told_before_anything_is_served(tmp_path: Path) -> None:
    assert "there is no run at" in told(str(tmp_path / "nowhere"), "--port", "0")


def test_two_runs_of_one_name_are_told_apart_or_refused(memorised: Path) -> None:
    assert "two runs are named memorised" in told(str(memorised), str(memorised), "--port", "0")


def test_a_port_that_was_asked_for_and_is_taken_is_told(memorised: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "another program listens there" in told(str(memorised), "--port", str(port))


def test_where_the_usual_port_is_taken_the_next_free_one_is() -> None:
    with listening_on("127.0.0.1", None) as first:
        first.listen()
        with listening_on("127.0.0.1", None) as second:
            ports = [each.getsockname()[1] for each in (first, second)]
    assert PORT <= ports[0] < ports[1]


def test_a_wrong_address_is_not_tried_on_every_port() -> None:
    with pytest.raises(ValueError, match=r"cannot listen on 198\.51\.100\.1"):
        listening_on("198.51.100.1", None)
