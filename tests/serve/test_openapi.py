"""The OpenAPI document is true: schemathesis sends valid and invalid requests, and checks the responses against it."""

import json
import re
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.definitions import OPENAPI_31
from tests.serve.client import Server

from regard.serve.openapi import operations

POSTS = ("/translate", "/perplexity", "/align", "/tokens", "/classify", "/tag", "/fill", "/chat")
ROUTES = [
    *(("POST", prefix + path) for prefix in ("", "/v1") for path in POSTS),
    ("POST", "/v1/chat/completions"),
    *(("GET", path) for path in ("/languages", "/v1/languages", "/models", "/v1/models", "/v1/models/{model}")),
    *(("GET", path) for path in ("/health", "/live", "/ready", "/metrics")),
    *(("HEAD", path) for path in ("/health", "/live", "/ready")),
]
TRIED = [(method, path) for method, path in ROUTES if method != "POST" or path.removeprefix("/v1") not in POSTS]
TRIED += [("POST", path) for path in POSTS]
"""Routes with handlers of their own; the others have the same ones."""
# A schema cannot express every rule between fields, so some requests that fit it are refused with a reason.
EXCLUDED: list[Any] = [positive_data_acceptance]


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    return server.request("/openapi.json").json


@pytest.fixture(scope="module")
def openapi(server_of_labels: Server) -> Any:
    """The document of a server with a model for each route."""
    loaded = schemathesis.openapi.from_dict(server_of_labels.request("/openapi.json").json)
    loaded.config.update(base_url=f"http://127.0.0.1:{server_of_labels.port}")
    # With the low limits of this server, a body whose phrases are too long may be too large before it is parsed.
    rejection = loaded.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]
    return loaded


def test_the_document_follows_the_rules_of_openapi(document: Any, openapi: Any) -> None:
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in jsonschema_rs.Draft202012Validator(OPENAPI_31).iter_errors(document)] == []
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    openapi.validate()


def test_every_reference_leads_somewhere(document: Any) -> None:
    references = set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)))
    assert len(references) > 20
    for reference in references:
        found = document
        for part in reference.split("/"):
            found = found[part]


def test_every_route_is_documented(openapi: Any) -> None:
    found = [result.ok() for result in openapi.get_all_operations()]
    assert sorted((operation.method.upper(), operation.path) for operation in found) == sorted(ROUTES)


def test_every_operation_has_a_clean_id_a_tag_access_rules_and_response_headers(document: Any) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, method, operation in operations(document):
        assert re.fullmatch("[a-z][a-z0-9_]*", operation["operationId"])
        assert path.lstrip("/").partition("/{")[0].replace("/", "_").rstrip("s") in operation["operationId"]
        assert operation["description"]
        assert set(operation["tags"]) <= tags
        assert all(not scheme or list(scheme) == ["token"] for scheme in operation["security"])
        for status, response in operation["responses"].items():
            assert "X-Request-ID" in response["headers"]
            assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))
            assert method == "head" or response["content"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["servers"][0]["url"] == "/"


def test_every_example_of_a_request_works(server_of_labels: Server, document: Any) -> None:
    tried = 0
    for path, method, operation in operations(document):
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            for example in content["examples"].values() if kind == "application/json" else ():
                assert server_of_labels.request(path, example["value"], method=method.upper()).status == 200
                tried += 1
    assert tried > 10


def test_every_event_of_a_stream_fits_its_schema(server: Server, document: Any) -> None:
    responses = document["paths"]["/translate"]["post"]["responses"]
    schema = responses["200"]["content"]["application/x-ndjson"]["schema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
    source = ["the shirt costs twelve euros", "word " * 60]
    response = server.request("/translate", {"source": source, "stream": True, "long": "error"})
    events = [json.loads(line) for line in response.body.splitlines()]
    assert {frozenset(event) & {"tokens", "translation", "error"} for event in events} == {
        frozenset([kind]) for kind in ("tokens", "translation", "error")
    }
    for event in events:
        validator.validate(event)
    assert not validator.is_valid({"line": 0})


def test_every_event_of_a_streamed_reply_fits_its_schema(server_of_labels: Server, document: Any) -> None:
    schema = document["paths"]["/chat"]["post"]["responses"]["200"]["content"]["application/x-ndjson"]["schema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
    body = {"history": [["a cat"], [" "]], "stream": True, "attention": True, "max_tokens": 9}
    events = [json.loads(line) for line in server_of_labels.request("/chat", body).body.splitlines()]
    assert {frozenset(event) & {"tokens", "reply", "error"} for event in events} == {
        frozenset([kind]) for kind in ("tokens", "reply", "error")
    }
    for event in events:
        validator.validate(event)


def test_every_chunk_of_a_completion_fits_its_schema(server_of_labels: Server, document: Any) -> None:
    content = document["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    schema = content["text/event-stream"]["schema"]["properties"]["data"]["anyOf"][0]["contentSchema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
    body = {"messages": [{"role": "user", "content": "a cat"}], "stream": True, "max_tokens": 9}
    response = server_of_labels.request("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    *chunks, done = response.body.split(b"\n\n")[:-1]
    assert done == b"data: [DONE]"
    assert len(chunks) > 3
    for chunk in chunks:
        validator.validate(json.loads(chunk.removeprefix(b"data: ")))
    assert not validator.is_valid({"object": "chat.completion.chunk"})


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
@pytest.mark.parametrize(("method", "path"), TRIED, ids=[f"{method} {path}" for method, path in TRIED])
def test_every_route_responds_as_documented(openapi: Any, method: str, path: str, mode: GenerationMode) -> None:
    if method != "POST" and mode is GenerationMode.NEGATIVE:
        assert "requestBody" not in openapi[path][method].definition.raw  # so no request is invalid
        return

    @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(case=openapi[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=EXCLUDED)

    check()
