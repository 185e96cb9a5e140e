"""What happens in a race in, a leaderboard on stderr out: redrawn in a terminal, plain lines anywhere else."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from regard.race.budget import Budget
from regard.race.contest import Failed, Happening, Judged
from regard.race.judging import Result, validated_bleu
from regard.train.events import Finished, Progress, Started, Validated
from regard.train.wording import amount, duration

PAUSE = 15.0  # seconds of training between two lines about one contender


@dataclass
class Lane:
    """Where one contender stands."""

    name: str
    state: str = "waits"
    fault: str = ""
    """Why it is out of the race, if it is."""
    progress: Progress | None = None
    flops_per_token: float = 0.0
    loss: float | None = None
    bleu: float | None = None
    result: Result | None = None

    def hear(self, happened: Happening) -> None:
        """Take in what happened."""
        match happened:
            case Started():
                self.state, self.flops_per_token = "trains", happened.flops_per_token
            case Progress():
                self.progress = happened
            case Validated():
                self.loss = happened.loss
                found = validated_bleu(happened)
                self.bleu = self.bleu if found is None else found
            case Finished():
                self.state = "stopped" if happened.reason == "stopped" else "is judged"
            case Judged():
                self.state, self.result = "done" if happened.fresh else "done before", happened.result
                self.loss, self.bleu = happened.result.loss, happened.result.scores["BLEU"]
            case Failed():
                self.state, self.fault = "out", happened.reason

    def share(self, budget: Budget) -> float:
        """How much of its budget is spent."""
        if self.result or self.state == "is judged":
            return 1.0
        if self.progress is None:
            return 0.0
        spent = {
            "tokens": float(self.progress.tokens),
            "seconds": self.progress.seconds,
            "flops": self.progress.tokens * self.flops_per_token,
        }
        return min(1.0, spent[budget.unit] / budget.amount)

    def cells(self, budget: Budget) -> list[str]:
        """Its row of the board."""
        tokens = self.result.tokens if self.result else self.progress.tokens if self.progress else 0
        seconds = self.result.seconds if self.result else self.progress.seconds if self.progress else 0.0
        speed = self.result.training_speed if self.result else self.progress.tokens_per_second if self.progress else 0.0
        aer = self.result.aer if self.result else None
        exact = self.result.scores["exact match"] if self.result else None
        return [
            self.name,
            self.state,
            f"{self.share(budget):.0%}",
            _number(self.loss, 3),
            _number(self.bleu, 1),
            _number(exact, 1),
            _number(aer, 3),
            amount(tokens),
            amount(speed),
            duration(seconds),
        ]


class Leaderboard:
    """All lanes, the best first: by BLEU where it is known, then by validation loss."""

    HEADS = ("contender", "state", "budget", "loss", "BLEU", "exact", "AER", "tokens", "tokens/s", "time")

    def __init__(self, names: Sequence[str], budget: Budget, stream: TextIO | None = None, live: bool = True) -> None:
        """Write to `stream`, stderr unless told otherwise; `live` redraws where the terminal can."""
        self.lanes, self.budget = {name: Lane(name) for name in names}, budget
        self.stream = stream or sys.stderr
        console = Console(file=self.stream)
        able = live and console.is_terminal and not console.is_dumb_terminal
        self.live = Live(console=console, auto_refresh=False, get_renderable=self.table) if able else None
        self.due: dict[str, float] = {}

    def __enter__(self) -> "Leaderboard":
        """Take the lower part of the screen."""
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Leave the last board standing."""
        if self.live:
            self.live.stop()

    def show(self, name: str, happened: Happening) -> None:
        """Take in what happened to whom, and show it."""
        lane = self.lanes[name]
        lane.hear(happened)
        if self.live:
            self.live.refresh()
        elif self._worth_a_line(name, happened):
            told = zip(self.HEADS[2:], lane.cells(self.budget)[2:], strict=True)
            line = "  ".join(f"{head} {value}" for head, value in told if value != "–")
            state = f"{lane.state}: {lane.fault}" if lane.fault else lane.state
            print(f"{name} {state}  {line}", file=self.stream, flush=True)

    def ranked(self) -> list[Lane]:
        """The lanes, the best first; who has not begun stands last."""
        return sorted(
            self.lanes.values(),
            key=lambda lane: (
                lane.result is None,
                -lane.result.scores["BLEU"] if lane.result else 0.0,
                lane.loss if lane.loss is not None else float("inf"),
            ),
        )

    def table(self) -> Table:
        """The board as a terminal shows it."""
        table = Table(title=f"the race: {self.budget} each", box=None, padding=(0, 1, 0, 0), header_style="dim")
        for head in self.HEADS:
            table.add_column(head, justify="left" if head in ("contender", "state") else "right", no_wrap=True)
        # Below the table, where it has room and leaves the columns theirs.
        table.caption = "\n".join(f"{lane.name} is out: {lane.fault}" for lane in self.lanes.values() if lane.fault)
        table.caption_justify, table.caption_style = "left", ""
        for lane in self.ranked():
            table.add_row(*lane.cells(self.budget), style="bold" if lane.state == "trains" else "")
        return table

    def _worth_a_line(self, name: str, happened: Happening) -> bool:
        """Whether a log should have it: progress now and then, everything that lasts always."""
        if isinstance(happened, Progress):
            if happened.seconds < self.due.get(name, 0.0):
                return False
            self.due[name] = happened.seconds + PAUSE
            return True
        return isinstance(happened, Started | Validated | Finished | Judged | Failed)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
