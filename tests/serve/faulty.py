"""A server whose engine can be made to fail, for tests of what happens then: python faulty.py RUN FOLDER.

The engine does as a file in FOLDER says, when a line begins with the model's symbol `<2de>`:

    die     the worker ends, as by a fault nobody expected
    fail    the step fails
    hold    the step waits until the file is gone
    meet    the step waits until the file is gone, if several lines are in it
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from torch import Tensor

from regard.nn.ragged import Ragged
from regard.serve.server import listen, serve
from regard.serve.settings import Limits, Settings
from regard.translator import Translator, load
from regard.translator.engine import Engine

LONGEST = 60.0  # seconds
BEAM = 3  # of the model under test


class Faulty:
    """An engine that looks for trouble before each step."""

    def __init__(self, engine: Any, folder: Path, trigger: int) -> None:
        self.engine, self.folder, self.trigger = engine, folder, trigger
        self.precision = engine.precision

    def start(self, source: Ragged, beams: int = 1) -> tuple[Any, bool]:
        return self.engine.start(source, beams), bool((source.values == self.trigger).any())

    def step(self, tokens_R: Tensor, state: tuple[Any, bool]) -> tuple[Tensor, tuple[Any, bool]]:
        if state[1]:
            self._look(tokens_R.shape[0])
        logprobs_RV, after = self.engine.step(tokens_R, state[0])
        return logprobs_RV, (after, state[1])

    def select(self, state: tuple[Any, bool], rows_R: Tensor) -> tuple[Any, bool]:
        return self.engine.select(state[0], rows_R), state[1]

    def join(self, states: Sequence[tuple[Any, bool]]) -> tuple[Any, bool]:
        return self.engine.join([state for state, _ in states]), any(told for _, told in states)

    def _look(self, rows: int) -> None:
        if (self.folder / "die").exists():
            raise SystemExit("a fault nobody expected")
        if (self.folder / "fail").exists():
            raise RuntimeError("a step that fails")
        begin = monotonic()
        while monotonic() - begin < LONGEST and (
            (self.folder / "hold").exists() or (rows > BEAM and (self.folder / "meet").exists())
        ):
            Event().wait(0.002)


def faulty(translator: Translator, folder: Path) -> Translator:
    """The same translator with such an engine, and one worker, so that who comes together is together."""
    engine: Engine = Faulty(translator.engine, folder, translator.tokenizers.source.id("<2de>"))
    translator.engine, translator.workers = engine, 1
    return translator


if __name__ == "__main__":
    told = Settings(port=0, limits=Limits(waiting=4, seconds=float(sys.argv[3])))
    serve({"faulty": faulty(load(sys.argv[1], "cpu"), Path(sys.argv[2]))}, told, listen("127.0.0.1", 0))
