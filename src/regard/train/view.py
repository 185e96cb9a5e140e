"""Training events in, something to look at on stderr: a live picture in a terminal, plain lines anywhere else."""

import sys
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.train.events import Event, Finished, Noticed, Progress, Sample, Saved, Started, Validated
from regard.train.wording import amount, duration, ending, marked_words

BARS = "▁▂▃▄▅▆▇█"
ROWS = 5  # validations on the screen
PAUSE = 10.0  # seconds between two lines of progress
SAMPLES = 3  # sentences on the screen
NARROW, TINY = 70, 44  # columns below which the less important goes, and then all but the most important


def open_view(stream: TextIO | None = None) -> "LiveView | PlainView":
    """The view that suits where stderr goes: live in a terminal that can show it, plain lines elsewhere."""
    stream = stream or sys.stderr
    console = Console(file=stream)
    # A terminal that cannot write the bars must not end a training for them.
    able = console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")
    return LiveView(console) if able else PlainView(stream)


class PlainView:
    """Lines for log files and pipes: one for each event, but of those that come every second one in ten seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, which is stderr unless told otherwise."""
        self.stream = stream or sys.stderr
        self.steps = 0
        self.due = 0.0  # seconds of training at which progress is told again

    def __enter__(self) -> "PlainView":
        """Nothing to open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def show(self, event: Event) -> None:
        """Write the event's line."""
        if isinstance(event, Progress):
            if event.seconds < self.due:
                return
            self.due = event.seconds + PAUSE
        line = self._line(event)
        encoding = self.stream.encoding or "utf-8"
        with suppress(OSError):  # whoever watched may leave; training goes on
            print(line.encode(encoding, "replace").decode(encoding), file=self.stream, flush=True)

    def _line(self, event: Event) -> str:
        match event:
            case Started():
                self.steps = event.steps
                return _opening(event)
            case Progress():
                speed = f"{event.tokens_per_second:,.0f} tokens/s{_share(event)}"
                return (
                    f"step {event.step}/{self.steps}  epoch {event.epoch}  loss {event.loss:.3f}  "
                    f"perplexity {event.perplexity:.2f}  rate {event.rate:.2e}  {speed}  "
                    f"{duration(event.seconds)} gone, {duration(event.remaining)} left"
                )
            case Validated():
                scores = "".join(f"  {score.name} {score.value:.2f}" for score in event.scores)
                return (
                    f"step {event.step}/{self.steps}  validation loss {event.loss:.3f}  "
                    f"perplexity {event.perplexity:.2f}  accuracy {event.accuracy:.1%}{scores}"
                    f"{'  best so far' if event.best else ''}"
                )
            case Saved():
                return f"step {event.step}/{self.steps}  saved {event.path}"
            case Noticed():
                return event.message
            case Finished():
                return f"{ending(event)}; {event.run}"


