"""The explorer's WebSocket, with a real server."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import forked_python
from tests.serve.attack import UPGRADE
from tests.serve.client import SECONDS, Server, read_all, running_server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from regard.explore import Explorer, read_frame
from regard.predict import Translator
from regard.serve.explorer_socket import MAX_CHANNELS
from regard.serve.settings import ServerLimits

Message = dict[str, Any]
LONG = "the cat is tired and " * 30
"""A line that takes some time to translate."""


def look_command(*arguments: str) -> list[str]:
    """Return a command that runs `regard look` on a free port, without a browser."""
    return [forked_python(), "-m", "regard", "look", *arguments, "--port", "0", "--device", "cpu", "--no-browser"]


@pytest.fixture(scope="module")
def explorer(memorised: Path) -> Iterator[Server]:
    with running_server(look_command(str(memorised), f"again={memorised}")) as running:
        yield running


@contextmanager
def connected(server: Server, origin: str | None = None) -> Iterator[ClientConnection]:
    """Open a WebSocket; with an origin as a browser does, without as a program."""
    headers = {"Origin": origin} if origin else {}
    url = f"ws://127.0.0.1:{server.port}/look"
    with connect(url, additional_headers=headers, open_timeout=SECONDS, max_size=None, max_queue=None) as socket:
        yield socket


def text_frame(payload: bytes) -> bytes:
    """Return a WebSocket frame with a text, masked with zeros."""
    size = len(payload)
    length = bytes([128 | size]) if size < 126 else bytes([254]) + size.to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + payload


def send(socket: ClientConnection, **question: Any) -> None:
    socket.send(json.dumps(question))


def receive(socket: ClientConnection) -> Message:
    """Return the next message."""
    frame = socket.recv(SECONDS)
    assert isinstance(frame, bytes)
    return read_frame(frame)[0]


def receive_answer(socket: ClientConnection, number: int) -> list[Message]:
    """Return all messages up to the last one that answers a question."""
    messages = [receive(socket)]
    while not (messages[-1]["last"] and messages[-1]["id"] == number):
        messages.append(receive(socket))
    return messages


def test_an_answer_over_the_websocket_equals_that_of_the_library(
    explorer: Server, translator: Translator, lines: list[str]
) -> None:
    question = {"id": 3, "kind": "read", "source": lines[0], "beam": 3}
    expected = [read_frame(frame)[0] for frame in Explorer({"memorised": translator}).answer(question)]
    with connected(explorer) as socket:
        send(socket, **question)
        messages = receive_answer(socket, 3)
    assert [message["kind"] for message in messages] == [message["kind"] for message in expected]
    first, second = (
        next(message for message in answer if message["kind"] == "result") for answer in (messages, expected)
    )
    rounded = {"logprobs": 0, "candidates": 0, "score": 0}
    assert {**first, **rounded} == {**second, **rounded}
    assert first["logprobs"] == pytest.approx(second["logprobs"], abs=1e-4)


def test_every_kind_of_question_is_answered_by_every_model(explorer: Server, lines: list[str]) -> None:
    with connected(explorer) as socket:
        send(socket, id=0, kind="models")
        names = [model["name"] for model in receive(socket)["models"]]
        assert names == ["memorised", "again"]
        for name in names:
            common = {"model": name, "source": lines[1]}
            point = {"part": "cross", "layer": 0, "head": 0, "query": 0, "target_ids": [5, 6]}
            questions = [
                ("tokens", common),
                ("read", common),
                ("row", {**common, **point}),
                ("maths", {**common, **point}),
                ("beam", common),
                ("positions", {"model": name}),
            ]
            for number, (kind, fields) in enumerate(questions, 1):
                send(socket, id=number, kind=kind, **fields)
                assert receive_answer(socket, number)[-1]["kind"] == {"read": "heads"}.get(kind, kind)


def test_a_language_model_answers_beside_a_translator(memorised: Path, memorised_text: Path, lines: list[str]) -> None:
    with (
        running_server(look_command(f"text={memorised_text}", str(memorised))) as running,
        connected(running) as socket,
    ):
        send(socket, id=1, kind="read", text="I can")
        send(socket, id=2, channel="other", kind="read", model="memorised", source=lines[0])
        messages = [receive(socket)]
        while sum(message["last"] for message in messages) < 2:
            messages.append(receive(socket))
        results = {message["id"]: message for message in messages if message["kind"] == "result"}
        assert results[1]["text"].startswith("I can")
        assert results[1]["prompt"] > 0
        assert results[2]["prompt"] == 0
        assert running.request("/translate", {"source": lines[0]}).status == 200


def test_a_newer_question_about_a_text_ends_the_effects_of_erasing_its_words(classifier_run: Path) -> None:
    text = "The cat sees a dog. " * 12
    with running_server(look_command(str(classifier_run))) as running, connected(running) as socket:
        send(socket, id=1, kind="classify", text=text)
        assert receive_answer(socket, 1)[-1]["kind"] == "document"
        send(socket, id=2, kind="effects", text=text)
        assert receive(socket)["level"] == "sentence"
        send(socket, id=3, kind="classify", text=text, changes=[{"op": "erase", "level": "word", "numbers": [1]}])
        answer = receive_answer(socket, 3)
        assert answer[-1]["erased"] == [1]
        send(socket, id=4, channel="other", kind="effects", text=text)
        assert {message["id"] for message in receive_answer(socket, 4)} == {4}


def test_the_http_api_of_a_language_model_alone_says_that_there_is_none(memorised_text: Path) -> None:
    with running_server(look_command(str(memorised_text))) as running, connected(running) as socket:
        for number in range(3):
            send(socket, id=number, kind="read", text="I can go and " * number + "I")
        messages = receive_answer(socket, 2)
        assert messages[-1]["kind"] == "heads"
        answer = running.request("/translate", {"source": "I can go"})
        assert answer.status == 404
        assert "serves translation models" in answer.json["error"]


def test_an_invalid_question_does_not_close_the_connection(explorer: Server, lines: list[str]) -> None:
    with connected(explorer) as socket:
        for invalid in ("{", "[]", '{"kind": "read"}', '{"id": 9, "kind": "tokens", "source": "a", "model": "nobody"}'):
            socket.send(invalid)
            assert receive(socket)["kind"] == "error"
        socket.send(b"\xff\xfe\x00")
        assert receive(socket)["kind"] == "error"
        socket.send(json.dumps({"kind": "tokens", "source": "a" * 2_000_000}))
        assert "at most" in receive(socket)["message"]
        send(socket, id=1, kind="tokens", source=lines[0])
        assert receive(socket)["kind"] == "tokens"


def test_a_newer_question_makes_an_older_one_of_its_channel_stale(explorer: Server, lines: list[str]) -> None:
    with connected(explorer) as socket:
        send(socket, id=1, channel="main", kind="read", source=LONG, beam=5)
        send(socket, id=2, channel="main", kind="read", source=lines[0])
        messages = receive_answer(socket, 2)
        assert not any(message["last"] for message in messages if message["id"] == 1)
        send(socket, id=3, channel="main", kind="tokens", source=lines[0])
        assert [message["id"] for message in receive_answer(socket, 3)] == [3]


def test_channels_are_independent_and_tokens_wait_for_no_model(explorer: Server, lines: list[str]) -> None:
    with connected(explorer) as socket:
        send(socket, id=1, channel="main", kind="read", source=LONG, beam=5)
        send(socket, id=2, channel="tokens", kind="tokens", source=lines[0])
        messages = receive_answer(socket, 2)
        assert not any(message["last"] for message in messages[:-1])
        assert receive_answer(socket, 1)[-1]["kind"] == "heads"


def test_the_number_of_channels_is_limited(explorer: Server) -> None:
    with connected(explorer) as socket:
        for number in range(MAX_CHANNELS + 1):
            send(socket, id=number, channel=f"c{number}", kind="read", source=LONG, beam=5)
        message = receive(socket)
        while message["kind"] != "error":
            message = receive(socket)
        assert (message["id"], "channels" in message["message"]) == (MAX_CHANNELS, True)


def test_two_clients_at_once_receive_their_own_answers(explorer: Server, lines: list[str]) -> None:
    with connected(explorer) as first, connected(explorer) as second:
        for number in range(1, 6):
            send(first, id=number, kind="read", source=lines[number])
            changes = [{"op": "block", "tokens": [0]}]
            send(second, id=100 + number, kind="read", source=lines[-number], changes=changes)
        answers = receive_answer(first, 5), receive_answer(second, 105)
    assert {message["id"] for message in answers[0]} <= set(range(1, 6))
    assert {message["id"] for message in answers[1]} <= set(range(101, 106))


def test_changes_of_a_client_do_not_affect_other_requests(
    explorer: Server, translator: Translator, lines: list[str]
) -> None:
    changes = [{"op": "ablate", "part": "cross", "layer": layer, "heads": [0, 1]} for layer in range(2)]
    with connected(explorer) as socket:
        for number, line in enumerate(lines[:6]):
            send(socket, id=number, channel=str(number), kind="read", source=line, changes=changes)
        body = {"source": lines[:6], "alignments": True}
        translations = explorer.request("/translate", body).json["translations"]
        scored = explorer.request("/perplexity", {"source": lines[0], "target": translations[0]["text"]}).json
    expected = translator.translate(lines[:6], alignments=True)
    assert [translation["text"] for translation in translations] == [translation.text for translation in expected]
    assert [translation["alignment"] for translation in translations] == [
        [list(link) for link in translation.alignment or ()] for translation in expected
    ]
    assert scored["logprob"] == pytest.approx(expected[0].logprob, abs=1e-3)


def test_a_client_that_disconnects_during_an_answer_does_not_block_others(explorer: Server, lines: list[str]) -> None:
    for _ in range(3):
        with connected(explorer) as socket:
            send(socket, id=1, kind="read", source=LONG, beam=5)
    with connected(explorer) as socket:
        send(socket, id=2, kind="read", source=lines[0])
        assert receive_answer(socket, 2)[-1]["kind"] == "heads"
    assert explorer.request("/health").json["status"] == "ready"


def test_a_client_that_does_not_read_does_not_block_others(explorer: Server, lines: list[str]) -> None:
    with ExitStack() as stack:
        for number in range(3):
            unread = stack.enter_context(explorer.connect())
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.sendall(UPGRADE)
            assert unread.recv(1)
            for channel in range(MAX_CHANNELS):
                question = {"id": number, "channel": str(channel), "kind": "read", "source": LONG, "candidates": 50}
                unread.sendall(text_frame(json.dumps(question).encode()))
        with connected(explorer) as websocket:
            send(websocket, id=2, kind="read", source=lines[0])
            assert receive_answer(websocket, 2)[-1]["kind"] == "heads"


def test_text_that_is_not_utf8_closes_the_connection_without_a_word_in_the_log(explorer: Server) -> None:
    assert explorer.process.stderr is not None
    with explorer.connect() as connection:
        connection.sendall(UPGRADE)
        assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        connection.sendall(text_frame(b"\xff\xfe"))
        assert b"\x88\x02" + (1007).to_bytes(2, "big") in read_all(connection)
    os.set_blocking(explorer.process.stderr.fileno(), False)
    assert not explorer.process.stderr.read()


def test_websockets_count_as_connections(explorer: Server) -> None:
    limit = ServerLimits().connections
    with ExitStack() as stack:
        sockets = [stack.enter_context(explorer.connect()) for _ in range(limit)]
        for connection in sockets:
            connection.sendall(UPGRADE)
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        with pytest.raises(InvalidStatus, match="503"), connected(explorer):
            pass
        assert explorer.request("/models").status == 503
        assert explorer.request("/health").status == 200


def test_pages_of_other_origins_are_refused(explorer: Server) -> None:
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{explorer.port + 1}"):
        with pytest.raises(InvalidStatus), connected(explorer, origin):
            pass
        assert explorer.request("/models", Origin=origin).status == 403
    with connected(explorer, f"http://127.0.0.1:{explorer.port}") as socket:
        send(socket, id=1, kind="models")
        assert receive(socket)["kind"] == "models"


def test_unknown_host_names_are_refused(explorer: Server) -> None:
    for host in ("evil.example", f"evil.example:{explorer.port}", "127.0.0.1.evil.example", "a@127.0.0.1"):
        assert explorer.request("/models", Host=host).status == 403
        assert explorer.request("/", Host=host).status == 403
    for host in ("localhost", f"localhost:{explorer.port}", "127.0.0.1", "[::1]"):
        assert explorer.request("/models", Host=host).status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_an_answer_ends_the_server_with_exit_code_0(memorised: Path, number: signal.Signals) -> None:
    with running_server(look_command(str(memorised))) as running, connected(running) as socket:
        send(socket, id=1, kind="read", source=LONG, beam=5)
        receive(socket)
        running.process.send_signal(number)
        assert running.process.wait(SECONDS) == 0


def test_with_a_token_programs_send_it_and_browsers_log_in(memorised: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n", encoding="utf-8")
    with running_server(look_command(str(memorised), "--token-file", str(token))) as running:
        assert running.request("/").status == 401
        assert running.request("/models").status == 401
        assert running.request("/health").status == 200
        assert running.request("/models", Authorization="Bearer s3cret").status == 200
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Cookie": "regard_session=s3cret"}):
            with pytest.raises(InvalidStatus, match="403"), connect_with(running, headers):
                pass
        with connect_with(running, {"Authorization": "Bearer s3cret"}) as websocket:
            send(websocket, id=1, kind="models")
            assert receive(websocket)["kind"] == "models"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert running.request("/login", b"token=wrong", **form).status == 401
        assert running.request("/login", b"token=" + bytes(5000), **form).status == 413
        answer = running.request("/login", b"token=s3cret", **form)
        assert (answer.status, answer.headers["location"]) == (303, "/")
        assert "s3cret" not in answer.headers["set-cookie"]
        assert "HttpOnly" in answer.headers["set-cookie"]
        cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
        assert running.request("/", **cookie).status in (200, 503)  # 503 where the page is not built
        with connect_with(running, cookie) as websocket:
            send(websocket, id=1, kind="models")
            assert receive(websocket)["kind"] == "models"


def connect_with(server: Server, headers: dict[str, str]) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{server.port}/look", additional_headers=headers, open_timeout=SECONDS)
