"""A model that is made while one watches, and the page around it."""

import sys
from pathlib import Path

import pytest
from tests.serve import looking
from tests.serve.talk import started
from tests.serve.test_look import ask, hear, hear_all, talking


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page as it is built."""
    (tmp_path / "page" / "assets").mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_text("<title>regard</title>", encoding="utf-8")
    (tmp_path / "page" / "assets" / "main.js").write_text("let seen = 1", encoding="utf-8")
    return tmp_path / "page"


def command(page: Path, folder: Path, *overrides: str) -> list[str]:
    return [sys.executable, str(looking.__file__), str(page), str(folder), *overrides]


def test_a_model_is_made_while_one_watches_and_found_the_next_time(page: Path, tmp_path: Path) -> None:
    with started(command(page, tmp_path / "made")) as running:
        with talking(running) as socket:
            ask(socket, id=4, kind="models")
            heard = hear_all(socket, 4)
            assert {message["id"] for message in heard} == {4}
            assert [message["kind"] for message in heard[:-1]] == ["making"] * (len(heard) - 1)
            assert heard[-1]["models"][0]["name"] == "tiny"
            told = [message for message in heard[:-1] if message.get("step") == 4]
            assert told
            assert {"message", "done", "steps", "loss"} <= told[-1].keys()
            assert [each["done"] for each in told] == [1.0] * len(told)
            ask(socket, id=5, kind="read", source="I can go")
            assert hear_all(socket, 5)[-1]["kind"] == "heads"
        assert running.ask("/translate", {"source": "I can go"}).status == 200
    with started(command(page, tmp_path / "made")) as running, talking(running) as socket:
        ask(socket, id=6, kind="models")
        assert not any("step" in message for message in hear_all(socket, 6))


def test_what_is_asked_before_there_is_a_model_is_told_to_wait(page: Path, tmp_path: Path) -> None:
    with started(command(page, tmp_path / "made", "train.steps=100000")) as running, talking(running) as socket:
        ask(socket, id=1, kind="read", source="I can go")
        assert "no model here yet" in hear(socket)["message"]
        assert running.ask("/translate", {"source": "I can go"}).status == 503
        ask(socket, id=2, channel="other", kind="models")
        while (heard := hear(socket)).get("step", 0) == 0:
            assert heard["kind"] == "making"
        assert running.stop() == 0
    # What was begun goes on the next time, and is not taken for made.
    assert not (tmp_path / "made" / "finished").exists()


def test_why_a_model_cannot_be_made_is_told(page: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with started(command(page, tmp_path / "file")) as running, talking(running) as socket:
        ask(socket, id=1, kind="models")
        heard = hear_all(socket, 1)[-1]
        assert heard["kind"] == "error"
        assert "file" in heard["message"]
        assert running.process.poll() is None


def test_the_page_comes_with_rules_that_keep_it_to_this_server(page: Path, tmp_path: Path) -> None:
    with started(command(page, tmp_path / "made", "train.steps=100000")) as running:
        said = running.ask("/")
        assert (said.status, said.body) == (200, b"<title>regard</title>")
        assert "default-src 'self'" in said.headers["content-security-policy"]
        assert running.ask("/assets/main.js").body == b"let seen = 1"
        for path in ("/assets/../index.html", "/assets/%2e%2e/%2e%2e/made/recipe.toml", "/assets//etc/passwd"):
            assert running.ask(path).status == 404
        assert running.stop() == 0


def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    with started(command(tmp_path / "nothing", tmp_path / "made", "train.steps=100000")) as running:
        said = running.ask("/")
        assert (said.status, b"make web" in said.body) == (503, True)
        assert running.process.poll() is None
