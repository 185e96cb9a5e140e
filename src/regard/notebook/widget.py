"""The widget: the page's own components in a notebook's cell, talking to the model in the kernel by messages."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import anywidget
import traitlets

from regard.analysis.look import Looker
from regard.files import write_whole
from regard.notebook.built import built
from regard.notebook.recording import Recording, as_json, record
from regard.translator import Translator


class Look(anywidget.AnyWidget):
    """The explorer in a cell. Show it by letting a cell end with it; `to_html` keeps what it shows in one file."""

    source = traitlets.Unicode("").tag(sync=True)
    model = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def __init__(
        self, translators: Mapping[str, Translator], sentence: str = "", *, state: str = "", height: int = 720
    ) -> None:
        """Look at some translators, the first of them to begin with."""
        # Read now and not when the class is made, so that a missing file is an error of this call, in words.
        self._esm, self._css = built("widget.js"), built("widget.css")
        self._looker, self._recording = Looker(translators), Recording()
        super().__init__(source=sentence, state=state.removeprefix("#"), height=height)
        self.on_msg(self._asked)

    def _asked(self, _: object, content: dict[str, Any], buffers: list[Any]) -> None:
        """Answer a question of the page, frame by frame."""
        question = content.get("question")
        if content.get("kind") != "ask" or not isinstance(question, dict):
            return
        frames = []
        for frame in self._looker.answer(question):
            self.send({"kind": "frame"}, buffers=[frame])
            frames.append(frame)
        self._recording.keep(question, frames)

    def to_html(self, path: str | Path, title: str = "") -> Path:
        """Write what the explorer shows as one file that opens anywhere, without network, server or model.

        It holds the sentence in all views, and what was changed in this widget so far; nothing else can be asked of it.
        """
        told = parse_qs(self.state)
        source = told.get("source", [self.source])[-1]
        if not source.strip():
            raise ValueError("there is no sentence to record yet; look at one first, as in translator.look('I can go')")
        kept = record(self._looker, source, self.state)
        answers = [*kept.about(source), *self._recording.about(source)]
        state = urlencode({name: values[-1] for name, values in ({"source": [source]} | told).items()})
        place = Path(path)
        write_whole(place, _page(title or source, as_json(answers), state).encode())
        return place


def _page(title: str, answers: str, state: str) -> str:
    """One page with everything in it, which may load nothing from anywhere."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    style = built("widget.css").replace("</style", "<\\/style")
    script = built("widget.js").replace("</script", "<\\/script").replace("<!--", "<\\!--")
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
