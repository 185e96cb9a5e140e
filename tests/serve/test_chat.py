"""Replies over HTTP are those of the chatbot, in this server's form and in that of OpenAI."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from tests.serve.client import Response, Server, read_all
from tests.serve.test_predictions import close
from tests.serve.test_queue import ImmediateLoop

import regard
from regard.options import ChatOptions
from regard.predict import Chatbot, reply_attention
from regard.serve.chat_requests import ChatRequest
from regard.serve.chat_service import ChatService
from regard.serve.metrics import Metrics
from regard.serve.openai_chat import Completion, parse_completion_request
from regard.serve.queue import ChatJob, PendingResponse
from regard.serve.request_context import RequestContext
from regard.serve.service import PartialOutput, ServerFaultError
from regard.serve.services import make_service
from regard.serve.settings import ServerLimits
from regard.serve.worker import start_workers

HISTORY = ["my name is Anna", "hello Anna", "what is my name?"]
MESSAGES = [{"role": role, "content": turn} for role, turn in zip(("user", "assistant", "user"), HISTORY, strict=True)]
SAMPLED: dict[str, Any] = {"temperature": 1.3, "seed": 4}
COMPLETIONS = "/v1/chat/completions"


@pytest.fixture(scope="module")
def chatbot(untrained_runs: dict[str, Path]) -> Chatbot:
    loaded = regard.load(untrained_runs["chats"], "cpu")
    assert isinstance(loaded, Chatbot)
    return loaded


def post(server: Server, path: str = "/chat", **body: Any) -> Response:
    return server.request(path, {"max_tokens": 8, **body})


def complete(server: Server, messages: Any = MESSAGES, **body: Any) -> Response:
    return post(server, COMPLETIONS, messages=messages, **body)


def chunks(response: Response) -> list[Any]:
    """Return the chunks of a stream of server-sent events, without the end."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = response.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def delivered(events: list[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


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


@pytest.mark.parametrize("path", ["/chat", COMPLETIONS])
def test_a_turn_of_a_megabyte_is_refused_unread(server_of_labels: Server, path: str) -> None:
    content = "a" * 2**20
    body = {"history": content} if path == "/chat" else {"messages": [{"role": "user", "content": content}]}
    assert post(server_of_labels, path, **body).status == 413


@pytest.mark.parametrize("turn", ["\x00\x01\x1b[31m", "\u200b", "\t\n a \r\n", "\U0001f600", "<s> </s> <you>"])
def test_any_characters_are_replied_to(server_of_labels: Server, turn: str) -> None:
    response = post(server_of_labels, history=[turn, "a", turn], attention=True)
    assert response.status == 200, response.body
    assert len(response.json["replies"][0]["attention"]["turns"]) == 3


def test_a_server_without_chatbots_names_the_routes_it_has(server: Server) -> None:
    response = complete(server)
    assert response.status == 404
    assert "its models answer /translate" in response.json["error"]["message"]
    assert post(server, history="a", model="again").json["message"].startswith("this model answers /translate")


def test_messages_are_replied_to_as_by_the_chatbot(server_of_labels: Server, chatbot: Chatbot) -> None:
    response = complete(server_of_labels, model="chats", logprobs=True, **SAMPLED, n=2).json
    expected = chatbot(HISTORY, max_tokens=8, nbest=2, **SAMPLED)
    assert (response["object"], response["model"]) == ("chat.completion", "chats")
    for index, (choice, reply) in enumerate(zip(response["choices"], expected.nbest, strict=True)):
        assert (choice["index"], choice["message"]) == (index, {"role": "assistant", "content": reply.text})
        assert [token["token"] for token in choice["logprobs"]["content"]] == list(reply.tokens)
        logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
        assert close(logprobs, list(reply.token_logprobs[: len(reply.tokens)]))
    read, written = int(chatbot.encode([HISTORY]).lengths[0]), sum(len(reply.tokens) for reply in expected.nbest)
    assert response["usage"] == {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }


