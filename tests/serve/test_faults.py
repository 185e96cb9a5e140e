"""Faults inside a server process: it reports them clearly, and continues."""

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fork_server import forked_python
from tests.serve.client import SECONDS, Server, read_all, running_server

from regard.predict import Translator

HERE = Path(__file__).parent
TIME_LIMIT = 8.0  # of a request, in seconds


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files that the faulty engine obeys."""
    return tmp_path_factory.mktemp("switches")


@pytest.fixture(scope="module")
def faulty(memorised: Path, switches: Path) -> Iterator[Server]:
    command = [forked_python(), str(HERE / "faulty_server.py"), str(memorised), str(switches), str(TIME_LIMIT)]
    with running_server(command) as running:
        yield running


def status_of(response: bytes) -> int:
    return int(response.split()[1])


def text_of(response: bytes) -> str:
    text: str = json.loads(response.split(b"\r\n\r\n", 1)[1])["translations"][0]["text"]
    return text


def read_response(connection: socket.socket) -> bytes:
    """Read the response on a connection that the server keeps open."""
    data = b""
    with connection:
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            data += connection.recv(65536)
    return data


def test_a_worker_that_fails_reports_it_to_its_requests_only_and_restarts(
    faulty: Server, switches: Path, translator: Translator, lines: list[str]
) -> None:
    (switches / "hold").touch()
    sent = [faulty.send({"source": f"<2de> {lines[0]}"}), faulty.send({"source": lines[1]})]
    faulty.wait_for("regard_running_sentences", 1)
    (switches / "die").touch()
    (switches / "hold").unlink()
    responses = [read_response(connection) for connection in sent]
    assert status_of(responses[0]) == 500
    assert "worker failed" in json.loads(responses[0].split(b"\r\n\r\n", 1)[1])["error"]
    assert status_of(responses[1]) in (200, 500)  # it may have been taken only after the restart
    (switches / "die").unlink()
    assert faulty.metric("regard_worker_faults_total") >= 1
    after = faulty.request("/translate", {"source": f"<2de> {lines[0]}"})
    assert after.json["translations"][0]["text"] == translator(f"<2de> {lines[0]}").text


def test_a_step_that_fails_affects_only_the_line_that_causes_it(
    faulty: Server, switches: Path, translator: Translator, lines: list[str]
) -> None:
    (switches / "hold").touch()
    bad = faulty.send({"source": f"<2de> {lines[0]}"})
    faulty.wait_for("regard_running_sentences", 1)
    good = [faulty.send({"source": line}) for line in lines[:3]]
    faulty.wait_for("regard_waiting_sentences", 3)
    (switches / "fail").touch()
    (switches / "hold").unlink()
    assert status_of(read_response(bad)) == 500
    expected = [translation.text for translation in translator(lines[:3])]
    assert [text_of(read_response(connection)) for connection in good] == expected
    (switches / "fail").unlink()


def test_a_client_that_leaves_a_batch_changes_nothing_for_the_others(
    faulty: Server, switches: Path, translator: Translator, lines: list[str]
) -> None:
    before = faulty.metric("regard_clients_left_total")
    for name in ("hold", "meet"):
        (switches / name).touch()
    first = faulty.send({"source": f"<2de> {lines[0]}"})
    faulty.wait_for("regard_running_sentences", 1)
    leaves, stays = faulty.send({"source": lines[2]}), faulty.send({"source": lines[1]})
    faulty.wait_for("regard_waiting_sentences", 2)
    (switches / "hold").unlink()
    faulty.wait_for("regard_running_sentences", 3)
    leaves.close()
    faulty.wait_for("regard_clients_left_total", before + 1)
    (switches / "meet").unlink()
    assert text_of(read_response(first)) == translator(f"<2de> {lines[0]}").text
    assert text_of(read_response(stays)) == translator(lines[1]).text


def test_a_full_queue_says_when_to_retry_and_a_late_result_is_a_timeout(
    faulty: Server, switches: Path, lines: list[str]
) -> None:
    (switches / "hold").touch()
    held = faulty.send({"source": f"<2de> {lines[0]}"})
    faulty.wait_for("regard_running_sentences", 1)
    waiting = [faulty.send({"source": line}) for line in lines[:4]]
    faulty.wait_for("regard_waiting_sentences", 4)
    refused = faulty.request("/translate", {"source": lines[0]})
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert faulty.request("/health").status == 200
    late = [status_of(read_response(connection)) for connection in (held, *waiting)]
    (switches / "hold").unlink()
    assert late == [504] * 5
    assert faulty.request("/translate", {"source": lines[0]}).status == 200


def test_sigterm_under_load_finishes_every_accepted_request(
    faulty: Server, switches: Path, translator: Translator, lines: list[str]
) -> None:
    """This test ends the server, so it is the last one that uses it."""
    idle = faulty.connect()
    (switches / "hold").touch()
    accepted = [faulty.send({"source": f"<2de> {lines[0]}"})]
    faulty.wait_for("regard_running_sentences", 1)
    accepted += [faulty.send({"source": line}) for line in lines[:4]]
    faulty.wait_for("regard_waiting_sentences", 4)
    faulty.process.send_signal(signal.SIGTERM)
    while faulty.is_listening():
        pass
    (switches / "hold").unlink()
    with ThreadPoolExecutor(5) as clients:
        responses = list(clients.map(read_all, accepted))
    assert [status_of(response) for response in responses] == [200] * 5
    expected = [translation.text for translation in translator(lines[:4])]
    assert [text_of(response) for response in responses[1:]] == expected
    assert read_all(idle) == b""
    assert faulty.process.wait(SECONDS) == 0
    assert faulty.process.stderr is not None
    assert b"stopped; " in faulty.process.stderr.read()


def test_damaged_or_missing_weights_are_an_error_at_start(memorised: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(memorised, broken)
    weights = broken / "model.safetensors"
    command = [forked_python(), "-m", "regard", "serve", str(broken), "--port", "0"]

    def error() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        return done.stderr

    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors is damaged" in error()
    weights.unlink()
    assert "model.safetensors" in error()
