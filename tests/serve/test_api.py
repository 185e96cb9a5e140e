"""What the server says is what the translator says, whoever else asks at the same time."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.serve.talk import Server

from regard.serve.server import listen
from regard.translator import Terms, Translator
from regard.translator.given import weigh

WAYS: list[dict[str, Any]] = [
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


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way) or "plain")
def test_a_line_is_translated_as_it_is_in_this_process(
    server: Server, translator: Translator, lines: list[str], way: dict[str, Any]
) -> None:
    said = server.ask("/translate", {"source": lines[1], **way})
    assert said.status == 200, said.body
    (found,) = said.json["translations"]
    told = {**way, "terms": Terms(way["terms"])} if "terms" in way else way
    (expected,) = translator.translate([lines[1]], **told)
    assert found["text"] == expected.text
    assert found["tokens"] == list(expected.tokens)
    assert found["score"] == pytest.approx(expected.score, abs=1e-4)
    assert found.get("alignment") == expected.to_json().get("alignment")
    assert len(found.get("nbest", [found])) == way.get("nbest", 1)


def test_clients_at_the_same_time_get_what_each_gets_alone(
    server: Server, translator: Translator, lines: list[str]
) -> None:
    ways = [{}, {"beam": 1}, {"sample": True, "seed": 2}]
    asked = [({"source": line, **way}, way) for line in lines for way in ways]
    with ThreadPoolExecutor(12) as clients:
        said = list(clients.map(lambda each: server.ask("/translate", each[0]), asked))
    for way in ways:
        found = [
            each.json["translations"][0]["text"] for each, (_, mine) in zip(said, asked, strict=True) if mine == way
        ]
        assert found == [each.text for each in translator.translate(lines, **way)]


def test_many_lines_come_back_in_their_order_with_each_ones_fault(server: Server, lines: list[str]) -> None:
    asked = [lines[0], "", "   ", lines[1], "word " * 60]
    found = server.ask("/translate", {"source": asked, "long": "error", "model": "again"}).json
    assert found["model"] == "again"
    assert [each["source"] for each in found["translations"]] == asked
    assert [bool(each.get("fault")) for each in found["translations"]] == [False, False, False, False, True]
    assert found["translations"][1]["text"] == ""


def test_a_long_line_is_translated_in_parts(server: Server, translator: Translator, lines: list[str]) -> None:
    line = ". ".join(lines[:6]) + "."
    assert server.ask("/translate", {"source": line}).json["translations"][0]["text"] == translator(line).text


@pytest.mark.parametrize("way", [{}, {"beam": 1}, {"sample": True}], ids=["beam", "greedy", "sample"])
def test_streamed_tokens_are_those_of_the_translation(server: Server, lines: list[str], way: dict[str, Any]) -> None:
    asked = [lines[2], ". ".join(lines[:6]), lines[3]]
    said = server.ask("/translate", {"source": asked, "stream": True, **way})
    assert said.headers["content-type"] == "application/x-ndjson"
    events = [json.loads(line) for line in said.body.splitlines()]
    whole = server.ask("/translate", {"source": asked, **way}).json["translations"]
    for place, expected in enumerate(whole):
        mine = [each for each in events if each["line"] == place]
        assert mine[-1]["translation"]["text"] == expected["text"]
        assert [token for each in mine[:-1] for token in each["tokens"]] == expected["tokens"]
        assert len(mine) > 3


def test_perplexities_and_alignments_are_the_models(
    server: Server, translator: Translator, pairs: list[tuple[str, str]]
) -> None:
    asked = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs]}
    expected = list(weigh(translator, pairs, alignments=True))
    weighed, aligned = server.ask("/perplexity", asked).json, server.ask("/align", asked).json
    assert [each["logprob"] for each in weighed["pairs"]] == pytest.approx(
        [each.logprob for each in expected], abs=1e-3
    )
    assert weighed["logprob"] == pytest.approx(sum(each.logprob for each in expected), abs=1e-2)
    assert weighed["tokens"] == sum(len(each.tokens) for each in expected)
    assert [each["alignment"] for each in aligned["pairs"]] == [
        [list(link) for link in each.alignment or ()] for each in expected
    ]


def test_tokens_are_those_of_the_side_that_was_asked_for(server: Server, translator: Translator) -> None:
    for side in ("source", "target"):
        (found,) = server.ask("/tokens", {"source": "Das Hemd", "side": side}).json["lines"]
        assert [each["id"] for each in found] == getattr(translator.tokenizers, side).encode("Das Hemd")


def test_models_are_told_each_under_its_name(server: Server, translator: Translator) -> None:
    told = server.ask("/models").json["models"]
    assert [each["name"] for each in told] == ["memorised", "again"]
    assert told[0]["parameters"] == sum(each.numel() for each in translator.model.parameters())
    assert server.ask("/health").json["status"] == "ready"


def test_what_was_done_is_counted(server: Server, lines: list[str]) -> None:
    before = server.figure("regard_sentences_total"), server.figure("regard_tokens_total")
    tokens = len(server.ask("/translate", {"source": lines[0]}).json["translations"][0]["tokens"])
    assert server.figure("regard_sentences_total") == before[0] + 1
    assert server.figure("regard_tokens_total") == before[1] + tokens
    assert server.figure("regard_waiting_sentences") == 0


def test_pages_elsewhere_are_not_let_in(server: Server) -> None:
    said = server.ask("/health", Origin="https://example.org")
    assert said.status == 403
    assert "access-control-allow-origin" not in said.headers


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:80", "[::1]:8000", "192.0.2.7"])
def test_this_machines_name_and_any_number_are_let_in(server: Server, host: str) -> None:
    assert server.ask("/models", Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "", "user@localhost"])
def test_a_name_that_a_strangers_dns_may_point_here_is_refused(server: Server, host: str) -> None:
    said = server.ask("/models", Host=host)
    assert said.status == 403
    assert "--allow-host" in said.json["error"]


def test_the_page_that_describes_the_api_needs_nothing_from_elsewhere(server: Server) -> None:
    said = server.ask("/docs")
    page = said.body.decode()
    assert said.headers["content-type"].startswith("text/html")
    assert said.headers["content-security-policy"].startswith("default-src 'none'")
    assert not [word for word in ("<script", "src=", "https://", "//cdn", "@import", "<link") if word in page]
    described = server.ask("/openapi.json").json
    for path, ways in described["paths"].items():
        assert f'id="{path}"' in page
        for way in ways.values():
            assert escape(way["description"], quote=False).split("`")[0] in page
    for name in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{name}"' in page
    fields = described["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert all(f'<th scope="row">{name}</th>' in page for name in fields["properties"])
    assert "integer (from 1 up to 8)" in page  # the limit this server was told


def test_the_page_is_well_formed(server: Server) -> None:
    opened = list[str]()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader().feed(server.ask("/docs").body.decode())
    assert opened == []


def test_small_answers_are_sent_at_once() -> None:
    """Asyncio lets a socket send without waiting only where it knows that the socket is of TCP."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
