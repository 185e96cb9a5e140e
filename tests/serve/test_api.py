"""Responses of the server equal results of the translator, whatever other clients request at the same time."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.serve.client import Server

from regard.predict import Translator
from regard.predict.scoring import score_pairs
from regard.serve.server import listen

OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 1},
    {"beam": 4, "nbest": 3, "alignments": True},
    {"beam": 4, "groups": 2, "diversity": 0.3, "length_penalty": 0.4, "no_repeat": 3},
    {"sample": True, "nbest": 2, "seed": 3, "top_p": 0.9, "temperature": 0.7},
    {"mbr": 6, "seed": 1, "top_k": 5},
    {"constraints": ["Hund"], "prefix": "Das"},
    {"avoid": ["Hemd", "Euro"], "min_length": 3, "max_length": 30},
    {"coverage_penalty": 0.2, "avoid": ["kostet"]},
    {"terms": {"shirt": "Kleid"}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "default")
def test_a_line_is_translated_as_by_the_translator(
    server: Server, translator: Translator, lines: list[str], options: dict[str, Any]
) -> None:
    response = server.request("/translate", {"source": lines[1], **options})
    assert response.status == 200, response.body
    (translation,) = response.json["translations"]
    (expected,) = translator.translate([lines[1]], **options)
    assert translation["text"] == expected.text
    assert translation["tokens"] == list(expected.tokens)
    assert translation["score"] == pytest.approx(expected.score, abs=1e-4)
    assert translation.get("alignment") == expected.to_json().get("alignment")
    assert len(translation.get("nbest", [translation])) == options.get("nbest", 1)


def test_simultaneous_clients_get_the_same_translations_as_single_ones(
    server: Server, translator: Translator, lines: list[str]
) -> None:
    variants = [{}, {"beam": 1}, {"sample": True, "seed": 2}]
    requests = [({"source": line, **options}, options) for line in lines for options in variants]
    with ThreadPoolExecutor(12) as clients:
        responses = list(clients.map(lambda request: server.request("/translate", request[0]), requests))
    for options in variants:
        texts = [
            response.json["translations"][0]["text"]
            for response, (_, used) in zip(responses, requests, strict=True)
            if used == options
        ]
        assert texts == [translation.text for translation in translator.translate(lines, **options)]


def test_many_lines_return_in_order_and_each_with_its_own_fault(server: Server, lines: list[str]) -> None:
    source = [lines[0], "", "   ", lines[1], "word " * 60]
    response = server.request("/translate", {"source": source, "long": "error", "model": "again"}).json
    translations = response["translations"]
    assert response["model"] == "again"
    assert [translation["source"] for translation in translations] == source
    assert [bool(translation.get("fault")) for translation in translations] == [False, False, False, False, True]
    assert translations[1]["text"] == ""


def test_a_long_line_is_split(server: Server, translator: Translator, lines: list[str]) -> None:
    line = ". ".join(lines[:6]) + "."
    response = server.request("/translate", {"source": line})
    assert response.json["translations"][0]["text"] == translator(line).text


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"sample": True}], ids=["beam", "greedy", "sample"])
def test_streamed_tokens_equal_those_of_the_translation(
    server: Server, lines: list[str], options: dict[str, Any]
) -> None:
    source = [lines[2], ". ".join(lines[:6]), lines[3]]
    response = server.request("/translate", {"source": source, "stream": True, **options})
    assert response.headers["content-type"] == "application/x-ndjson"
    events = [json.loads(line) for line in response.body.splitlines()]
    expected = server.request("/translate", {"source": source, **options}).json["translations"]
    for index, translation in enumerate(expected):
        own = [event for event in events if event["line"] == index]
        assert own[-1]["translation"]["text"] == translation["text"]
        assert [token for event in own[:-1] for token in event["tokens"]] == translation["tokens"]
        assert len(own) > 3


def test_perplexities_and_alignments_equal_those_of_the_model(
    server: Server, translator: Translator, pairs: list[tuple[str, str]]
) -> None:
    body = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs]}
    expected = list(score_pairs(translator, pairs, alignments=True))
    scored, aligned = server.request("/perplexity", body).json, server.request("/align", body).json
    logprobs = [pair.logprob for pair in expected]
    assert [pair["logprob"] for pair in scored["pairs"]] == pytest.approx(logprobs, abs=1e-3)
    assert scored["logprob"] == pytest.approx(sum(logprobs), abs=1e-2)
    assert scored["tokens"] == sum(len(pair.tokens) for pair in expected)
    assert [pair["alignment"] for pair in aligned["pairs"]] == [
        [list(link) for link in pair.alignment or ()] for pair in expected
    ]


def test_tokens_come_from_the_tokenizer_of_the_requested_side(server: Server, translator: Translator) -> None:
    for side in ("source", "target"):
        (tokens,) = server.request("/tokens", {"source": "Das Hemd", "side": side}).json["lines"]
        assert [token["id"] for token in tokens] == translator.tokenizers[side].encode("Das Hemd")


def test_models_are_listed_by_name(server: Server, translator: Translator) -> None:
    models = server.request("/models").json["models"]
    assert [model["name"] for model in models] == ["memorised", "again"]
    assert models[0]["parameters"] == sum(parameter.numel() for parameter in translator.model.parameters())
    assert server.request("/health").json["status"] == "ready"


def test_models_are_listed_in_the_form_of_openai(server: Server) -> None:
    listed = server.request("/v1/models").json
    assert listed["object"] == "list"
    described = {model["name"]: model for model in server.request("/models").json["models"]}
    for model in listed["data"]:
        assert (model["object"], model["owned_by"]) == ("model", "regard")
        assert isinstance(model["created"], int)
        assert described[model["id"]].items() <= model.items()
        assert server.request(f"/v1/models/{model['id']}").json == model
    assert [model["id"] for model in listed["data"]] == list(described)


def test_version_one_of_a_route_has_the_same_response(server: Server, pairs: list[tuple[str, str]]) -> None:
    source, target = pairs[0]
    for path, body in (
        ("/translate", {"source": source}),
        ("/perplexity", {"source": source, "target": target}),
        ("/align", {"source": source, "target": target}),
        ("/tokens", {"source": source}),
    ):
        assert server.request(f"/v1{path}", body).json == server.request(path, body).json


def test_metrics_count_lines_and_tokens(server: Server, lines: list[str]) -> None:
    before = server.metric("regard_sentences_total"), server.metric("regard_tokens_total")
    tokens = len(server.request("/translate", {"source": lines[0]}).json["translations"][0]["tokens"])
    assert server.metric("regard_sentences_total") == before[0] + 1
    assert server.metric("regard_tokens_total") == before[1] + tokens
    assert server.metric("regard_waiting_sentences") == 0


def test_pages_of_other_origins_are_refused(server: Server) -> None:
    response = server.request("/health", Origin="https://example.org")
    assert response.status == 403
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:80", "[::1]:8000", "192.0.2.7"])
def test_localhost_and_ip_addresses_are_allowed_hosts(server: Server, host: str) -> None:
    assert server.request("/models", Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "", "user@localhost"])
def test_unknown_host_names_are_refused(server: Server, host: str) -> None:
    response = server.request("/models", Host=host)
    assert response.status == 403
    assert "--allow-host" in response.json["error"]


def test_the_api_page_documents_every_route_and_loads_nothing_else(server: Server) -> None:
    response = server.request("/docs")
    page = response.body.decode()
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert not [word for word in ("<script", "src=", "https://", "//cdn", "@import", "<link") if word in page]
    openapi = server.request("/openapi.json").json
    for path, operations in openapi["paths"].items():
        assert f'id="{path}"' in page
        for method, operation in operations.items():
            for paragraph in operation["description"].split("\n\n") if method != "head" else ():
                assert escape(paragraph, quote=False).split("`")[0] in page
    for name in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{name}"' in page
    for schema in ("TranslateRequest", "LibreTranslateRequest", "StreamTokens", "ErrorResponse"):
        fields = openapi["components"]["schemas"][schema]["properties"]
        assert all(f'<th scope="row">{name}</th>' in page for name in fields)
    assert "integer (from 1 up to 8)" in page  # the beam limit of this server


def test_the_api_page_is_well_formed(server: Server) -> None:
    opened = list[str]()

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Checker().feed(server.request("/docs").body.decode())
    assert opened == []


def test_the_socket_has_a_protocol_so_that_asyncio_disables_nagles_algorithm() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
