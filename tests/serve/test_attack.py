"""A mixture of good and hostile clients finds no wrong answer, no internal error and no traceback."""

from pathlib import Path

from tests.serve.attack import attack, expected_texts
from tests.serve.client import SECONDS, running_server
from tests.serve.test_explorer import look_command

ACTIONS = 480


def test_an_attack_by_several_clients_finds_nothing(memorised: Path, lines: list[str]) -> None:
    expected = expected_texts(memorised, lines)
    with running_server(look_command(str(memorised))) as server:
        assert attack(server, expected, ACTIONS).total() == ACTIONS
        assert server.metric("regard_worker_faults_total") == 0
        server.process.terminate()
        assert server.process.wait(SECONDS) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == b"regard: stopped\n"
