"""The explorer while its model is trained in the background, and its page."""

from pathlib import Path

import pytest
from tests.fork_server import forked_python
from tests.serve import explorer_server
from tests.serve.client import running_server
from tests.serve.test_explorer import connected, receive, receive_answer, send

ENDLESS = "train.steps=100000"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A built page."""
    (tmp_path / "page" / "assets").mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_text("<title>regard</title>", encoding="utf-8")
    (tmp_path / "page" / "assets" / "main.js").write_text("let seen = 1", encoding="utf-8")
    return tmp_path / "page"


def command(page: Path, folder: Path, *overrides: str) -> list[str]:
    return [forked_python(), str(explorer_server.__file__), str(page), str(folder), *overrides]


def test_a_model_is_trained_once_with_progress(page: Path, tmp_path: Path) -> None:
    with running_server(command(page, tmp_path / "run")) as running:
        with connected(running) as socket:
            send(socket, id=4, kind="models")
            messages = receive_answer(socket, 4)
            assert {message["id"] for message in messages} == {4}
            assert [message["kind"] for message in messages[:-1]] == ["training"] * (len(messages) - 1)
            assert messages[-1]["models"][0]["name"] == "tiny"
            last_steps = [message for message in messages[:-1] if message.get("step") == 4]
            assert last_steps
            assert {"message", "done", "steps", "loss"} <= last_steps[-1].keys()
            assert [message["done"] for message in last_steps] == [1.0] * len(last_steps)
            send(socket, id=5, kind="read", source="I can go")
            assert receive_answer(socket, 5)[-1]["kind"] == "heads"
        assert running.request("/translate", {"source": "I can go"}).status == 200
    with running_server(command(page, tmp_path / "run")) as running, connected(running) as socket:
        send(socket, id=6, kind="models")
        assert not any("step" in message for message in receive_answer(socket, 6))


def test_requests_during_the_training_get_an_error_and_the_progress(page: Path, tmp_path: Path) -> None:
    with running_server(command(page, tmp_path / "run", ENDLESS)) as running, connected(running) as socket:
        send(socket, id=1, kind="read", source="I can go")
        assert receive(socket)["kind"] == "error"
        assert running.request("/translate", {"source": "I can go"}).status == 503
        waiting = running.request("/ready", **{"X-Request-ID": "early"})
        assert (waiting.status, waiting.json["code"]) == (503, "unavailable")
        assert waiting.headers["x-request-id"] == waiting.json["request_id"] == "early"
        assert running.request("/live").status == 200
        send(socket, id=2, channel="other", kind="models")
        while (message := receive(socket)).get("step", 0) == 0:
            assert message["kind"] == "training"
        assert running.stop() == 0
    # The next start resumes the training, and does not take it for finished.
    assert not (tmp_path / "run" / "finished").exists()


def test_a_training_that_fails_is_reported_with_its_reason(page: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with running_server(command(page, tmp_path / "file")) as running, connected(running) as socket:
        send(socket, id=1, kind="models")
        message = receive_answer(socket, 1)[-1]
        assert message["kind"] == "error"
        assert "file" in message["message"]
        assert running.process.poll() is None


def test_the_page_has_a_content_security_policy_and_no_path_leaves_its_folder(page: Path, tmp_path: Path) -> None:
    with running_server(command(page, tmp_path / "run", ENDLESS)) as running:
        response = running.request("/")
        assert (response.status, response.body) == (200, b"<title>regard</title>")
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert running.request("/assets/main.js").body == b"let seen = 1"
        for path in ("/assets/../index.html", "/assets/%2e%2e/%2e%2e/run/recipe.toml", "/assets//etc/passwd"):
            assert running.request(path).status == 404
        assert running.stop() == 0


def test_a_missing_page_says_how_to_build_it(tmp_path: Path) -> None:
    with running_server(command(tmp_path / "nothing", tmp_path / "run", ENDLESS)) as running:
        response = running.request("/")
        assert (response.status, b"`pip install .`" in response.body) == (503, True)
        assert running.process.poll() is None
