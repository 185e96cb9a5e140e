"""Whatever bytes come, they are a request within limits or are refused with a sentence."""

import json
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.serve.talk import SECONDS

from regard.serve.settings import Limits
from regard.serve.wire import Asked, Pairs, Tokens, Translate, read, schema
from regard.translator import Options, Translator

LIMITS = Limits(characters=300, sentences=4, beam=6)
KINDS: tuple[type[Asked], ...] = (Translate, Pairs, Tokens)
names = st.sampled_from([*Translate.model_fields, "target", "side", "path", "__class__"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


def judged(body: bytes) -> None:
    for kind in KINDS:
        refused = ""
        try:
            asked = read(kind, body, LIMITS)
        except ValueError as error:
            refused = str(error) or "without a word"
        assert refused != "without a word"
        assert len(refused.encode()) < 2000
        if not refused:
            assert asked.characters() <= LIMITS.characters
            assert asked.count() <= LIMITS.sentences


@given(st.binary(max_size=200))
@example(b'{"source": "\xed\xa0\x80"}')
@example(b'{"source": "' + b"a" * 10_000 + b'"}')
@example(b'{"source": 1e999999}')
@example(b'{"beam": ' + b"9" * 5000 + b', "source": "x"}')
@example(b'{"source": "x", "source": ["y"]}')
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    judged(body)


@given(st.dictionaries(names, values, max_size=6))
def test_any_json_is_read_or_refused(told: dict[str, Any]) -> None:
    judged(json.dumps(told).encode())


@given(st.dictionaries(names, values, max_size=6), st.integers(0, 400), st.binary(max_size=4))
def test_broken_json_is_read_or_refused(told: dict[str, Any], at: int, junk: bytes) -> None:
    body = json.dumps({"source": "x", **told}).encode()
    judged(body[:at] + junk + body[at:])


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
def test_what_fits_the_schema_is_an_option_or_refused_with_a_sentence(
    translator: Translator, told: dict[str, Any]
) -> None:
    asked = read(Translate, json.dumps(told).encode(), LIMITS)
    options: Options | None = None
    with suppress(ValueError):
        options = asked.options(translator, LIMITS)
    assert options is None or options.search(translator.most).rows <= LIMITS.beam


def test_the_schema_tells_the_limits() -> None:
    told = schema(Translate, LIMITS)["properties"]
    assert {"type": "integer", "minimum": 1, "maximum": 6} in told["beam"]["anyOf"]
    assert told["source"]["anyOf"][1]["maxItems"] == 4


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not to be had for this Python")
def test_atheris_finds_no_bytes_that_break_the_parser() -> None:
    command = [sys.executable, str(Path(__file__).parent / "fuzz.py"), "-atheris_runs=3000", "-max_len=300", "-seed=1"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert said.returncode == 0, said.stderr
    assert "Done 3000" in said.stderr + said.stdout
