"""Training events in, a run's `log.jsonl` and `tensorboard/` out; and the log back in as the events it was made of.

A line of the log is one JSON object: `event` says which of `regard.train.events` it is, the other keys are its fields.
A resumed run drops what its earlier life wrote beyond the step it goes on from, so the log reads as if nothing had
stopped it. What a `kill -9` left of a last line is passed over, and a full disk costs the log, never the training.
"""

import dataclasses
import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from regard.files import write_whole
from regard.recipe import Recipe
from regard.score import Score
from regard.train.events import Event, Finished, Noticed, Progress, Sample, Saved, Started, Validated
from regard.train.tensorboard import Board

LOG = "log.jsonl"
KINDS = {kind.__name__.lower(): kind for kind in (Started, Progress, Validated, Saved, Noticed, Finished)}

_log = logging.getLogger("regard")


class Journal:
    """Keeps what training tells: `write` each event; it is on disk when the call returns."""

    def __init__(self, run: Path) -> None:
        """Keep the events of the run in folder `run`; nothing is touched before training has started."""
        self.path = run / LOG
        self.board = Board(run / "tensorboard")
        self.step = 0
        self.early: list[Event] = []  # told before training says from which step it starts
        self.notices: set[str] = set()
        self.started = self.warned = self.torn = False

    def __enter__(self) -> "Journal":
        """Nothing to open yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close what was opened."""
        self.board.close()

    def write(self, event: Event) -> None:
        """Append one event; where that cannot be done, say so once and go on."""
        if not self.started and not isinstance(event, Started):
            self.early.append(event)
            return
        try:
            self._write(event)
        except OSError as error:
            self.torn = True
            if not self.warned:
                self.warned = True
                _log.warning("%s cannot be written (%s); training goes on, its log has a gap", self.path, error)

    def _write(self, event: Event) -> None:
        match event:
            case Started():
                self.started, self.step = True, event.step
                self._begin(event)
                self.board.start(event.step)
                for each in self.early:
                    self._append(each)
                self.early = []
            case Noticed():
                self._append(event)
            case _:
                self.step = event.step
                self._append(event)
                self.board.add(event)

    def _begin(self, started: Started) -> None:
        """Keep of an earlier life what lies before the step we start from, under this start's own facts."""
        kept = [line for line in _lines(self.path) if started.step and line["step"] <= started.step]
        kept = [line for line in kept if line["event"] not in ("started", "finished")]
        self.notices = {line["message"] for line in kept if line["event"] == "noticed"}
        first = {"event": "started", **_plain(started), "step": 0}
        write_whole(self.path, "".join(_encode(line) for line in [first, *kept]).encode())

    def _append(self, event: Event) -> None:
        if isinstance(event, Noticed) and event.message in self.notices:
            return  # a resumed run says again what the first start said
        line = {"event": type(event).__name__.lower(), "step": self.step, **_plain(event)}
        # After a write that failed, half a line may stand there; it must not spoil this one.
        data = ("\n" if self.torn else "") + _encode(line)
        with self.path.open("ab") as file:
            file.write(data.encode())
        self.torn = False


@dataclass(frozen=True)
class Log:
    """A run's events, as its log kept them."""

    events: tuple[Event, ...]

    @property
    def started(self) -> Started | None:
        """How the run began, where the log still says."""
        return next((event for event in self.events if isinstance(event, Started)), None)

    @property
    def progress(self) -> list[Progress]:
        """How learning went."""
        return [event for event in self.events if isinstance(event, Progress)]

    @property
    def validated(self) -> list[Validated]:
        """Every validation."""
        return [event for event in self.events if isinstance(event, Validated)]

    @property
    def finished(self) -> Finished | None:
        """How the run ended, where it has."""
        return next((event for event in reversed(self.events) if isinstance(event, Finished)), None)


def read(run: Path) -> Log:
    """The log of the run in folder `run`."""
    path = run / LOG
    if not path.is_file():
        raise ValueError(f"{run} has no {LOG}; a run's folder has one once training has started in it")
    return Log(tuple(event for line in _lines(path) if (event := _event(line)) is not None))


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; what a kill or a full disk left of others is passed over."""
    lines = []
    for text in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and line.get("event") in KINDS and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _encode(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value as JSON has it; a number that is none, or beyond all bounds, becomes null."""
    match value:
        case Recipe():
            return value.model_dump(mode="json")
        case Path():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _ if dataclasses.is_dataclass(value):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _event(line: dict[str, Any]) -> Event | None:
    """The event a line was made of; none where another version of the package wrote what this one cannot read."""
    kind = KINDS[line["event"]]
    known = {field.name: field.type for field in dataclasses.fields(kind)}
    try:
        return kind(**{name: _restored(name, line[name], known[name]) for name in known if name in line})
    except (TypeError, ValueError):
        return None


def _restored(name: str, value: Any, kind: object) -> Any:
    """One field as it was before JSON had it."""
    match name:
        case "recipe":
            return Recipe.model_validate_json(json.dumps(value))
        case "run" | "path":
            return Path(value)
        case "vocabulary":
            return tuple(value)
        case "scores" if isinstance(value, list):
            return tuple(Score(**each) for each in value)
        case "samples":
            return tuple(Sample(**each) for each in value)
    return math.nan if value is None and kind is float else value
