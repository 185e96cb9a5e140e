"""Requests in the form of LibreTranslate are answered in its form, whatever way its clients send them."""

from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.client import Server

from regard.predict.translation import empty_translation
from regard.serve.errors import FieldError
from regard.serve.languages import LanguagePair
from regard.serve.libretranslate import LibreTranslateRequest, parse_form, parse_json
from regard.serve.requests import TranslateRequest

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LANGUAGES = {"model": [LanguagePair("en", "de"), LanguagePair("en", "fr", "<2fr>")]}


def asked(text: Any, **fields: Any) -> dict[str, Any]:
    return {"q": text, "source": "en", "target": "de", **fields}


def translation(server: Server, line: str) -> str:
    """Return the translation of a line in our own form."""
    text: str = server.request("/translate", {"source": line}).json["translations"][0]["text"]
    return text


@pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
def test_json_a_form_and_a_query_have_the_same_response(
    server: Server, pairs: list[tuple[str, str]], path: str
) -> None:
    source, target = pairs[0][0], translation(server, pairs[0][0])
    form = urlencode(asked(source))
    responses = [
        server.request(path, asked(source, format="text")),
        server.request(path, form.encode(), **FORM),
        server.request(f"{path}?{form}", method="POST"),
    ]
    assert [(response.status, response.json) for response in responses] == [(200, {"translatedText": target})] * 3


def test_lists_and_texts_of_several_lines_keep_their_form(server: Server, pairs: list[tuple[str, str]]) -> None:
    one, two = pairs[0][0], pairs[1][0]
    eins, zwei = translation(server, one), translation(server, two)
    response = server.request("/translate", asked([f"{one}\n\n{two}\n", two]))
    assert response.json == {"translatedText": [f"{eins}\n\n{zwei}\n", zwei]}


def test_alternatives_are_other_translations(server: Server, pairs: list[tuple[str, str]]) -> None:
    source = pairs[0][0]
    response = server.request("/translate", asked(source, alternatives=2)).json
    nbest = server.request("/translate", {"source": source, "nbest": 3}).json["translations"][0]["nbest"]
    assert [response["translatedText"], *response["alternatives"]] == [hypothesis["text"] for hypothesis in nbest]
    as_form = server.request("/translate", urlencode(asked(source, alternatives=2)).encode(), **FORM)
    assert as_form.json == response


def test_the_only_possible_source_language_need_not_be_named(server: Server, pairs: list[tuple[str, str]]) -> None:
    response = server.request("/translate", asked(pairs[0][0], source="auto"))
    assert response.json == {"translatedText": translation(server, pairs[0][0])}  # nothing is detected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (asked("x", target="fr"), "target"),
        (asked("x", source="de"), "source"),
        (asked("x", format="html"), "format"),
        (asked("x", alternatives=9), "nbest"),
        (asked("x", alternatives="2"), "alternatives"),
        (asked(3), "q"),
        ({"q": "x", "target": "de"}, "source"),
        (asked("x" * 5000), "source"),
        (asked(["x"] * 41), "source"),
        (asked("x\n" * 41), "source"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused_with_a_message(
    server: Server, fields: dict[str, Any], field: str
) -> None:
    response = server.request("/translate", fields)
    assert response.status == 422
    assert response.json["field"] == field
    assert isinstance(response.json["error"], str)  # where clients of LibreTranslate look


def test_languages_are_listed(server: Server) -> None:
    expected = [{"code": "en", "name": "English", "targets": ["de"]}, {"code": "de", "name": "German", "targets": []}]
    assert server.request("/languages").json == expected
    assert server.request("/languages", b"api_key=x", method="GET", **FORM).json == expected
    assert server.request("/detect", asked("x")).status == 404  # no language is ever detected


def test_the_symbol_of_a_language_is_put_before_each_line() -> None:
    request = LibreTranslateRequest.model_validate(asked("one\n\ntwo", target="fr"))
    own = TranslateRequest.model_validate_json(request.own_request(LANGUAGES))
    assert own.lines == ["<2fr> one", "", "<2fr> two"]
    assert own.model == "model"


@given(st.text() | st.lists(st.text(), min_size=1, max_size=5))
def test_every_line_of_every_text_returns_to_its_place(text: str | list[str]) -> None:
    request = LibreTranslateRequest.model_validate(asked(text))
    translations = [
        type(empty)(**{**vars(empty), "text": line})
        for part in request.texts
        for line in part.split("\n")
        for empty in [empty_translation(line)]
    ]
    translations = [type(item)(**{**vars(item), "nbest": (item,)}) for item in translations]
    assert request.response(translations) == {"translatedText": text}


@given(
    st.binary(max_size=100) | st.dictionaries(st.text(max_size=8), st.text(max_size=8)).map(urlencode).map(str.encode)
)
def test_any_bytes_are_a_request_or_an_error(body: bytes) -> None:
    for parse in (parse_form, parse_json):
        with suppress(FieldError):
            request = parse(body)
            assert request is None or request.texts
