"""Faults, each in a server process of its own kind: it answers clearly, and goes on."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.serve.talk import SECONDS, Server, read_all, started

from regard.translator import Translator

HERE = Path(__file__).parent
TIME = 8.0


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where files tell the engine what to do."""
    return tmp_path_factory.mktemp("trouble")


@pytest.fixture(scope="module")
def faulty(memorised: Path, trouble: Path) -> Iterator[Server]:
    command = [sys.executable, str(HERE / "faulty.py"), str(memorised), str(trouble), str(TIME)]
    with started(command, PYTHONPATH=str(HERE.parents[1])) as running:
        yield running


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def text_of(answer: bytes) -> str:
    found: str = json.loads(answer.split(b"\r\n\r\n", 1)[1])["translations"][0]["text"]
    return found


def finish(connection: socket.socket) -> bytes:
    """The answer on a connection that the server keeps open."""
    found = b""
    with connection:
        while b"\r\n\r\n" not in found or not found.endswith(b"}"):
            found += connection.recv(65536)
    return found


def test_a_worker_that_dies_costs_its_requests_a_clear_answer_and_nobody_else(
    faulty: Server, trouble: Path, translator: Translator, lines: list[str]
) -> None:
    (trouble / "hold").touch()
    together = [faulty.send({"source": f"<2de> {lines[0]}"}), faulty.send({"source": lines[1]})]
    faulty.until("regard_running_sentences", 1)
    (trouble / "die").touch()
    (trouble / "hold").unlink()
    said = [finish(each) for each in together]
    assert status_of(said[0]) == 500
    assert "worker failed" in json.loads(said[0].split(b"\r\n\r\n", 1)[1])["error"]
    assert status_of(said[1]) in (200, 500)  # it may have come in only after the fall
    (trouble / "die").unlink()
    assert faulty.figure("regard_worker_faults_total") >= 1
    after = faulty.ask("/translate", {"source": f"<2de> {lines[0]}"})
    assert after.json["translations"][0]["text"] == translator(f"<2de> {lines[0]}").text


def test_a_step_that_fails_costs_only_the_line_it_fails_for(
    faulty: Server, trouble: Path, translator: Translator, lines: list[str]
) -> None:
    (trouble / "hold").touch()
    bad = faulty.send({"source": f"<2de> {lines[0]}"})
    faulty.until("regard_running_sentences", 1)
    good = [faulty.send({"source": line}) for line in lines[:3]]
    faulty.until("regard_waiting_sentences", 3)
    (trouble / "fail").touch()
    (trouble / "hold").unlink()
    assert status_of(finish(bad)) == 500
    assert [text_of(finish(each)) for each in good] == [each.text for each in translator(lines[:3])]
    (trouble / "fail").unlink()


def test_who_leaves_while_in_a_batch_changes_nothing_for_the_others(
    faulty: Server, trouble: Path, translator: Translator, lines: list[str]
) -> None:
    before = faulty.figure("regard_clients_left_total")
    for each in ("hold", "meet"):
        (trouble / each).touch()
    first = faulty.send({"source": f"<2de> {lines[0]}"})
    faulty.until("regard_running_sentences", 1)
    leaves, stays = faulty.send({"source": lines[2]}), faulty.send({"source": lines[1]})
    faulty.until("regard_waiting_sentences", 2)
    (trouble / "hold").unlink()
    faulty.until("regard_running_sentences", 3)
    leaves.close()
    faulty.until("regard_clients_left_total", before + 1)
    (trouble / "meet").unlink()
    assert text_of(finish(first)) == translator(f"<2de> {lines[0]}").text
    assert text_of(finish(stays)) == translator(lines[1]).text


def test_a_full_queue_says_when_to_come_back_and_a_late_answer_is_none(
    faulty: Server, trouble: Path, lines: list[str]
) -> None:
    (trouble / "hold").touch()
    held = faulty.send({"source": f"<2de> {lines[0]}"})
    faulty.until("regard_running_sentences", 1)
    waiting = [faulty.send({"source": line}) for line in lines[:4]]
    faulty.until("regard_waiting_sentences", 4)
    refused = faulty.ask("/translate", {"source": lines[0]})
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert faulty.ask("/health").status == 200
    late = [status_of(finish(each)) for each in (held, *waiting)]
    (trouble / "hold").unlink()
    assert late == [504] * 5
    assert faulty.ask("/translate", {"source": lines[0]}).status == 200


def test_sigterm_under_load_answers_everything_that_was_accepted(
    faulty: Server, trouble: Path, translator: Translator, lines: list[str]
) -> None:
    """The last test of this server: it ends here."""
    idle = faulty.connect()
    (trouble / "hold").touch()
    accepted = [faulty.send({"source": f"<2de> {lines[0]}"})]
    faulty.until("regard_running_sentences", 1)
    accepted += [faulty.send({"source": line}) for line in lines[:4]]
    faulty.until("regard_waiting_sentences", 4)
    faulty.process.send_signal(signal.SIGTERM)
    while faulty.listens():
        pass
    (trouble / "hold").unlink()
    with ThreadPoolExecutor(5) as clients:
        said = list(clients.map(read_all, accepted))
    assert [status_of(each) for each in said] == [200] * 5
    assert [text_of(each) for each in said[1:]] == [each.text for each in translator(lines[:4])]
    assert read_all(idle) == b""
    assert faulty.process.wait(SECONDS) == 0
    assert faulty.process.stderr is not None
    assert b"stopped; " in faulty.process.stderr.read()


def test_a_model_file_that_is_cut_or_missing_is_told_at_start(memorised: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(memorised, broken)
    weights = broken / "model.safetensors"
    command = [sys.executable, "-m", "regard", "serve", str(broken), "--port", "0"]

    def told() -> str:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert said.returncode == 1
        assert len(said.stderr.splitlines()) == 1
        return said.stderr

    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors is damaged" in told()
    weights.unlink()
    assert "model.safetensors" in told()
