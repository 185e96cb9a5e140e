"""A leaderboard of a running race on stderr: redrawn in a terminal, plain lines elsewhere."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from regard.race.contenders import Budget
from regard.race.result import RaceResult, validation_bleu
from regard.race.runner import Evaluated, Failed, RaceEvent
from regard.train.events import Finished, Progress, Started, Validated
from regard.train.report.formatting import format_count, format_duration

LINE_INTERVAL = 15.0  # seconds of training between two lines of progress about one contender


@dataclass
class ContenderState:
    """The state of one contender, updated by its events."""

    name: str
    status: str = "waiting"
    failure: str = ""
    """The reason of a failure."""
    progress: Progress | None = None
    loss: float | None = None
    bleu: float | None = None
    scores: tuple[str, ...] = ()
    """Names of the scores in its row, of which the first one ranks the contenders."""
    result: RaceResult | None = None

    def update(self, event: RaceEvent) -> None:
        """Apply an event."""
        match event:
            case Started():
                self.status = "training"
            case Progress():
                self.progress = event
            case Validated():
                self.loss = event.loss
                bleu = validation_bleu(event)
                self.bleu = self.bleu if bleu is None else bleu
            case Finished():
                self.status = "stopped" if event.reason == "stopped" else "evaluating"
            case Evaluated():
                self.status, self.result = "done" if event.fresh else "done earlier", event.result
                self.loss, self.bleu = event.result.loss, event.result.score("BLEU")
            case Failed():
                self.status, self.failure = "failed", event.reason

    def budget_used(self, budget: Budget) -> float:
        """Return the part of the budget that is used, from 0 to 1."""
        if self.result or self.status == "evaluating":
            return 1.0
        if self.progress is None:
            return 0.0
        if budget.unit == "seconds":
            return min(1.0, self.progress.seconds / budget.amount)
        return self.progress.step / max(1, self.progress.steps)  # a budget of tokens or FLOPs is a number of steps

    def cells(self, budget: Budget) -> list[str]:
        """Return the row of the leaderboard, in the order of `Leaderboard.headings`."""
        tokens = self.result.tokens if self.result else self.progress.tokens if self.progress else 0
        seconds = self.result.seconds if self.result else self.progress.seconds if self.progress else 0.0
        speed = self.result.training_speed if self.result else self.progress.tokens_per_second if self.progress else 0.0
        scores = {name: self.result.score(name) for name in self.scores} if self.result else {"BLEU": self.bleu}
        return [
            self.name,
            self.status,
            f"{self.budget_used(budget):.0%}",
            _number(self.loss, 3),
            *(_number(scores.get(name), 3 if name == "AER" else 1) for name in self.scores),
            format_count(tokens),
            format_count(speed),
            format_duration(seconds),
        ]


class Leaderboard:
    """The state of all contenders, best first: by a score after evaluation, then by validation loss."""

    def __init__(
        self,
        names: Sequence[str],
        budget: Budget,
        scores: tuple[str, ...],
        stream: TextIO | None = None,
        live: bool = True,
    ) -> None:
        """Create a leaderboard.

        Args:
            names: The names of the contenders.
            budget: The budget of each.
            scores: Names of the scores to show; the first one ranks the contenders, and higher is better.
            stream: Where to write; stderr by default.
            live: Redraw a table if the stream is a terminal; otherwise print lines.
        """
        self.contenders, self.budget = {name: ContenderState(name, scores=scores) for name in names}, budget
        self.headings = ("contender", "state", "budget", "loss", *scores, "tokens", "tokens/s", "time")
        self.rank_by = scores[0]
        self.stream = stream or sys.stderr
        console = Console(file=self.stream)
        redraw = live and console.is_terminal and not console.is_dumb_terminal
        self.live = Live(console=console, auto_refresh=False, get_renderable=self.table) if redraw else None
        self.next_line: dict[str, float] = {}

    def __enter__(self) -> "Leaderboard":
        """Start redrawing."""
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop redrawing, and leave the last table on the screen."""
        if self.live:
            self.live.stop()

    def show(self, name: str, event: RaceEvent) -> None:
        """Apply an event of a contender, and show it."""
        contender = self.contenders[name]
        contender.update(event)
        if self.live:
            self.live.refresh()
        elif self._deserves_a_line(name, event):
            values = zip(self.headings[2:], contender.cells(self.budget)[2:], strict=True)
            line = "  ".join(f"{heading} {value}" for heading, value in values if value != "–")
            status = f"{contender.status}: {contender.failure}" if contender.failure else contender.status
            print(f"{name} {status}  {line}", file=self.stream, flush=True)

    def ranked(self) -> list[ContenderState]:
        """Return the contenders, best first; those without a loss come last."""
        return sorted(
            self.contenders.values(),
            key=lambda contender: (
                contender.result is None,
                -(contender.result.score(self.rank_by) or 0.0) if contender.result else 0.0,
                contender.loss if contender.loss is not None else float("inf"),
            ),
        )

    def table(self) -> Table:
        """Return the leaderboard as a table for a terminal."""
        table = Table(title=f"the race: {self.budget} each", box=None, padding=(0, 1, 0, 0), header_style="dim")
        for heading in self.headings:
            table.add_column(heading, justify="left" if heading in ("contender", "state") else "right", no_wrap=True)
        # Reasons of failures are long, so they go below the table and do not squeeze its columns.
        failed = [contender for contender in self.contenders.values() if contender.failure]
        table.caption = "\n".join(f"{contender.name} failed: {contender.failure}" for contender in failed)
        table.caption_justify, table.caption_style = "left", ""
        for contender in self.ranked():
            table.add_row(*contender.cells(self.budget), style="bold" if contender.status == "training" else "")
        return table

    def _deserves_a_line(self, name: str, event: RaceEvent) -> bool:
        """Return whether to print an event: progress at intervals, changes of state always."""
        if isinstance(event, Progress):
            if event.seconds < self.next_line.get(name, 0.0):
                return False
            self.next_line[name] = event.seconds + LINE_INTERVAL
            return True
        return isinstance(event, Started | Validated | Finished | Evaluated | Failed)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
