"""Test the notebook widget with a fake comm in place of a notebook."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.explore import read_frame
from regard.notebook.recording import Recording, record
from regard.notebook.widget import FOLDER, ExplorerWidget, built_file
from regard.predict import Translator
from regard.tasks import load_translator

SENTENCE = "I can go"


class Comm:
    """The messages that a notebook would receive from a widget."""

    comm_id = "1"

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, Any], list[bytes]]] = []

    def on_msg(self, callback: object) -> None: ...

    def send(self, data: dict[str, Any], buffers: list[bytes] | None = None, **rest: object) -> None:
        self.received.append((data, buffers or []))

    def frames(self) -> list[bytes]:
        return [buffers[0] for data, buffers in self.received if data["method"] == "custom"]

    def close(self, *details: object) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def page_is_built() -> None:
    """Skip without the two built files of the widget, which every installation has."""
    if not (FOLDER / "widget.js").is_file():
        pytest.skip("the page is not built")


@pytest.fixture(scope="module")
def translator(memorised: Path) -> Translator:
    return load_translator(memorised, "cpu")


def opened(widget: ExplorerWidget) -> Comm:
    comm = Comm()
    widget.comm = comm
    return comm


def ask(widget: ExplorerWidget, content: dict[str, Any]) -> None:
    """Send a message as the notebook does."""
    widget._handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


def test_a_question_is_answered_frame_by_frame(translator: Translator) -> None:
    widget = translator.look(SENTENCE)
    comm = opened(widget)
    ask(widget, {"kind": "ask", "question": {"id": 3, "channel": "main", "kind": "read", "source": SENTENCE}})
    messages = [read_frame(frame)[0] for frame in comm.frames()]
    assert [message["id"] for message in messages] == [3] * len(messages)
    assert messages[0]["kind"] == "tokens"
    (result,) = (message for message in messages if message["kind"] == "result")
    assert result["text"] == translator(SENTENCE, beam=1).text
    assert [message["last"] for message in messages] == [False] * (len(messages) - 1) + [True]


def test_an_error_is_sent_as_a_frame(translator: Translator) -> None:
    widget = regard.look(translator, SENTENCE)
    comm = opened(widget)
    ask(widget, {"kind": "ask", "question": {"id": 1, "kind": "read", "source": ""}})
    ask(widget, {"kind": "something else"})
    (frame,) = comm.frames()
    assert read_frame(frame)[0]["kind"] == "error"


def test_a_widget_opens_with_the_given_text_and_state(translator: Translator) -> None:
    widget = translator.look(SENTENCE, state="#view=atlas&layer=2", height=400)
    assert (widget.text, widget.state, widget.height) == (SENTENCE, "view=atlas&layer=2", 400)
    assert "render" in widget._esm


def test_several_models_are_listed_by_name(translator: Translator) -> None:
    widget = regard.look({"one": translator, "two": translator}, SENTENCE)
    comm = opened(widget)
    ask(widget, {"kind": "ask", "question": {"id": 1, "kind": "models"}})
    message, _ = read_frame(comm.frames()[0])
    assert [model["name"] for model in message["models"]] == ["one", "two"]


def test_without_anywidget_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "import regard\n"
        "from regard.predict import Translator\n"
        "try:\n    Translator.look(object.__new__(Translator), 'I can go')\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "needs anywidget, which is not installed; use: pip install 'regard[notebook]'" in output


def test_an_installation_without_the_page_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no explorer"):
        built_file("widget.js", tmp_path)


def test_a_recording_contains_every_view_of_the_text(translator: Translator) -> None:
    explorer = translator.look(SENTENCE)._explorer
    recorded = list(record(explorer, SENTENCE, "layer=2&head=1,2").about(SENTENCE))
    kinds = [question["kind"] for question, _ in recorded]
    assert kinds[:5] == ["models", "tokens", "read", "beam", "positions"]
    maths = [question for question, _ in recorded if question["kind"] == "maths"]
    target = next(read_frame(frame)[0] for frame in recorded[2][1] if read_frame(frame)[0]["kind"] == "result")[
        "target"
    ]
    assert [question["query"] for question in maths] == list(range(len(target)))
    assert {(question["part"], question["layer"], question["head"]) for question in maths} == {("cross", 1, 0)}


def test_a_recording_drops_the_oldest_answers_and_keeps_no_errors(translator: Translator) -> None:
    explorer = translator.look(SENTENCE)._explorer
    frames = list(explorer.answer({"kind": "tokens", "source": SENTENCE}))
    size = sum(map(len, frames))
    recording = Recording(most=2 * size)
    for number in range(4):
        recording.add({"kind": "tokens", "source": SENTENCE, "model": str(number)}, frames)
    recording.add({"kind": "read", "source": ""}, list(explorer.answer({"kind": "read", "source": ""})))
    assert [question["model"] for question, _ in recording.about(SENTENCE)] == ["2", "3"]


def test_the_html_contains_answers_and_changes_and_loads_nothing(translator: Translator, tmp_path: Path) -> None:
    sentence = "</script> I can go"
    widget = translator.look(sentence)
    opened(widget)
    change = {"op": "ablate", "part": "cross", "layer": 0, "heads": [0], "how": "zero"}
    ask(widget, {"kind": "ask", "question": {"id": 9, "kind": "read", "source": sentence, "changes": [change]}})
    page = widget.to_html(tmp_path / "look.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    recorded = json.loads(page.split("window.__REGARD_FRAMES__ = ")[1].split(";\nwindow.")[0])
    assert [change] in [answer["question"].get("changes") for answer in recorded]
    assert all("id" not in answer["question"] for answer in recorded)
    assert "default-src 'none'" in page
    assert "http://" not in page.split("<script type")[0]


def test_to_html_without_a_text_is_refused(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no text to record yet"):
        translator.look().to_html(tmp_path / "look.html")
