import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.train.story import progress, started, story, validated

from regard.train.events import Event, Noticed
from regard.train.report.formatting import compare_words, format_count, format_duration
from regard.train.report.progress import LiveView, PlainView, open_view, sparkline

RUN = Path("runs/story")


class Terminal(io.StringIO):
    """A stream that claims to be a terminal with some encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self.named = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.named

    def isatty(self) -> bool:
        return True


def drawn(view: LiveView, width: int) -> str:
    """Return what the view would draw now, as text."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(view.live.get_renderable())
    return console.export_text()


def live(width: int = 100, height: int = 40) -> LiveView:
    return LiveView(Console(file=io.StringIO(), force_terminal=True, width=width, height=height))


def test_a_pipe_gets_plain_lines_and_a_terminal_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_view(io.StringIO()), PlainView)
    assert isinstance(open_view(Terminal("utf-8")), LiveView)


def test_a_terminal_without_unicode_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_view(Terminal("ascii")), PlainView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_view(Terminal("utf-8")), PlainView)


def test_the_plain_view_prints_one_line_per_event() -> None:
    stream = io.StringIO()
    events = list(story(RUN, pace=10.0))
    with PlainView(stream) as view:
        for event in events:
            view.show(event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(events)
    assert lines[2].startswith("step 10/100  epoch 0  loss 4.583")
    assert "15,300 tokens/s (41% of peak FLOP/s)" in lines[2]
    assert "exact match 50.00  examples 2  best so far" in lines[7]


def test_the_plain_view_prints_progress_every_ten_seconds() -> None:
    stream = io.StringIO()
    with PlainView(stream) as view:
        for event in story(RUN):
            view.show(event)
    printed = [line for line in stream.getvalue().splitlines() if "epoch" in line]
    assert [line.split()[1] for line in printed] == ["10/100"]


def test_plain_lines_can_be_written_in_any_encoding() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainView(stream).show(Noticed("größer als أ"))
    assert raw.getvalue() == b"gr??er als ?\n"


def test_the_live_view_shows_progress_validations_and_samples() -> None:
    with live() as view:
        events: list[Event] = [started(RUN), progress(10), progress(20), validated(50)]
        for event in events:
            view.show(event)
        text = drawn(view, 100)
    for part in ("step 20/100", "0:09 left", "loss 3.567", "rate 1.00e-03", "15,300 tokens/s (41% of", "★ best"):
        assert part in text
    assert "✓ Ich schloss die Fenster" in text
    assert "✗ أستطيع" in text


def test_the_live_view_always_shows_the_best_validation() -> None:
    view = live()
    view.show(started(RUN))
    best = validated(7)
    view.show(best)
    for step in range(10, 100, 10):
        view.show(type(best)(**{**vars(validated(step)), "best": False}))
    starred = [line for line in drawn(view, 100).splitlines() if "★" in line]
    assert [line.split()[0] for line in starred] == ["7"]


@pytest.mark.parametrize("width", [10, 30, 60, 200])
def test_the_live_view_fits_any_width(width: int) -> None:
    with live(width, height=8) as view:
        for event in story(RUN):
            view.show(event)
        text = drawn(view, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "loss" in text


def test_the_last_state_of_the_live_view_says_how_training_ended() -> None:
    view = live()
    with view:
        for event in story(RUN):
            view.show(event)
    written = view.console.file
    assert isinstance(written, io.StringIO)
    assert "because all steps are done: 0:12, 90.0 k tokens; saved weights: best, step 100" in written.getvalue()
    assert "compile is off" in written.getvalue()


class Gone(Terminal):
    """A terminal, or the reader of a pipe, that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_does_not_raise_an_error() -> None:
    views = (PlainView(Gone("utf-8")), LiveView(Console(file=Gone("utf-8"), force_terminal=True)))
    for view in views:
        with view:
            for event in story(RUN):
                view.show(event)


def test_markup_in_messages_is_printed_as_text() -> None:
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


def test_durations_and_counts_are_short() -> None:
    assert [format_duration(seconds) for seconds in (7, 750, 3725, float("nan"), float("inf"))] == [
        "0:07", "12:30", "1:02:05", "–", "–",
    ]  # fmt: skip
    assert [format_count(number) for number in (980, 9999, 15_300, 4.2e6, 65e6, 1.1e9)] == [
        "980", "9,999", "15.3 k", "4.20 M", "65.0 M", "1.10 G",
    ]  # fmt: skip


def test_words_that_differ_from_the_reference_are_found() -> None:
    marked = compare_words("Ich schloss die Fenster", "Ich schloss das Fenster")
    assert [word for word, right in marked if not right] == ["das"]
    assert [word for word, _ in compare_words("a b", "")] == []
