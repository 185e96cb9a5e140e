"""The widget drives the model in the kernel; a fake comm stands in for the notebook."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.analysis.look import read_frame
from regard.notebook import built
from regard.notebook.recording import Recording, record
from regard.notebook.widget import Look
from regard.translator import Translator, load

SENTENCE = "I can go"


class Comm:
    """What a notebook's side of a widget would hear."""

    comm_id = "1"

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, Any], list[bytes]]] = []

    def on_msg(self, callback: object) -> None: ...

    def send(self, data: dict[str, Any], buffers: list[bytes] | None = None, **rest: object) -> None:
        self.heard.append((data, buffers or []))

    def frames(self) -> list[bytes]:
        return [buffers[0] for data, buffers in self.heard if data["method"] == "custom"]

    def close(self, *details: object) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def page_is_built() -> None:
    """A widget is made of two built files, which an install always has."""
    if not (built.FOLDER / "widget.js").is_file():
        pytest.skip("the page is not built here")


@pytest.fixture(scope="module")
def translator(memorised: Path) -> Translator:
    return load(memorised, "cpu")


def opened(widget: Look) -> Comm:
    comm = Comm()
    widget.comm = comm
    return comm


def ask(widget: Look, content: dict[str, Any]) -> None:
    """A message as the notebook sends it."""
    widget._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


def test_a_question_is_answered_frame_by_frame(translator: Translator) -> None:
    widget = translator.look(SENTENCE)
    comm = opened(widget)
    ask(widget, {"kind": "ask", "question": {"id": 3, "channel": "main", "kind": "read", "source": SENTENCE}})
    said = [read_frame(frame)[0] for frame in comm.frames()]
    assert [each["id"] for each in said] == [3] * len(said)
    assert said[0]["kind"] == "tokens"
    (result,) = (each for each in said if each["kind"] == "result")
    assert result["text"] == translator(SENTENCE, beam=1).text
    assert [each["last"] for each in said] == [False] * (len(said) - 1) + [True]


def test_what_cannot_be_answered_is_said_in_a_frame(translator: Translator) -> None:
    widget = regard.look(translator, SENTENCE)
    comm = opened(widget)
    ask(widget, {"kind": "ask", "question": {"id": 1, "kind": "read", "source": ""}})
    ask(widget, {"kind": "something else"})
    (frame,) = comm.frames()
    assert read_frame(frame)[0]["kind"] == "error"


def test_a_widget_opens_on_the_sentence_and_the_state_it_was_told(translator: Translator) -> None:
    widget = translator.look(SENTENCE, state="#view=atlas&layer=2", height=400)
    assert (widget.source, widget.state, widget.height) == (SENTENCE, "view=atlas&layer=2", 400)
    assert "render" in widget._esm


def test_several_models_are_asked_by_their_names(translator: Translator) -> None:
    widget = regard.look({"one": translator, "two": translator}, SENTENCE)
    comm = opened(widget)
    ask(widget, {"kind": "ask", "question": {"id": 1, "kind": "models"}})
    message, _ = read_frame(comm.frames()[0])
    assert [each["name"] for each in message["models"]] == ["one", "two"]


def test_without_anywidget_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "import regard\n"
        "from regard.translator import Translator\n"
        "try:\n    Translator.look(object.__new__(Translator), 'I can go')\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "needs anywidget, which is not installed; use: pip install 'regard[notebook]'" in said


def test_an_install_without_the_page_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="installed without its explorer"):
        built.built("widget.js", tmp_path)


def test_a_recording_has_every_view_of_the_sentence(translator: Translator) -> None:
    looker = translator.look(SENTENCE)._looker
    kept = list(record(looker, SENTENCE, "layer=2&head=1,2").about(SENTENCE))
    kinds = [question["kind"] for question, _ in kept]
    assert kinds[:5] == ["models", "tokens", "read", "beam", "positions"]
    sums = [question for question, _ in kept if question["kind"] == "maths"]
    target = next(read_frame(frame)[0] for frame in kept[2][1] if read_frame(frame)[0]["kind"] == "result")["target"]
    assert [each["query"] for each in sums] == list(range(len(target)))
    assert {(each["part"], each["layer"], each["head"]) for each in sums} == {("cross", 1, 0)}


def test_a_recording_lets_go_of_the_oldest_and_keeps_no_error(translator: Translator) -> None:
    looker = translator.look(SENTENCE)._looker
    frames = list(looker.answer({"kind": "tokens", "source": SENTENCE}))
    size = sum(map(len, frames))
    kept = Recording(most=2 * size)
    for number in range(4):
        kept.keep({"kind": "tokens", "source": SENTENCE, "model": str(number)}, frames)
    kept.keep({"kind": "read", "source": ""}, list(looker.answer({"kind": "read", "source": ""})))
    assert [question["model"] for question, _ in kept.about(SENTENCE)] == ["2", "3"]


def test_the_html_holds_answers_and_what_was_changed_and_loads_nothing(translator: Translator, tmp_path: Path) -> None:
    sentence = "</script> I can go"
    widget = translator.look(sentence)
    opened(widget)
    change = {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "zero"}
    ask(widget, {"kind": "ask", "question": {"id": 9, "kind": "read", "source": sentence, "changes": [change]}})
    page = widget.to_html(tmp_path / "look.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    held = json.loads(page.split("window.__REGARD_FRAMES__ = ")[1].split(";\nwindow.")[0])
    assert [change] in [each["question"].get("changes") for each in held]
    assert all("id" not in each["question"] for each in held)
    assert "default-src 'none'" in page
    assert "http://" not in page.split("<script type")[0]


def test_there_is_nothing_to_record_without_a_sentence(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no sentence to record yet"):
        translator.look().to_html(tmp_path / "look.html")
