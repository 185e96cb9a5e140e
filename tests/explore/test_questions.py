"""Every question gets frames, or one error message that says what is wrong."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.explore.asking import fault, one, read, target_ids
from tests.explore.conftest import SOURCE

from regard.explore import Explorer, read_frame
from regard.explore.model import ResultCache
from regard.explore.questions import MAX_BYTES, MAX_CHARACTERS, parse_question
from regard.nn.tap import named_taps
from regard.predict import Translator

POINT = {"source": SOURCE, "target_ids": [5, 6], "part": "cross", "layer": 0, "head": 0, "query": 0}


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (b"{", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[]", "object"),
        (b"7", "object"),
        ({}, "kind"),
        ({"kind": "guess"}, "guess"),
        ({"kind": "tokens"}, "source"),
        ({"kind": "tokens", "source": 7}, "source"),
        ({"kind": "tokens", "source": "a", "model": "nobody"}, "no model of that name"),
        ({"kind": "tokens", "source": "a", "shape": 1}, "shape"),
        ({"kind": "tokens", "source": "a" * (MAX_CHARACTERS + 1)}, str(MAX_CHARACTERS)),
        ({"kind": "read", "source": ""}, "input text is empty"),
        ({"kind": "read", "source": " \n "}, "input text is empty"),
        ({"kind": "read", "source": "cat " * 600}, "shorten it"),
        ({"kind": "read", "source": SOURCE, "beam": 0}, "beam"),
        ({"kind": "read", "source": SOURCE, "beam": 33}, "beam"),
        ({"kind": "read", "source": SOURCE, "target_ids": [10**6]}, "not the id of an output token"),
        ({"kind": "read", "source": SOURCE, "target_ids": [-1]}, "target_ids"),
        ({"kind": "read", "source": SOURCE, "target_ids": [3, 5]}, "not the id of an output token"),
        ({"kind": "read", "source": SOURCE, "prefix": [10**6]}, "not the id of an output token"),
        ({"kind": "read", "source": SOURCE, "target_ids": [5] * 1500}, "longer than"),
        ({"kind": "row", **POINT, "part": "middle"}, "part"),
        ({"kind": "row", **POINT, "layer": 2}, "no layer 2"),
        ({"kind": "row", **POINT, "head": 2}, "no head 2"),
        ({"kind": "row", **POINT, "query": 3}, "no query 3"),
        ({"kind": "row", **POINT, "query": -1}, "query"),
        ({"kind": "row", **POINT, "model": "sutskever"}, "none at all"),
        ({"kind": "row", **POINT, "model": "bahdanau", "part": "encoder"}, "it has: cross"),
        ({"kind": "row", **POINT, "target_ids": [10**6]}, "not the id of an output token"),
        ({"kind": "positions", "count": 0}, "count"),
        ({"kind": "figure", "figure": "portrait"}, "figure"),
        ({"kind": "figure", "figure": "alignment", "source": ""}, "input text is empty"),
        ({"kind": "figure", "figure": "alignment", "source": SOURCE, "model": "sutskever"}, "cross"),
    ],
)
def test_an_invalid_question_gets_one_error_message(explorer: Explorer, question: Any, message: str) -> None:
    assert message in fault(explorer, question)


def test_a_question_in_json_is_the_same_as_in_a_dictionary(explorer: Explorer) -> None:
    question = {"id": "a7", "kind": "tokens", "source": SOURCE}
    assert list(explorer.answer(json.dumps(question).encode())) == list(explorer.answer(question))
    assert list(explorer.answer(json.dumps(question))) == list(explorer.answer(question))


def test_an_error_has_the_id_of_its_question(explorer: Explorer) -> None:
    (frame,) = explorer.answer({"id": 41, "kind": "tokens", "source": 3})
    assert read_frame(frame)[0]["id"] == 41


def test_a_question_that_is_too_long_is_refused(explorer: Explorer) -> None:
    assert str(MAX_BYTES) in fault(explorer, b'{"kind": "tokens", "source": "' + b"a" * MAX_BYTES + b'"}')


@given(
    st.binary(max_size=40) | st.text(max_size=40) | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps)
)
def test_any_bytes_get_an_error_message(question: bytes | str) -> None:
    for frame in Explorer({}).answer(question):
        assert read_frame(frame)[0]["kind"] == "error"


def test_a_question_without_a_model_is_an_error(translators: dict[str, Translator]) -> None:
    assert "no model is loaded yet" in fault(Explorer({}), {"kind": "tokens", "source": "a"})
    assert one(Explorer({}), "models")[0]["models"] == []


def test_a_cancelled_question_ends_between_layers_and_steps_and_removes_its_hooks(
    translators: dict[str, Translator],
) -> None:
    question = {"id": 1, "kind": "read", "model": "transformer", "source": SOURCE}
    complete = list(Explorer(translators).answer(question))
    block = [{"op": "block", "tokens": [0]}]
    for calls in range(0, 18, 2):
        frames = list(Explorer(translators).answer({**question, "changes": block}, StopAfter(calls)))
        assert len(frames) < len(complete)
        assert not any(read_frame(frame)[0]["last"] for frame in frames)
        assert not any(tap.watched for tap in named_taps(translators["transformer"].model).values())


class StopAfter:
    """Return True after a number of calls."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_closing_an_answer_removes_its_hooks(translators: dict[str, Translator]) -> None:
    block = [{"op": "block", "tokens": [0]}]
    question = {"kind": "read", "model": "transformer", "source": SOURCE, "changes": block}
    answer = Explorer(translators).answer(question)
    while read_frame(next(answer))[0]["kind"] != "target":
        pass
    answer.close()
    assert not any(tap.watched for tap in named_taps(translators["transformer"].model).values())


def test_the_cache_drops_the_least_recently_used_results_and_keeps_the_newest_of_any_size() -> None:
    cache, made = ResultCache(results=2, size=100), list[str]()

    def get(name: str, size: int = 10) -> str:
        def make() -> str:
            made.append(name)
            return name

        return cache.get(name, make, lambda _: size)

    assert [get(name) for name in "abacab"] == list("abacab")
    assert made == ["a", "b", "c", "b"]
    get("huge", 1000)
    assert len(cache) == 1


def test_figures_are_sent_as_files_with_the_python_code_that_draws_them(explorer: Explorer) -> None:
    ids = target_ids(read(explorer, "transformer", target="Ich kann gehen"))
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for form, begin in begins.items():
        options = {"figure": "alignment", "source": SOURCE, "target_ids": ids, "layer": 1, "heads": [0]}
        message, arrays = one(explorer, "figure", model="transformer", form=form, **options)
        assert arrays["file"].tobytes().startswith(begin)
        assert message["name"] == f"transformer-alignment.{form}"
        compile(message["python"], "copied", "exec")
        assert "layer=1" in message["python"]


def test_a_parsed_question_is_accepted(explorer: Explorer) -> None:
    question = parse_question({"id": 5, "kind": "models"})
    assert read_frame(next(explorer.answer(question)))[0]["id"] == 5


def test_the_example_of_the_protocol_document_runs(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "look-protocol.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    shutil.copytree(memorised, tmp_path / "runs" / "small")
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {}
    exec(block, seen)
    assert seen["weights"].sum(-1) == pytest.approx(1, abs=0.1)
