"""Requests in the form of OpenAI's chat completions are answered in its form, whole and as streams."""

import json
import socket
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from tests.serve.client import Response, Server, read_all
from tests.serve.test_chat import HISTORY, SAMPLED
from tests.serve.test_predictions import close

from regard.predict import Chatbot
from regard.serve.openai_chat import Completion, parse_completion_request
from regard.serve.request_context import RequestContext
from regard.serve.service import PartialOutput, ServerFaultError

COMPLETIONS = "/v1/chat/completions"
MESSAGES = [{"role": role, "content": turn} for role, turn in zip(("user", "assistant", "user"), HISTORY, strict=True)]


def complete(server: Server, messages: Any = MESSAGES, **body: Any) -> Response:
    return server.request(COMPLETIONS, {"max_tokens": 8, "messages": messages, **body})


def chunks(response: Response) -> list[Any]:
    """Return the chunks of a stream of server-sent events, without the end."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = response.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def delivered(events: list[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


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


def test_errors_before_a_handler_have_the_form_of_openai(server: Server, server_of_labels: Server) -> None:
    assert "its models answer /translate" in complete(server).json["error"]["message"]
    large = complete(server_of_labels, [{"role": "user", "content": "a" * 2**20}])
    assert (large.status, large.json["error"]["code"]) == (413, "body_too_large")
    assert server_of_labels.request(COMPLETIONS).json["error"]["code"] == "method_not_allowed"
    refused = server_of_labels.request(COMPLETIONS, b"{}", Host="evil.example")
    assert (refused.status, refused.json["error"]["type"]) == (403, "invalid_request_error")


def test_a_streamed_connection_ends_after_its_reply(server_of_labels: Server) -> None:
    connection = server_of_labels.send({"messages": MESSAGES, "stream": True, "max_tokens": 2}, COMPLETIONS)
    connection.shutdown(socket.SHUT_WR)
    assert b"data: [DONE]" in read_all(connection)
