"""Any bytes are parsed into a request within the limits, or refused with a message."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.serve.client import SECONDS

from regard.predict import TranslationOptions, Translator
from regard.serve.chat_requests import ChatRequest
from regard.serve.openai_chat import CompletionRequest, parse_completion_request
from regard.serve.requests import (
    ModelRequest,
    PairsRequest,
    TokensRequest,
    TranslateRequest,
    parse_request,
    request_schema,
)
from regard.serve.settings import ServerLimits

LIMITS = ServerLimits(characters=300, sentences=4, beam=6)
KINDS: tuple[type[ModelRequest], ...] = (TranslateRequest, PairsRequest, TokensRequest, ChatRequest)
FIELDS = {**TranslateRequest.model_fields, **ChatRequest.model_fields, **CompletionRequest.model_fields}
names = st.sampled_from([*FIELDS, "target", "side", "tools", "path", "__class__"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


def check_parsing(body: bytes) -> None:
    for kind in KINDS:
        refused = ""
        try:
            request = parse_request(kind, body, LIMITS)
        except ValueError as error:
            refused = str(error) or "without a message"
        assert refused != "without a message"
        assert len(refused.encode()) < 2000
        if not refused:
            assert sum(map(len, request.texts())) <= LIMITS.characters
            assert request.count() <= LIMITS.sentences
    with suppress(ValueError):
        request = parse_completion_request(body).own_request(LIMITS)
        assert request.texts()[0].strip()


@given(st.binary(max_size=200))
@example(b'{"source": "\xed\xa0\x80"}')
@example(b'{"source": "' + b"a" * 10_000 + b'"}')
@example(b'{"source": 1e999999}')
@example(b'{"beam": ' + b"9" * 5000 + b', "source": "x"}')
@example(b'{"source": "x", "source": ["y"]}')
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    check_parsing(body)


@given(st.lists(st.text("éx.", min_size=1, max_size=200), min_size=1, max_size=9, unique=True))
def test_an_error_quotes_at_most_forty_characters_of_a_request(unknown: list[str]) -> None:
    body: dict[str, Any] = {"source": "a", "terms": {"é" * 300: "a"}, **{f"é{name}": 1 for name in unknown}}
    with pytest.raises(ValueError, match="Extra inputs") as caught:
        parse_request(TranslateRequest, json.dumps(body).encode(), LIMITS)
    assert str(caught.value).count("é") <= 40


@given(st.dictionaries(names, values, max_size=6))
def test_any_json_is_parsed_or_refused(body: dict[str, Any]) -> None:
    check_parsing(json.dumps(body).encode())


@given(st.dictionaries(names, values, max_size=6), st.integers(0, 400), st.binary(max_size=4))
def test_broken_json_is_parsed_or_refused(body: dict[str, Any], at: int, junk: bytes) -> None:
    data = json.dumps({"source": "x", **body}).encode()
    check_parsing(data[:at] + junk + data[at:])


@given(st.dictionaries(names, values, max_size=6), st.sampled_from(["user", "assistant", "system"]), st.text())
def test_messages_are_a_history_or_refused(body: dict[str, Any], role: str, text: str) -> None:
    messages = [{"role": role, "content": text}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
    with suppress(ValueError):
        own = parse_completion_request(json.dumps({**body, "messages": messages}).encode()).own_request(LIMITS)
        (history,) = own.histories
        assert history[-1].endswith("a")
        assert len(history) == 1 + (role == "assistant" and bool(text.strip()))


@given(
    st.fixed_dictionaries(
        {"source": st.text(max_size=20)},
        optional={
            "beam": st.integers(1, 6),
            "nbest": st.integers(1, 6),
            "groups": st.integers(1, 3),
            "sample": st.booleans(),
            "mbr": st.integers(0, 6),
            "temperature": st.floats(0.01, 100),
            "top_k": st.integers(1, 1_000_000),
            "length_penalty": st.floats(-10, 10),
            "min_length": st.integers(0, 10_000),
            "max_length": st.integers(1, 10_000),
            "constraints": st.lists(st.text(min_size=1, max_size=5), max_size=3),
        },
    )
)
def test_a_request_that_fits_the_schema_gives_options_or_a_message(
    translator: Translator, body: dict[str, Any]
) -> None:
    request = parse_request(TranslateRequest, json.dumps(body).encode(), LIMITS)
    options: TranslationOptions | None = None
    with suppress(ValueError):
        options = request.options(translator, LIMITS)
    assert options is None or translator.search_options(options).rows <= LIMITS.beam


def test_the_schema_contains_the_limits_of_the_server() -> None:
    properties = request_schema(TranslateRequest, LIMITS)["properties"]
    assert {"type": "integer", "minimum": 1, "maximum": 6} in properties["beam"]["anyOf"]
    assert properties["source"]["anyOf"][0]["maxLength"] == 300
    assert properties["source"]["anyOf"][1]["maxItems"] == 4
    history = request_schema(ChatRequest, LIMITS)["properties"]["history"]["anyOf"]
    assert [choice.get("maxItems") for choice in history] == [None, None, 4]


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not available for this Python")
def test_atheris_finds_no_bytes_that_break_the_parser() -> None:
    script = str(Path(__file__).parent / "fuzz_requests.py")
    command = [sys.executable, script, "-atheris_runs=3000", "-max_len=300", "-seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "Done 3000" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"temperature": 0.5}, "'temperature' has no effect on beam search; use \"sample\": true too"),
        ({"seed": 3}, "'seed' has no effect on beam search"),
        ({"min_length": 9999}, "'min_length' is 9999, and this server allows"),
        ({"sample": True, "beam": 2}, "'beam' needs beam search, but 'sample' needs sampling"),
        ({"beam": 2, "nbest": 4}, 'a beam of 2 cannot give 4 outputs; use "beam": 4 or more'),
    ],
)
def test_an_option_without_effect_is_refused_by_the_name_of_its_field(
    translator: Translator, field: dict[str, Any], message: str
) -> None:
    request = parse_request(TranslateRequest, json.dumps({"source": "a cat", **field}).encode(), LIMITS)
    with pytest.raises(ValueError, match=re.escape(message)):
        request.options(translator, LIMITS)