def test_a_reply_ends_at_a_stop_string_or_at_the_maximum_length(server_of_labels: Server, chatbot: Chatbot) -> None:
    whole = chatbot(HISTORY, beam=1, max_tokens=3).text
    cut = complete(server_of_labels, beam=1, max_completion_tokens=3).json["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == (whole, "length")
    stopped = complete(server_of_labels, beam=1, stop=whole).json["choices"][0]
    assert (stopped["message"]["content"], stopped["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize("options", [{}, SAMPLED, {**SAMPLED, "stop": ["dog"]}], ids=["beam", "sample", "stop"])
def test_chunks_of_a_streamed_completion_add_up_to_it(server_of_labels: Server, options: dict[str, Any]) -> None:
    whole = complete(server_of_labels, **options).json
    events = chunks(complete(server_of_labels, stream=True, **options))
    assert delivered(events) == whole["choices"][0]["message"]["content"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + [whole["choices"][0]["finish_reason"]]
    assert len(events) > 4 or options != SAMPLED


def test_a_stream_ends_with_its_usage_if_that_is_asked_for(server_of_labels: Server) -> None:
    *events, last = chunks(complete(server_of_labels, stream=True, stream_options={"include_usage": True}))
    assert all(event["usage"] is None for event in events)
    assert (last["choices"], last["usage"]) == ([], complete(server_of_labels).json["usage"])


def test_a_temperature_of_zero_searches_and_a_missing_seed_is_random(server_of_labels: Server) -> None:
    def text(**options: Any) -> str:
        content: str = complete(server_of_labels, max_tokens=30, **options).json["choices"][0]["message"]["content"]
        return content

    assert text(temperature=0, top_p=0.9, seed=3) == text()
    assert text(**SAMPLED) == text(**SAMPLED)
    assert text(temperature=1) != text(temperature=1)
    assert text(seed=-1) == text(seed=2**31 - 1)


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (HTTPException(504, "no response within 30 s"), "server_error", "no response within 30 s"),
        (ServerFaultError("no reply"), "server_error", "no reply"),
        (ValueError("too short"), "invalid_request_error", "too short"),
        (KeyError("secret"), "server_error", "internal error"),
    ],
)
def test_a_stream_that_fails_ends_with_an_error_in_the_form_of_openai(
    failure: Exception, kind: str, message: str
) -> None:
    asked = parse_completion_request(json.dumps({"messages": MESSAGES, "stream": True}).encode())
    completion = Completion(asked, "chats", RequestContext("name", is_openai=True))
    begun = completion.encode_event(0, PartialOutput(("▁a",), "a"))
    event, done, rest = completion.encode_event(None, failure).decode().split("\n\n")
    error = json.loads(event.removeprefix("data: "))["error"]
    assert (error["type"], error["message"]) == (kind, message)
    assert (done, rest) == ("data: [DONE]", "")
    assert b'"id": "chatcmpl-name"' in begun


def test_instructions_are_ignored_and_messages_of_one_speaker_are_one_turn(server_of_labels: Server) -> None:
    parts = [{"type": "text", "text": "what is"}, {"type": "text", "text": "my name?"}]
    messages = [
        {"role": "system", "content": "be nice"},
        {"role": "user", "content": "my name"},
        {"role": "user", "content": "is Anna", "name": "anna"},
        {"role": "assistant", "content": "hello Anna"},
        {"role": "assistant", "content": None},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts},
    ]
    answers = [complete(server_of_labels, asked).json["choices"] for asked in (messages, MESSAGES)]
    assert close(*answers)


def test_fields_that_change_nothing_are_accepted(server_of_labels: Server) -> None:
    neutral: dict[str, Any] = {
        "presence_penalty": 0.0,
        "frequency_penalty": 0,
        "logit_bias": {},
        "tools": None,
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "user": "anna",
        "top_logprobs": None,
        "stream_options": None,
        "metadata": {"a": "b"},
    }
    answers = [complete(server_of_labels, **fields).json["choices"] for fields in (neutral, {})]
    assert close(*answers)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a" * 401}]}, "messages"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"n": 33}, "n"),
        ({"n": 2, "stream": True}, "n"),
        ({"logprobs": True, "stream": True}, "logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1, "beam": 3}, "beam"),
        ({"max_completion_tokens": 1001}, "max_tokens"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"turns": "3"}, "turns"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_the_server_cannot_do_is_an_error_in_the_form_of_openai(
    server_of_labels: Server, body: dict[str, Any], param: str
) -> None:
    response = server_of_labels.request(COMPLETIONS, {"messages": MESSAGES, **body})
    assert response.status == 400, response.body
    error = response.json["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, "bad_request")
    assert error["message"] == response.json["message"]


def test_an_unknown_model_is_not_found_in_the_form_of_openai(server_of_labels: Server) -> None:
    response = complete(server_of_labels, model="gpt-4o")
    assert response.status == 404
    assert response.json["error"]["param"] == "model"
    assert "this server has: chats" in response.json["error"]["message"]


def test_errors_before_a_handler_have_the_form_of_openai(server_of_labels: Server) -> None:
    assert server_of_labels.request(COMPLETIONS).json["error"]["code"] == "method_not_allowed"
    refused = server_of_labels.request(COMPLETIONS, b"{}", Host="evil.example")
    assert (refused.status, refused.json["error"]["type"]) == (403, "invalid_request_error")


def test_the_fields_of_a_request_are_the_options_of_chat() -> None:
    declared = {option.name for option in ChatOptions.declared() if option.http}
    own = {"history", "model", "stream", "attention"}
    assert set(ChatRequest.model_fields) == declared | own
    assert "turns" in declared


def test_a_streamed_connection_ends_after_its_reply(server_of_labels: Server) -> None:
    connection = server_of_labels.send({"messages": MESSAGES, "stream": True, "max_tokens": 2}, COMPLETIONS)
    connection.shutdown(1)
    assert b"data: [DONE]" in read_all(connection)


def test_reranked_replies_are_those_of_the_chatbot_and_cannot_be_streamed(chatbot: Chatbot) -> None:
    reranked = chatbot.reranked_by(chatbot)
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
