"""Write training events to a run's `log.jsonl` and to TensorBoard, and read the log.

A line of the log is a JSON object: `event` names a class of `regard.train.events`, the other keys are its fields.
A run that resumes drops the lines after the step that it resumes from, so its log equals that of an uninterrupted run.
Incomplete lines, left by `kill -9` or a full disk, are skipped. If the log cannot be written, training continues.
"""

import dataclasses
import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from regard.files import write_atomically
from regard.recipe import Recipe
from regard.score import Score
from regard.tasks import Sample
from regard.train.events import Event, Finished, Noticed, Progress, Saved, Started, Validated
from regard.train.report.tensorboard import TensorBoardWriter

LOG = "log.jsonl"
KINDS = {kind.__name__.lower(): kind for kind in (Started, Progress, Validated, Saved, Noticed, Finished)}

_log = logging.getLogger("regard")


class LogWriter:
    """Writes the events of a run. Each event is on disk when `write` returns.

    Example:
        >>> with LogWriter(run) as log:
        ...     for event in train(recipe, run):
        ...         log.write(event)
    """

    def __init__(self, run: Path) -> None:
        """Log the run in the folder `run`; nothing is written before the event `Started`."""
        self.path = run / LOG
        self.tensorboard = TensorBoardWriter(run / "tensorboard")
        self.step = 0
        self.early: list[Event] = []  # events before `Started`, which says from which step the log continues
        self.messages: set[str] = set()
        self.started = self.warned = self.incomplete = False

    def __enter__(self) -> "LogWriter":
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.tensorboard.close()

    def write(self, event: Event) -> None:
        """Append an event. If that fails, log a warning once and continue."""
        if not self.started and not isinstance(event, Started):
            self.early.append(event)
            return
        try:
            self._write(event)
        except OSError as error:
            self.incomplete = True
            if not self.warned:
                self.warned = True
                _log.warning("%s cannot be written (%s); training continues, but events are missing", self.path, error)

    def _write(self, event: Event) -> None:
        match event:
            case Started():
                self.started, self.step = True, event.step
                self._begin(event)
                self.tensorboard.start(event.step)
                for unlogged in self.early:
                    self._append(unlogged)
                self.early = []
            case Noticed():
                self._append(event)
            case _:
                self.step = event.step
                self._append(event)
                self.tensorboard.add(event)

    def _begin(self, started: Started) -> None:
        """Start the log with the event, followed by the earlier lines up to the step that the run resumes from."""
        kept = [line for line in _read_lines(self.path) if started.step and line["step"] <= started.step]
        kept = [line for line in kept if line["event"] not in ("started", "finished")]
        self.messages = {line["message"] for line in kept if line["event"] == "noticed"}
        first = {"event": "started", **_to_json(started), "step": 0}
        write_atomically(self.path, "".join(_encode(line) for line in [first, *kept]).encode())

    def _append(self, event: Event) -> None:
        if isinstance(event, Noticed) and event.message in self.messages:
            return  # a run that resumes repeats the messages of its first start
        line = {"event": type(event).__name__.lower(), "step": self.step, **_to_json(event)}
        # After a failed write the file may end with part of a line, which must not run into this one.
        data = ("\n" if self.incomplete else "") + _encode(line)
        with self.path.open("ab") as file:
            file.write(data.encode())
        self.incomplete = False


@dataclass(frozen=True)
class TrainingLog:
    """The events of a run, as read from its log."""

    events: tuple[Event, ...]

    @property
    def started(self) -> Started | None:
        """The start of the run, if the log has it."""
        return next((event for event in self.events if isinstance(event, Started)), None)

    @property
    def unit(self) -> str:
        """What the loss is averaged over, such as `tokens`."""
        return self.started.unit if self.started else "tokens"

    @property
    def progress(self) -> list[Progress]:
        """All training metrics."""
        return [event for event in self.events if isinstance(event, Progress)]

    @property
    def validated(self) -> list[Validated]:
        """All validations."""
        return [event for event in self.events if isinstance(event, Validated)]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of the last validation that has any."""
        return next((event.samples for event in reversed(self.validated) if event.samples), ())

    @property
    def finished(self) -> Finished | None:
        """The end of the run, if it has ended."""
        return next((event for event in reversed(self.events) if isinstance(event, Finished)), None)


def read_log(run: Path) -> TrainingLog:
    """Read the log of the run in the folder `run`; raise a ValueError if there is none."""
    path = run / LOG
    if not path.is_file():
        raise ValueError(f"{run} has no {LOG}; it is written when training starts")
    return TrainingLog(tuple(event for line in _read_lines(path) if (event := _from_json(line)) is not None))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a log."""
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


def _to_json(value: Any) -> Any:
    """Return a value as JSON; numbers that are not finite become null."""
    match value:
        case Recipe():
            return value.model_dump(mode="json")
        case Path():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [_to_json(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _from_json(line: dict[str, Any]) -> Event | None:
    """Return the event of a line; None if another version of the package wrote it and it cannot be read."""
    kind = KINDS[line["event"]]
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    try:
        return kind(**{name: _field_from_json(name, line[name], types[name]) for name in types if name in line})
    except (TypeError, ValueError):
        return None


def _field_from_json(name: str, value: Any, kind: object) -> Any:
    """Return a field of an event from its JSON value."""
    match name:
        case "recipe":
            return Recipe.model_validate_json(json.dumps(value))
        case "run" | "path":
            return Path(value)
        case "vocabulary":
            # Version 0.1, which only translated, wrote a list of two sizes.
            return dict(value) if isinstance(value, dict) else dict(zip(("source", "target"), value, strict=True))
        case "scores" if isinstance(value, list):
            return tuple(Score(**score) for score in value)
        case "samples":
            renamed = {"source": "input", "translation": "output"}  # names in version 0.1
            return tuple(Sample(**{renamed.get(key, key): text for key, text in sample.items()}) for sample in value)
    return math.nan if value is None and kind is float else value
