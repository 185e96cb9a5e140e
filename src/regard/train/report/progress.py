"""Show training events on stderr: a live display in a terminal, plain lines elsewhere."""

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

from regard.train.events import Event, Finished, Noticed, Progress, Saved, Started, Validated
from regard.train.report.formatting import (
    compare_words,
    describe_end,
    format_count,
    format_duration,
    has_perplexity,
)

BARS = "▁▂▃▄▅▆▇█"
MAX_VALIDATIONS, MAX_SAMPLES = 5, 3  # in the live display
LINE_INTERVAL = 10.0  # seconds of training between two plain lines of progress
NARROW, TINY = 70, 44  # columns of a terminal below which less is shown, and below which only the essentials are


def open_view(stream: TextIO | None = None) -> "LiveView | PlainView":
    """Return a view for a stream, by default stderr: live in a terminal that can show it, plain lines elsewhere."""
    stream = stream or sys.stderr
    console = Console(file=stream)
    # Writing bars to a terminal with another encoding would raise an error.
    capable = console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")
    return LiveView(console) if capable else PlainView(stream)


class PlainView:
    """Prints a line for each event, for log files and pipes; of `Progress` events one in ten seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, by default stderr."""
        self.stream = stream or sys.stderr
        self.steps, self.unit = 0, "tokens"
        self.next_line = 0.0  # training time at which progress is printed again

    def __enter__(self) -> "PlainView":
        """Return the view."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing; the stream stays open."""

    def show(self, event: Event) -> None:
        """Print the line of an event."""
        if isinstance(event, Progress):
            if event.seconds < self.next_line:
                return
            self.next_line = event.seconds + LINE_INTERVAL
        line = self._line(event)
        encoding = self.stream.encoding or "utf-8"
        with suppress(OSError):  # training continues when the process that reads it has ended
            print(line.encode(encoding, "replace").decode(encoding), file=self.stream, flush=True)

    def _line(self, event: Event) -> str:
        match event:
            case Started():
                self.steps, self.unit = event.steps, event.unit
                return _describe_start(event)
            case Progress():
                self.steps = event.steps or self.steps
                perplexity = f"perplexity {event.perplexity:.2f}  " if has_perplexity(self.unit) else ""
                return (
                    f"step {self._step_of(event.step)}  epoch {event.epoch}  loss {event.loss:.3f}  "
                    f"{perplexity}rate {event.rate:.2e}  {_describe_speed(event, self.unit)}  "
                    f"{format_duration(event.seconds)} elapsed, {format_duration(event.remaining)} left"
                )
            case Validated():
                values = _validation_values(event)
                metrics = "  ".join(f"{name} {value}" for name, value in values.items())
                best = "  best so far" if event.best else ""
                return f"step {self._step_of(event.step)}  validation {metrics}{best}"
            case Saved():
                return f"step {self._step_of(event.step)}  saved {event.path}"
            case Noticed():
                return event.message
            case Finished():
                return f"{describe_end(event, self.unit)}; {event.run}"

    def _step_of(self, step: int) -> str:
        """Return a step and, if it is known, the number of steps."""
        return f"{step}/{self.steps}" if self.steps else str(step)


