"""Write training events as TensorBoard records: metrics as scalars, and samples as text.

Records are written at once rather than by the background thread of a `SummaryWriter`. A full disk then raises an error
where it happens, and a killed run loses no record.
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

from regard.tasks import Sample
from regard.train.events import Event, Progress, Validated

FILE = "events.out.tfevents.{number:06}"  # TensorBoard reads files with `tfevents` in their names, in this order


class TensorBoardWriter:
    """Writes event files for TensorBoard, a new one for each start of the run."""

    def __init__(self, folder: Path) -> None:
        """Write into `folder`; nothing is written before `start`."""
        self.folder = folder
        self.file: BinaryIO | None = None

    def start(self, step: int) -> None:
        """Open a new file. If the run resumes from `step`, TensorBoard hides later steps of earlier files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [path for path in sorted(self.folder.glob("*.tfevents.*")) if path.suffix[1:].isdecimal()]
        if step == 0:
            for path in files:
                path.unlink()
        number = int(files[-1].suffix[1:]) + 1 if files and step else 1
        self.file = (self.folder / FILE.format(number=number)).open("wb")
        self._write(file_version="brain.Event:2")
        if step:
            # TensorBoard purges the steps from this record on that it read from earlier files.
            self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, event: Event) -> None:
        """Write the metrics of `Progress` and `Validated`; other events are ignored."""
        match event:
            case Progress():
                scalars = {
                    "train/loss": event.loss,
                    "train/perplexity": event.perplexity,
                    "train/rate": event.rate,
                    "train/norm": event.norm,
                    "speed/tokens_per_second": event.tokens_per_second,
                    "speed/share_of_limit": event.share,
                }
                self._add_scalars(event.step, scalars)
            case Validated():
                scalars = {"loss": event.loss, "perplexity": event.perplexity, "accuracy": event.accuracy}
                scalars |= event.metrics | {score.name: score.value for score in event.scores}
                self._add_scalars(event.step, {f"valid/{name}": value for name, value in scalars.items()})
                if event.samples:
                    self._add_text(event.step, _table(event.samples))

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self.file:
            self.file.close()
            self.file = None

    def _add_scalars(self, step: int, scalars: dict[str, float | None]) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items() if value is not None]
        self._write(step=step, summary=Summary(value=values))

    def _add_text(self, step: int, text: str) -> None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        self._write(step=step, summary=Summary(value=[Summary.Value(tag="samples", metadata=metadata, tensor=tensor)]))

    def _write(self, **parts: Any) -> None:
        """Write a record, and flush it to the operating system."""
        if self.file is not None:
            RecordWriter(self.file).write(Record(wall_time=time.time(), **parts).SerializeToString())
            self.file.flush()


def _table(samples: tuple[Sample, ...]) -> str:
    """Return samples as a Markdown table."""
    rows = [(sample.input, sample.reference, sample.output) for sample in samples]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(["input | reference | output", "---|---|---", *cells])
