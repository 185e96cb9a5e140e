"""A server whose engine can be made to fail: python faulty_server.py RUN FOLDER SECONDS

For lines that start with the symbol `<2de>`, the engine obeys files in FOLDER:

    die     the step ends the worker with an unexpected exception
    fail    the step fails
    hold    the step waits until the file is deleted
    meet    the step waits until the file is deleted, if several lines are in the batch
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from torch import Tensor

from regard.engines import SteppableModel
from regard.nn.ragged import Ragged
from regard.predict import Translator
from regard.serve.server import listen, serve
from regard.serve.settings import ServerLimits, ServerSettings
from regard.tasks import load_translator

MAX_WAIT = 60.0  # seconds
BEAM = 3  # of the model under test


class FaultyEngine:
    """An engine that looks for files before each step."""

    def __init__(self, engine: Any, folder: Path, trigger: int) -> None:
        self.engine, self.folder, self.trigger = engine, folder, trigger
        self.precision = engine.precision

    def start(self, source: Ragged, beams: int = 1) -> tuple[Any, bool]:
        return self.engine.start(source, beams), bool((source.values == self.trigger).any())

    def step(self, tokens_R: Tensor, state: tuple[Any, bool]) -> tuple[Tensor, tuple[Any, bool]]:
        if state[1]:
            self._obey_files(tokens_R.shape[0])
        logprobs_RV, after = self.engine.step(tokens_R, state[0])
        return logprobs_RV, (after, state[1])

    def select(self, state: tuple[Any, bool], rows_R: Tensor) -> tuple[Any, bool]:
        return self.engine.select(state[0], rows_R), state[1]

    def join(self, states: Sequence[tuple[Any, bool]]) -> tuple[Any, bool]:
        return self.engine.join([state for state, _ in states]), any(triggered for _, triggered in states)

    def _obey_files(self, rows: int) -> None:
        if (self.folder / "die").exists():
            raise SystemExit("an unexpected exception")
        if (self.folder / "fail").exists():
            raise RuntimeError("a step that fails")
        start = monotonic()
        while monotonic() - start < MAX_WAIT and (
            (self.folder / "hold").exists() or (rows > BEAM and (self.folder / "meet").exists())
        ):
            Event().wait(0.002)


def with_faulty_engine(translator: Translator, folder: Path) -> Translator:
    """Give a translator a faulty engine, and one worker, so that simultaneous lines share a batch."""
    engine: SteppableModel = FaultyEngine(translator.engine, folder, translator.tokenizers["source"].id("<2de>"))
    translator.engine, translator.workers = engine, 1
    return translator


if __name__ == "__main__":
    limits = ServerLimits(waiting=4, seconds=float(sys.argv[3]))
    settings = ServerSettings(port=0, limits=limits, drain_seconds=0.1)
    model = with_faulty_engine(load_translator(sys.argv[1], "cpu"), Path(sys.argv[2]))
    serve({"faulty": model}, settings, listen("127.0.0.1", 0))
