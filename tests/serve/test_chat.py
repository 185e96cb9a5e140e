"""Replies over HTTP are those of the chatbot."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from tests.chats import reversed_chatbot
from tests.serve.client import Response, Server
from tests.serve.test_predictions import close
from tests.serve.test_queue import ImmediateLoop

from regard.options import ChatOptions
from regard.predict import Chatbot, reply_attention
from regard.serve.chat_requests import ChatRequest
from regard.serve.chat_service import ChatService
from regard.serve.metrics import Metrics
from regard.serve.queue import ChatJob, PendingResponse
from regard.serve.services import make_service
from regard.serve.settings import ServerLimits
from regard.serve.worker import start_workers

HISTORY = ["my name is Anna", "hello Anna", "what is my name?"]
SAMPLED: dict[str, Any] = {"temperature": 1.3, "seed": 4}


def post(server: Server, **body: Any) -> Response:
    return server.request("/chat", {"max_tokens": 8, **body})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 1, "turns": 1},
        {"beam": 4, "nbest": 3, "length_penalty": 0.5},
        {"nbest": 7},
        {**SAMPLED, "nbest": 2, "top_k": 50},
        {**SAMPLED, "stop": ["dog", "it"], "max_tokens": 30},
        {"no_repeat": 1, "min_tokens": 3},
    ],
    ids=lambda options: " ".join(options) or "default",
)
def test_a_history_is_replied_to_as_by_the_chatbot(
    server_of_labels: Server, chatbot: Chatbot, options: dict[str, Any]
) -> None:
    response = post(server_of_labels, history=HISTORY, **options)
    assert response.status == 200, response.body
    if options == {"nbest": 7}:
        options = {**options, "beam": 7}  # a request need not raise the beam width itself
    expected = chatbot(HISTORY, **{"max_tokens": 8, **options}).to_json()
    assert response.json["model"] == "chats"
    assert close(response.json["replies"], [json.loads(json.dumps(expected))])


def test_several_histories_are_replied_to_in_order_each_with_its_own_fault(
    server_of_labels: Server, chatbot: Chatbot
) -> None:
    replies = post(server_of_labels, history=[HISTORY, [" ", "\t"], HISTORY[:1]]).json["replies"]
    assert [replies[0]["text"], replies[2]["text"]] == [
        reply.text for reply in chatbot([HISTORY, HISTORY[:1]], max_tokens=8)
    ]
    assert "no text to reply to" in replies[1]["fault"]


def test_a_string_is_the_only_turn(server_of_labels: Server) -> None:
    single, listed = (post(server_of_labels, history=history).json for history in (HISTORY[0], HISTORY[:1]))
    assert single == listed


def test_attention_is_that_of_the_reply_to_its_history(server_of_labels: Server, chatbot: Chatbot) -> None:
    (reply,) = post(server_of_labels, history=HISTORY, attention=True, turns=2, **SAMPLED).json["replies"]
    expected = reply_attention(chatbot, HISTORY, reply["text"], turns=2).to_json()
    assert expected["unread"] == 1
    assert close(reply["attention"], json.loads(json.dumps(expected)))


def test_a_reply_without_text_attends_to_nothing(server_of_labels: Server, chatbot: Chatbot) -> None:
    first = chatbot(HISTORY, beam=1, max_tokens=1).text
    (reply,) = post(server_of_labels, history=HISTORY, attention=True, beam=1, stop=[first]).json["replies"]
    assert (reply["text"], reply["attention"]) == ("", None)


def test_many_turns_are_read_as_far_as_the_model_reads_them(server_of_labels: Server) -> None:
    long = post(server_of_labels, history=["a"] * 196 + HISTORY, turns=3)
    assert long.status == 200
    assert close(long.json["replies"], post(server_of_labels, history=HISTORY, turns=3).json["replies"])


@pytest.mark.parametrize(
    "options",
    [{}, {"beam": 1}, SAMPLED, {**SAMPLED, "stop": ["e is", "dog"], "max_tokens": 60}],
    ids=["beam", "greedy", "sample", "stop"],
)
def test_streamed_text_grows_to_the_reply(server_of_labels: Server, options: dict[str, Any]) -> None:
    body = {"history": [HISTORY, HISTORY[:1]], "max_tokens": 20, **options}
    response = post(server_of_labels, stream=True, **body)
    assert response.headers["content-type"] == "application/x-ndjson"
    events = [json.loads(line) for line in response.body.splitlines()]
    expected = post(server_of_labels, **body).json["replies"]
    for index, reply in enumerate(expected):
        *partial, last = [event for event in events if event["line"] == index]
        assert close(last["reply"], reply)
        assert [token for event in partial for token in event["tokens"]] == reply["tokens"]
        texts = [*(event["text"] for event in partial), reply["text"]]
        assert all(after.startswith(before) for before, after in pairwise(texts))
        assert options.get("beam") != 1 or len(partial) == 20  # a beam may agree on its first token at the end only


def test_simultaneous_clients_with_different_options_get_the_replies_of_single_ones(
    server_of_labels: Server, chatbot: Chatbot
) -> None:
    variants: list[dict[str, Any]] = [{}, {"beam": 1}, {"temperature": 1.0, "seed": 2}, {"beam": 8, "nbest": 8}]
    requests = [(HISTORY[:turns], options) for turns in (1, 3) for options in variants] * 2
    with ThreadPoolExecutor(8) as clients:
        responses = list(
            clients.map(lambda asked: post(server_of_labels, history=asked[0], **asked[1]).json["replies"], requests)
        )
    for (history, options), replies in zip(requests, responses, strict=True):
        assert replies[0]["text"] == chatbot(history, max_tokens=8, **options).text


def test_a_streamed_reply_stops_when_the_client_leaves(server_of_labels: Server) -> None:
    before = server_of_labels.metric("regard_clients_left_total"), server_of_labels.metric("regard_tokens_total")
    body = {"history": HISTORY, "min_tokens": 999, "max_tokens": 1000, "stream": True}
    connection = server_of_labels.send(body, "/chat")
    assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    connection.close()
    server_of_labels.wait_for("regard_clients_left_total", before[0] + 1)
    while server_of_labels.metric("regard_running_sentences"):
        pass
    assert server_of_labels.metric("regard_tokens_total") == before[1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "history: Field required"),
        ({"history": []}, "at least 1 item"),
        ({"history": [[]]}, "at least 1 item"),
        ({"history": ["a", ["b"]]}, "valid string"),
        ({"history": [1]}, "valid string"),
        ({"history": None}, "valid string"),
        ({"history": ["", " "]}, "no text to reply to"),
        ({"history": [["a"]] * 11}, "this server allows 10"),
        ({"history": ["a"] * 500}, "there are 500 characters, and this server allows 400; send only the last turns"),
        ({"history": "\ufdfa" * 100}, "characters after normalisation"),
        ({"history": "a", "max_tokens": 1001}, "this server allows 1000"),
        ({"history": [["a"]] * 10, "max_tokens": 1000, "nbest": 5}, "50000 together"),
        ({"history": [["a"]] * 2, "max_tokens": 1000, "attention": True}, "allows 1000 with attention"),
        ({"history": "a", "beam": 2, "temperature": 0.5}, "'beam' needs beam search"),
        ({"history": "a", "beam": 33}, "this server allows 32"),
        ({"history": "a", "min_tokens": 9}, "'min_tokens' is 9"),
        ({"history": "a", "turns": 0}, "turns"),
        ({"history": "a", "stop": [""]}, "stop"),
        ({"history": "a", "candidates": 3}, "Extra inputs"),
        ({"history": "a", "roles": ["user"]}, "Extra inputs"),
    ],
)
def test_a_bad_request_is_refused_with_a_reason(server_of_labels: Server, body: dict[str, Any], message: str) -> None:
    response = post(server_of_labels, **body)
    assert response.status == 422, response.body
    assert message in response.json["message"]


def test_a_turn_of_a_megabyte_is_refused_unread(server_of_labels: Server) -> None:
    assert post(server_of_labels, history="a" * 2**20).status == 413


@pytest.mark.parametrize("turn", ["\x00\x01\x1b[31m", "\u200b", "\t\n a \r\n", "\U0001f600", "<s> </s> <you>"])
def test_any_characters_are_replied_to(server_of_labels: Server, turn: str) -> None:
    response = post(server_of_labels, history=[turn, "a", turn], attention=True)
    assert response.status == 200, response.body
    assert len(response.json["replies"][0]["attention"]["turns"]) == 3


def test_a_server_without_chatbots_names_the_routes_it_has(server: Server) -> None:
    response = post(server, history="a")
    assert response.status == 404
    assert "its models answer /translate" in response.json["message"]
    assert post(server, history="a", model="again").json["message"].startswith("this model answers /translate")


def test_the_fields_of_a_request_are_the_options_of_chat() -> None:
    declared = {option.name for option in ChatOptions.declared() if option.http}
    own = {"history", "model", "stream", "attention"}
    assert set(ChatRequest.model_fields) == declared | own
    assert "turns" in declared


def test_reranked_replies_are_those_of_the_chatbot_and_cannot_be_streamed(chatbot: Chatbot) -> None:
    reranked = chatbot.reranked_by(reversed_chatbot(chatbot))
    service = make_service("reranked", reranked, ServerLimits(), Metrics())
    assert isinstance(service, ChatService)
    asked = {"history": HISTORY, "max_tokens": 6, "nbest": 2, "temperature": 1.2}
    request = ChatRequest.model_validate(asked)
    options, results = request.options(reranked, ServerLimits()), dict[int, Any]()
    response = PendingResponse(ImmediateLoop(), results.__setitem__)
    job = ChatJob(response, 0, tuple(HISTORY), options, options.with_candidates(), reranked.longest)
    assert job.rows == options.candidates
    service.queue.put([job])
    service.queue.close()
    for worker in start_workers(service):
        worker.join()
    expected = reranked(HISTORY, max_tokens=6, nbest=2, temperature=1.2)
    assert close(results[0].to_json(), expected.to_json())
    with pytest.raises(ValueError, match="without 'stream'"):
        ChatRequest.model_validate({**asked, "stream": True}).options(reranked, ServerLimits())
