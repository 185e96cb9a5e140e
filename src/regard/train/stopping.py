"""How a run is kept to one training at a time, and how it is stopped without losing anything."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from regard.data.cache import locked

_LOCK = ".lock"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether somebody has asked to stop at the next step."""

    def __init__(self, tell: Callable[[], None] | None = None) -> None:
        """Nobody has; `tell` is called at once when somebody does, whatever is going on."""
        self.asked, self._tell = False, tell

    def ask(self, number: int, _frame: FrameType | None) -> None:
        """What a signal does; a second Ctrl-C does not wait, unless torchrun is what repeats it to its processes."""
        if self.asked and number == signal.SIGINT and "TORCHELASTIC_RUN_ID" not in os.environ:
            raise KeyboardInterrupt
        first, self.asked = not self.asked, True
        if first and self._tell is not None:
            self._tell()


@contextmanager
def stoppable(tell: Callable[[], None] | None = None) -> Iterator[Stop]:
    """Take Ctrl-C, SIGTERM and a terminal that is closed as a wish while the context lasts.

    Only a main thread hears signals. What is ignored already, as `nohup` has it, stays so.
    """
    stop = Stop(tell)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    heard = [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, stop.ask) for each in heard}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def claimed(run: Path) -> Iterator[None]:
    """Hold a run's folder; refuse where another process trains in it."""
    if run.exists() and not run.is_dir():
        raise ValueError(f"{run} is a file, and a run needs a folder; give another name with --run")
    run.mkdir(parents=True, exist_ok=True)
    with locked(run / _LOCK, wait=False) as held:
        if not held and _knows_locks(run):
            raise ValueError(
                f"another process trains in {run}; wait for it, or give this training its own folder with --run"
            )
        yield


def _knows_locks(folder: Path) -> bool:
    """Whether a lock that nobody else can hold is to be had on this file system."""
    with locked(folder / f"{_LOCK}-{threading.get_native_id()}", wait=False) as held:
        return held
