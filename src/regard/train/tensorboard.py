"""Training events in, TensorBoard's own record files out: scalars, and sample translations as text.

The records are written here, one after the other, rather than by a writer's background thread: a full disk is then
an error where it happens, and a killed run has lost nothing.
"""

import time
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event as Record
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from regard.train.events import Event, Progress, Sample, Validated

FILE = "events.out.tfevents.{number:06}"  # TensorBoard reads what has `tfevents` in its name, in this order


class Board:
    """A folder for TensorBoard, with a new file for each start of the run."""

    def __init__(self, folder: Path) -> None:
        """Write into `folder`; nothing is touched before `start`."""
        self.folder = folder
        self.file: BinaryIO | None = None

    def start(self, step: int) -> None:
        """Begin, or go on from `step`: whatever an earlier life wrote beyond it is not shown any more."""
        self.folder.mkdir(parents=True, exist_ok=True)
        before = [each for each in sorted(self.folder.glob("*.tfevents.*")) if each.suffix[1:].isdecimal()]
        if step == 0:
            for path in before:
                path.unlink()
        number = int(before[-1].suffix[1:]) + 1 if before and step else 1
        self.file = (self.folder / FILE.format(number=number)).open("wb")
        self._write(file_version="brain.Event:2")
        if step:
            # Steps from here on belong to this start (TensorBoard purges by this mark).
            self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, event: Event) -> None:
        """Write the numbers of a `Progress` or `Validated`; nothing for the others."""
        match event:
            case Progress():
                numbers = {
                    "train/loss": event.loss,
                    "train/perplexity": event.perplexity,
                    "train/rate": event.rate,
                    "train/norm": event.norm,
                    "speed/tokens_per_second": event.tokens_per_second,
                    "speed/share_of_limit": event.share,
                }
                self._add_numbers(event.step, numbers)
            case Validated():
                numbers = {"loss": event.loss, "perplexity": event.perplexity, "accuracy": event.accuracy}
                numbers |= {score.name: score.value for score in event.scores}
                self._add_numbers(event.step, {f"valid/{name}": value for name, value in numbers.items()})
                if event.samples:
                    self._add_text(event.step, _table(event.samples))

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self.file:
            self.file.close()
            self.file = None

    def _add_numbers(self, step: int, numbers: dict[str, float | None]) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items() if value is not None]
        self._write(step=step, summary=Summary(value=values))

    def _add_text(self, step: int, text: str) -> None:
        shown = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        self._write(step=step, summary=Summary(value=[Summary.Value(tag="samples", metadata=shown, tensor=tensor)]))

    def _write(self, **parts: Any) -> None:
        """One record, handed to the system before we go on."""
        if self.file is not None:
            RecordWriter(self.file).write(Record(wall_time=time.time(), **parts).SerializeToString())
            self.file.flush()


def _table(samples: tuple[Sample, ...]) -> str:
    """Samples as the table TensorBoard's Markdown knows."""
    rows = [(each.source, each.reference, each.translation) for each in samples]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(["source | reference | translation", "---|---|---", *cells])
