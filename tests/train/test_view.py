import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.train.story import progress, started, story, validated

from regard.train.events import Event, Noticed
from regard.train.view import LiveView, PlainView, open_view, sparkline
from regard.train.wording import amount, duration, marked_words

RUN = Path("runs/story")


class Terminal(io.StringIO):
    """Says it is a terminal of some encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self.named = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.named

    def isatty(self) -> bool:
        return True


def drawn(view: LiveView, width: int) -> str:
    """What the view would draw now, as text."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(view.live.get_renderable())
    return console.export_text()


def live(width: int = 100, height: int = 40) -> LiveView:
    return LiveView(Console(file=io.StringIO(), force_terminal=True, width=width, height=height))


def test_a_pipe_gets_lines_and_a_terminal_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_view(io.StringIO()), PlainView)
    assert isinstance(open_view(Terminal("utf-8")), LiveView)


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_view(Terminal("ascii")), PlainView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_view(Terminal("utf-8")), PlainView)


def test_plain_lines_are_one_an_event() -> None:
    stream = io.StringIO()
    events = list(story(RUN, pace=10.0))
    with PlainView(stream) as view:
        for event in events:
            view.show(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(events)
    assert lines[2].startswith("step 10/100  epoch 0  loss 4.583")
    assert "15,300 tokens/s (41% of the device's limit)" in lines[2]
    assert "exact match 50.00  best so far" in lines[7]


def test_progress_that_comes_every_second_makes_a_line_every_ten() -> None:
    stream = io.StringIO()
    with PlainView(stream) as view:
        for event in story(RUN):
            view.show(event)
    told = [line for line in stream.getvalue().splitlines() if "epoch" in line]
    assert [line.split()[1] for line in told] == ["10/100"]


def test_plain_lines_survive_a_stream_without_the_letters() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainView(stream).show(Noticed("größer als أ"))
    assert raw.getvalue() == b"gr??er als ?\n"


def test_the_live_picture_shows_what_is_known() -> None:
    with live() as view:
        events: list[Event] = [started(RUN), progress(10), progress(20), validated(50)]
        for event in events:
            view.show(event)
        text = drawn(view, 100)
    for part in ("step 20/100", "0:09 left", "loss 3.567", "rate 1.00e-03", "15,300 tokens/s (41% of", "★ best"):
        assert part in text
    assert "✓ Ich schloss die Fenster" in text
    assert "✗ أستطيع" in text


def test_the_best_validation_stays_in_sight() -> None:
    view = live()
    view.show(started(RUN))
    best = validated(7)
    view.show(best)
    for step in range(10, 100, 10):
        view.show(type(best)(**{**vars(validated(step)), "best": False}))
    starred = [line for line in drawn(view, 100).splitlines() if "★" in line]
    assert [line.split()[0] for line in starred] == ["7"]


@pytest.mark.parametrize("width", [10, 30, 60, 200])
def test_no_width_is_overrun(width: int) -> None:
    with live(width, height=8) as view:
        for event in story(RUN):
            view.show(event)
        text = drawn(view, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "loss" in text


def test_the_last_picture_stays_and_says_how_it_ended() -> None:
    view = live()
    with view:
        for event in story(RUN):
            view.show(event)
    written = view.console.file
    assert isinstance(written, io.StringIO)
    assert "because all steps are done: 0:12, 90.0 k target tokens; best at step 100" in written.getvalue()
    assert "compile is off" in written.getvalue()


class Gone(Terminal):
    """A terminal, or a pipe's reader, that somebody has closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_training_outlives_who_watches_it() -> None:
    views = (PlainView(Gone("utf-8")), LiveView(Console(file=Gone("utf-8"), force_terminal=True)))
    for view in views:
        with view:
            for event in story(RUN):
                view.show(event)


def test_markup_in_text_is_text() -> None:
    view = live()
    with view:
        view.show(Noticed("[bold]not markup[/] [/nor this]"))
    assert isinstance(view.console.file, io.StringIO)
    assert "[bold]not markup[/] [/nor this]" in view.console.file.getvalue()


def test_a_sparkline_falls_as_its_values_fall() -> None:
    assert sparkline([3.0, 2.0, 1.0], 10) == "█▅▁"
    assert sparkline([float(100 - value) for value in range(100)], 4) == "█▆▃▁"
    assert sparkline([1.0], 5) == "▁"
    assert sparkline([], 5) == ""
    assert sparkline([1.0, float("nan")], 5) == "▁▁"


def test_times_and_amounts_are_short() -> None:
    assert [duration(each) for each in (7, 750, 3725, float("nan"), float("inf"))] == [
        "0:07", "12:30", "1:02:05", "–", "–",
    ]  # fmt: skip
    assert [amount(each) for each in (980, 9999, 15_300, 4.2e6, 65e6, 1.1e9)] == [
        "980", "9,999", "15.3 k", "4.20 M", "65.0 M", "1.10 G",
    ]  # fmt: skip


def test_words_that_the_reference_has_not_are_marked() -> None:
    marked = marked_words("Ich schloss die Fenster", "Ich schloss das Fenster")
    assert [word for word, right in marked if not right] == ["das"]
    assert [word for word, _ in marked_words("a b", "")] == []
