"""The explorer as an anywidget: the page's components in a notebook cell, connected to the model in the kernel."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import anywidget
import traitlets

import regard
from regard.explore import ExploredPredictor, Explorer
from regard.files import write_atomically
from regard.notebook.recording import Recording, record, to_json

FOLDER = Path(regard.__file__).parent / "web"


class ExplorerWidget(anywidget.AnyWidget):
    """The explorer in a notebook cell. A cell that ends with it shows it; `to_html` saves it as one file."""

    text = traitlets.Unicode("").tag(sync=True)
    model = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def __init__(
        self, predictors: Mapping[str, ExploredPredictor], text: str = "", *, state: str = "", height: int = 720
    ) -> None:
        """Explore predictors by name, starting with the first."""
        # Read here and not in the class body, so that a missing file is an error of this call, with a clear message.
        self._esm, self._css = built_file("widget.js"), built_file("widget.css")
        self._explorer, self._recording = Explorer(predictors), Recording()
        super().__init__(text=text, state=state.removeprefix("#"), height=height)
        self.on_msg(self._receive)

    def _receive(self, _: object, content: dict[str, Any], buffers: list[Any]) -> None:
        """Answer a question of the page, frame by frame."""
        question = content.get("question")
        if content.get("kind") != "ask" or not isinstance(question, dict):
            return
        frames = []
        for frame in self._explorer.answer(question):
            self.send({"kind": "frame"}, buffers=[frame])
            frames.append(frame)
        self._recording.add(question, frames)

    def to_html(self, path: str | Path, title: str = "") -> Path:
        """Write a self-contained HTML file that works offline, without server or model.

        It contains all views of the text, and the answers to all changes made in this widget so far. Other questions
        cannot be answered from it.
        """
        options = parse_qs(self.state)
        field = self._explorer.model(options.get("model", [None])[-1]).input_field
        text = options.get(field, [self.text])[-1]
        if not text.strip():
            raise ValueError("there is no text to record yet; open the explorer on one, as in model.look('I can go')")
        recorded = record(self._explorer, text, self.state)
        answers = [*recorded.about(text), *self._recording.about(text)]
        state = urlencode({name: values[-1] for name, values in ({field: [text]} | options).items()})
        write_atomically(Path(path), _page(title or text, to_json(answers), state).encode())
        return Path(path)


def built_file(name: str, folder: Path = FOLDER) -> str:
    """Return the text of a file that was built from `web/`, or raise a `FileNotFoundError` that says how to get it."""
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: this installation of regard has no explorer. Install a release, or in a clone "
            "run `make setup`, which builds the explorer"
        )
    return path.read_text(encoding="utf-8")


def _page(title: str, answers: str, state: str) -> str:
    """Return a page with scripts, styles and answers inline; its policy forbids loading anything."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    style = built_file("widget.css").replace("</style", "<\\/style")
    script = built_file("widget.js").replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>body {{ margin: 0 }}
{style}</style>
</head>
<body>
<div id="regard"></div>
<script>
window.__REGARD_FRAMES__ = {answers};
window.__REGARD_STATE__ = "{state}";
</script>
<script type="module">
{script}
</script>
</body>
</html>
"""