class LiveView:
    """A display of the training in a terminal, redrawn at each event; its last state remains on the screen."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on `console`, by default on stderr."""
        self.console = console or Console(stderr=True)
        self.started: Started | None = None
        self.progress: Progress | None = None
        self.finished: Finished | None = None
        self.losses: list[float] = []
        self.validated: deque[Validated] = deque(maxlen=MAX_VALIDATIONS)
        self.best: Validated | None = None
        self.live = Live(console=self.console, auto_refresh=False, get_renderable=self._render)

    def __enter__(self) -> "LiveView":
        """Start to draw."""
        with suppress(OSError):
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing, and leave the last state on the screen."""
        with suppress(OSError):
            self.live.stop()

    def show(self, event: Event) -> None:
        """Redraw with an event; errors of a closed terminal are ignored."""
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

    def _render(self) -> RenderableType:
        """Return the whole display."""
        if self.started is None:
            return Text("preparing to train", style="dim")
        parts: list[RenderableType] = [Text(_describe_start(self.started), style="bold", overflow="fold")]
        if self.progress:
            parts += [self._progress_bar(self.started, self.progress), self._metrics(self.started, self.progress)]
        if self.validated:
            parts += [Text(), self._validations(), Text(), self._samples()]
        if self.finished:
            end = Text(describe_end(self.finished, self.started.unit))
            parts += [Text(), end, Text(str(self.finished.run), style="bold", overflow="fold")]
        return Group(*parts)

    def _progress_bar(self, started: Started, progress: Progress) -> RenderableType:
        """Return the step, a bar, and the elapsed and remaining time."""
        steps = progress.steps or started.steps
        elapsed, left = f"{format_duration(progress.seconds)} elapsed", f"{format_duration(progress.remaining)} left"
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_row(
            f"step {progress.step:,}/{steps:,}" if steps else f"step {progress.step:,}",
            ProgressBar(steps or None, progress.step),
            elapsed if self.finished else left if self.console.width < TINY else f"{elapsed}, {left}",
        )
        return grid

    def _metrics(self, started: Started, progress: Progress) -> RenderableType:
        """Return the loss with a sparkline, and below it learning rate, gradient norm, epoch and speed."""
        width = max(8, min(60, self.console.width - 40))
        perplexity = [("perplexity", f"{progress.perplexity:.2f}")] if has_perplexity(started.unit) else []
        loss = _named_values(("loss", f"{progress.loss:.3f}"), *perplexity)
        loss.append(sparkline(self.losses, width), style="cyan")
        others = _named_values(
            ("rate", f"{progress.rate:.2e}"),
            ("norm", f"{progress.norm:.2f}"),
            ("epoch", str(progress.epoch)),
            ("speed", _describe_speed(progress, started.unit)),
        )
        return Group(loss, others)

    def _validations(self) -> RenderableType:
        """Return a table of the last validations and the best one."""
        events = list(self.validated)
        if self.best and self.best not in events:
            events.insert(0, self.best)
        rows = [(event, _validation_values(event)) for event in events]
        names = list(dict.fromkeys(name for _, values in rows for name in values))
        scores = [name for name in names if name not in ("loss", "perplexity", "accuracy", "examples")]
        if self.console.width < NARROW:
            names = ["loss", *scores]
        if self.console.width < TINY:
            names = scores[:1] or ["loss"]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("validation", *names, ""):
            table.add_column(name, justify="left" if name in ("validation", "") else "right", no_wrap=True)
        for event, values in rows:
            star = "★ best" if event is self.best else ""
            table.add_row(f"{event.step:,}", *(values.get(name, "–") for name in names), star)
        return table

    def _samples(self) -> RenderableType:
        """Return the samples of the last validation, each as an input and an output with its wrong words underlined."""
        lines: list[Text] = []
        for sample in self.validated[-1].samples[:MAX_SAMPLES]:
            correct = sample.output.split() == sample.reference.split()
            output = Text(overflow="ellipsis", no_wrap=True)
            output.append("  ✓ " if correct else "  ✗ ", style="green" if correct else "red")
            for word, matches in compare_words(sample.reference, sample.output):
                output.append(word, style="" if matches else "underline red")
                output.append(" ")
            lines += [Text(sample.input, style="dim", overflow="ellipsis", no_wrap=True), output]
        return Group(*lines)


def sparkline(values: list[float], width: int) -> str:
    """Return at most `width` bars, whose heights are means of consecutive values."""
    count = min(width, len(values))
    groups = [values[len(values) * index // count : len(values) * (index + 1) // count] for index in range(count)]
    means = [sum(group) / len(group) for group in groups]
    low, high = min(means, default=0.0), max(means, default=0.0)
    if not high - low > 0:  # equal values, or one that is not a number
        return BARS[0] * len(means)
    return "".join(BARS[round((mean - low) / (high - low) * (len(BARS) - 1))] for mean in means)


def _named_values(*pairs: tuple[str, str]) -> Text:
    """Return names, dim, each followed by its value."""
    return Text.assemble(*(part for name, value in pairs for part in ((f"{name} ", "dim"), f"{value}  ")))


def _validation_values(event: Validated) -> dict[str, str]:
    """Return the metrics of a validation by name, formatted; those that the task does not have are left out."""
    values = {"loss": f"{event.loss:.3f}"}
    if event.perplexity is not None:
        values["perplexity"] = f"{event.perplexity:.2f}"
    if event.accuracy is not None:
        values["accuracy"] = f"{event.accuracy:.1%}"
    values |= {name: f"{value:.4f}" for name, value in event.metrics.items()}
    # The accuracy of a whole corpus says more than that of some examples.
    values |= {score.name: f"{score.value:.2f}" for score in event.scores if score.name not in values}
    return values | ({"examples": f"{event.predicted:,}"} if event.predicted else {})


def _describe_start(started: Started) -> str:
    """Return what is trained on which device."""
    vocabulary = " + ".join(f"{size:,}" for size in dict.fromkeys(started.vocabulary.values()))
    processes = f" × {started.workers}" if started.workers > 1 else ""
    resumed = f", from step {started.step:,}" if started.step else ""
    minutes = started.recipe.train.minutes
    length = f"{started.steps:,} steps" if started.steps else f"{minutes:g} minute{'' if minutes == 1 else 's'}"
    return (
        f"{started.recipe.name}: {format_count(started.parameters)} parameters, vocabulary {vocabulary}, "
        f"{started.device}{processes}, {length}{resumed}"
    )


def _describe_speed(progress: Progress, unit: str) -> str:
    """Return the speed, and the fraction of the peak FLOP/s of the device if it is known."""
    share = "" if progress.share is None else f" ({progress.share:.0%} of peak FLOP/s)"
    return f"{progress.tokens_per_second:,.0f} {unit}/s{share}"