class LiveView:
    """A picture of the training that is redrawn at each event, and stays when it is over."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on `console`, which writes to stderr unless told otherwise."""
        self.console = console or Console(stderr=True)
        self.started: Started | None = None
        self.progress: Progress | None = None
        self.finished: Finished | None = None
        self.losses: list[float] = []
        self.validated: deque[Validated] = deque(maxlen=ROWS)
        self.best: Validated | None = None
        self.live = Live(console=self.console, auto_refresh=False, get_renderable=self._picture)

    def __enter__(self) -> "LiveView":
        """Take the lower part of the screen."""
        with suppress(OSError):
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Leave the last picture standing."""
        with suppress(OSError):
            self.live.stop()

    def show(self, event: Event) -> None:
        """Redraw with what the event tells; where the terminal is gone, training goes on without."""
        with suppress(OSError):
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
            case Progress():
                self.progress = event
                self.losses.append(event.loss)
            case Validated():
                self.validated.append(event)
                self.best = event if event.best else self.best
            case Noticed():
                self.live.console.print(Text(event.message, style="dim"))
            case Finished():
                self.finished = event
            case Saved():
                return
        self.live.refresh()

    def _picture(self) -> RenderableType:
        """All that is known, from the most to the least lasting."""
        if self.started is None:
            return Text("preparing to train", style="dim")
        parts: list[RenderableType] = [Text(_opening(self.started), style="bold", overflow="fold")]
        if self.progress:
            parts += [self._bar(self.progress), self._learning(self.progress)]
        if self.validated:
            parts += [Text(), self._validations(), Text(), self._samples()]
        if self.finished:
            parts += [Text(), Text(ending(self.finished)), Text(str(self.finished.run), style="bold", overflow="fold")]
        return Group(*parts)

    def _bar(self, now: Progress) -> RenderableType:
        """How far it is, and for how long yet."""
        assert self.started is not None
        gone, left = f"{duration(now.seconds)} gone", f"{duration(now.remaining)} left"
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_row(
            f"step {now.step:,}/{self.started.steps:,}",
            ProgressBar(self.started.steps, now.step),
            gone if self.finished else left if self.console.width < TINY else f"{gone}, {left}",
        )
        return grid

    def _learning(self, now: Progress) -> RenderableType:
        """The loss as numbers and as a line of bars; rate and speed below."""
        width = max(8, min(60, self.console.width - 40))
        told = _named(("loss", f"{now.loss:.3f}"), ("perplexity", f"{now.perplexity:.2f}"))
        told.append(sparkline(self.losses, width), style="cyan")
        speed = _named(
            ("rate", f"{now.rate:.2e}"),
            ("norm", f"{now.norm:.2f}"),
            ("epoch", str(now.epoch)),
            ("speed", f"{now.tokens_per_second:,.0f} tokens/s{_share(now)}"),
        )
        return Group(told, speed)

    def _validations(self) -> RenderableType:
        """The last validations, the best one of all starred and kept in sight."""
        rows = list(self.validated)
        if self.best and self.best not in rows:
            rows.insert(0, self.best)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        names = list(dict.fromkeys(score.name for row in rows for score in row.scores))
        plain = ["loss", "perplexity", "accuracy"] if self.console.width >= NARROW else ["loss"]
        if self.console.width < TINY:
            plain, names = ([], names[:1]) if names else (plain, names)
        for name in ("validation", *plain, *names, ""):
            table.add_column(name, justify="left" if name in ("validation", "") else "right", no_wrap=True)
        for row in rows:
            values = {score.name: f"{score.value:.2f}" for score in row.scores}
            numbers = [f"{row.loss:.3f}", f"{row.perplexity:.2f}", f"{row.accuracy:.1%}"][: len(plain)]
            star = "★ best" if row is self.best else ""
            table.add_row(f"{row.step:,}", *numbers, *(values.get(name, "–") for name in names), star)
        return table

    def _samples(self) -> RenderableType:
        """What the model says now, with the words marked that the reference has not."""
        lines = [_sample(sample) for sample in self.validated[-1].samples[:SAMPLES]]
        return Group(*(line for pair in lines for line in pair))


def _named(*pairs: tuple[str, str]) -> Text:
    """Names, dim, each before its value."""
    return Text.assemble(*(part for name, value in pairs for part in ((f"{name} ", "dim"), f"{value}  ")))


def _sample(sample: Sample) -> list[Text]:
    """A source sentence, and under it the translation: right, or with its wrong words underlined."""
    said = Text(overflow="ellipsis", no_wrap=True)
    right = sample.translation.split() == sample.reference.split()
    said.append("  ✓ " if right else "  ✗ ", style="green" if right else "red")
    for word, known in marked_words(sample.reference, sample.translation):
        said.append(word, style="" if known else "underline red")
        said.append(" ")
    return [Text(sample.source, style="dim", overflow="ellipsis", no_wrap=True), said]


def sparkline(values: list[float], width: int) -> str:
    """Numbers as a line of bars, the highest as the tallest; as many means as there is room for."""
    count = min(width, len(values))
    groups = [values[len(values) * at // count : len(values) * (at + 1) // count] for at in range(count)]
    means = [sum(group) / len(group) for group in groups]
    low, high = min(means, default=0.0), max(means, default=0.0)
    if not high - low > 0:  # also where a value is no number
        return BARS[0] * len(means)
    return "".join(BARS[round((mean - low) / (high - low) * (len(BARS) - 1))] for mean in means)


def _opening(started: Started) -> str:
    """What is being trained, on what."""
    source, target = started.vocabulary
    vocabulary = f"{source:,}" if source == target else f"{source:,} + {target:,}"
    several = f" × {started.workers}" if started.workers > 1 else ""
    since = f", from step {started.step:,}" if started.step else ""
    return (
        f"{started.recipe.name}: {amount(started.parameters)} parameters, vocabulary {vocabulary}, "
        f"{started.device}{several}, {started.steps:,} steps{since}"
    )


def _share(progress: Progress) -> str:
    """How much of what the device could do at best was done."""
    return "" if progress.share is None else f" ({progress.share:.0%} of the device's limit)"
