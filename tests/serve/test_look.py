"""The explorer's conversation with a real server, over real WebSockets."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.serve.talk import SECONDS, Server, started
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from regard.analysis.look import Looker, read_frame
from regard.serve.look_talk import CHANNELS
from regard.translator import Translator

Message = dict[str, Any]
LONG = "the cat is tired and " * 30
"""A line that takes a while."""


def command(*told: str) -> list[str]:
    """`regard look`, on a port that is free, without a browser."""
    return [sys.executable, "-m", "regard", "look", *told, "--port", "0", "--device", "cpu", "--no-browser"]


@pytest.fixture(scope="module")
def looking(memorised: Path) -> Iterator[Server]:
    with started(command(str(memorised), f"again={memorised}")) as running:
        yield running


@contextmanager
def talking(server: Server, origin: str | None = None) -> Iterator[ClientConnection]:
    """A conversation, as a browser or a program has it."""
    told = {"Origin": origin} if origin else {}
    place = f"ws://127.0.0.1:{server.port}/look"
    with connect(place, additional_headers=told, open_timeout=SECONDS, max_size=None, max_queue=None) as socket:
        yield socket


def ask(socket: ClientConnection, **question: Any) -> None:
    socket.send(json.dumps(question))


def hear(socket: ClientConnection) -> Message:
    """The next message."""
    frame = socket.recv(SECONDS)
    assert isinstance(frame, bytes)
    return read_frame(frame)[0]


def hear_all(socket: ClientConnection, number: int) -> list[Message]:
    """Messages up to the last of an answer."""
    found = [hear(socket)]
    while not (found[-1]["last"] and found[-1]["id"] == number):
        found.append(hear(socket))
    return found


def test_what_is_heard_over_a_socket_is_what_the_model_says(
    looking: Server, translator: Translator, lines: list[str]
) -> None:
    question = {"id": 3, "kind": "read", "source": lines[0], "beam": 3}
    meant = [read_frame(frame)[0] for frame in Looker({"memorised": translator}).answer(question)]
    with talking(looking) as socket:
        ask(socket, **question)
        found = hear_all(socket, 3)
    assert [message["kind"] for message in found] == [message["kind"] for message in meant]
    said, told = (next(each for each in side if each["kind"] == "result") for side in (found, meant))
    assert {**said, "logprobs": 0, "candidates": 0, "score": 0} == {**told, "logprobs": 0, "candidates": 0, "score": 0}
    assert said["logprobs"] == pytest.approx(told["logprobs"], abs=1e-4)


def test_every_kind_of_question_is_answered_by_every_model(looking: Server, lines: list[str]) -> None:
    with talking(looking) as socket:
        ask(socket, id=0, kind="models")
        names = [model["name"] for model in hear(socket)["models"]]
        assert names == ["memorised", "again"]
        for name in names:
            told = {"model": name, "source": lines[1]}
            point = {"part": "cross", "layer": 0, "head": 0, "query": 0, "target_ids": [5, 6]}
            asked = [
                ("tokens", told),
                ("read", told),
                ("row", {**told, **point}),
                ("maths", {**told, **point}),
                ("beam", told),
                ("positions", {"model": name}),
            ]
            for number, (kind, more) in enumerate(asked, 1):
                ask(socket, id=number, kind=kind, **more)
                assert hear_all(socket, number)[-1]["kind"] == {"read": "heads"}.get(kind, kind)


def test_what_cannot_be_answered_leaves_the_conversation_open(looking: Server, lines: list[str]) -> None:
    with talking(looking) as socket:
        for bad in ("{", "[]", '{"kind": "read"}', '{"id": 9, "kind": "tokens", "source": "a", "model": "nobody"}'):
            socket.send(bad)
            assert hear(socket)["kind"] == "error"
        socket.send(b"\xff\xfe\x00")
        assert hear(socket)["kind"] == "error"
        socket.send(json.dumps({"kind": "tokens", "source": "a" * 2_000_000}))
        assert "at most" in hear(socket)["message"]
        ask(socket, id=1, kind="tokens", source=lines[0])
        assert hear(socket)["kind"] == "tokens"


def test_a_newer_question_of_a_channel_makes_the_older_one_stale(looking: Server, lines: list[str]) -> None:
    with talking(looking) as socket:
        ask(socket, id=1, channel="main", kind="read", source=LONG, beam=5)
        ask(socket, id=2, channel="main", kind="read", source=lines[0])
        heard = hear_all(socket, 2)
        assert not any(message["last"] for message in heard if message["id"] == 1)
        ask(socket, id=3, channel="main", kind="tokens", source=lines[0])
        assert [message["id"] for message in hear_all(socket, 3)] == [3]


def test_channels_do_not_disturb_each_other_and_tokens_wait_for_nobody(looking: Server, lines: list[str]) -> None:
    with talking(looking) as socket:
        ask(socket, id=1, channel="main", kind="read", source=LONG, beam=5)
        ask(socket, id=2, channel="tokens", kind="tokens", source=lines[0])
        heard = hear_all(socket, 2)
        assert not any(message["last"] for message in heard[:-1])
        assert hear_all(socket, 1)[-1]["kind"] == "heads"


def test_there_are_only_so_many_channels(looking: Server) -> None:
    with talking(looking) as socket:
        for number in range(CHANNELS + 1):
            ask(socket, id=number, channel=f"c{number}", kind="read", source=LONG, beam=5)
        heard = hear(socket)
        while heard["kind"] != "error":
            heard = hear(socket)
        assert (heard["id"], "channels" in heard["message"]) == (CHANNELS, True)


def test_two_browsers_at_once_hear_each_their_own(looking: Server, lines: list[str]) -> None:
    with talking(looking) as one, talking(looking) as other:
        for number in range(1, 6):
            ask(one, id=number, kind="read", source=lines[number])
            ask(other, id=100 + number, kind="read", source=lines[-number], changes=[{"op": "block", "tokens": [0]}])
        first, second = hear_all(one, 5), hear_all(other, 105)
    assert {message["id"] for message in first} <= set(range(1, 6))
    assert {message["id"] for message in second} <= set(range(101, 106))


def test_what_one_changes_another_does_not_see(looking: Server, translator: Translator, lines: list[str]) -> None:
    silent = [{"op": "ablate", "part": "cross", "layer": layer, "heads": [0, 1]} for layer in range(2)]
    with talking(looking) as socket:
        for number, line in enumerate(lines[:6]):
            ask(socket, id=number, channel=str(number), kind="read", source=line, changes=silent)
        asked = {"source": lines[:6], "alignments": True}
        found = looking.ask("/translate", asked).json["translations"]
        weighed = looking.ask("/perplexity", {"source": lines[0], "target": found[0]["text"]}).json
    meant = translator.translate(lines[:6], alignments=True)
    assert [each["text"] for each in found] == [each.text for each in meant]
    assert [each["alignment"] for each in found] == [[list(link) for link in each.alignment or ()] for each in meant]
    assert weighed["logprob"] == pytest.approx(meant[0].logprob, abs=1e-3)


def test_who_leaves_in_the_middle_of_an_answer_is_not_waited_for(looking: Server, lines: list[str]) -> None:
    for _ in range(3):
        with talking(looking) as socket:
            ask(socket, id=1, kind="read", source=LONG, beam=5)
    with talking(looking) as socket:
        ask(socket, id=2, kind="read", source=lines[0])
        assert hear_all(socket, 2)[-1]["kind"] == "heads"
    assert looking.ask("/health").json["status"] == "ready"


def test_the_page_of_another_server_may_not_ask(looking: Server) -> None:
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{looking.port + 1}"):
        with pytest.raises(InvalidStatus), talking(looking, origin):
            pass
        assert looking.ask("/models", Origin=origin).status == 403
    with talking(looking, f"http://127.0.0.1:{looking.port}") as socket:
        ask(socket, id=1, kind="models")
        assert hear(socket)["kind"] == "models"


def test_a_name_that_is_pointed_here_is_not_ours(looking: Server) -> None:
    for host in ("evil.example", f"evil.example:{looking.port}", "127.0.0.1.evil.example", "a@127.0.0.1"):
        assert looking.ask("/models", Host=host).status == 403
        assert looking.ask("/", Host=host).status == 403
    for host in ("localhost", f"localhost:{looking.port}", "127.0.0.1", "[::1]"):
        assert looking.ask("/models", Host=host).status == 200


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_with_a_conversation_open_and_a_question_under_way(
    memorised: Path, ending: signal.Signals
) -> None:
    with started(command(str(memorised))) as running, talking(running) as socket:
        ask(socket, id=1, kind="read", source=LONG, beam=5)
        hear(socket)
        running.process.send_signal(ending)
        assert running.process.wait(SECONDS) == 0
