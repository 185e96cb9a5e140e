"""Lock and stop a run; errors that say what is safe on disk and how to continue."""

import errno
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import torch
from safetensors import SafetensorError

from regard.data.cache import file_lock
from regard.recipe import Train
from regard.train.checkpoint import describe_latest
from regard.train.distributed import WorkerGroup

_LOCK = ".lock"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StopRequest:
    """Whether a signal has asked the training to stop at the next step."""

    def __init__(self, on_stop: Callable[[], None] | None = None) -> None:
        """Call `on_stop`, from within the signal handler, at the first request."""
        self.requested, self._on_stop = False, on_stop

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal. A second Ctrl-C interrupts at once, except under torchrun, which repeats signals."""
        if self.requested and number == signal.SIGINT and "TORCHELASTIC_RUN_ID" not in os.environ:
            raise KeyboardInterrupt
        first, self.requested = not self.requested, True
        if first and self._on_stop is not None:
            self._on_stop()


@contextmanager
def handle_stop_signals(on_stop: Callable[[], None] | None = None) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a `StopRequest` while the context lasts.

    Python delivers signals to the main thread only, so other threads get a request that nothing sets. Signals that are
    already ignored, as under `nohup`, remain ignored.
    """
    stop = StopRequest(on_stop)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in handled}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_writable(run: Path) -> None:
    """Raise an error if the folder of a run cannot be created or written to; nothing is left there."""
    if run.exists() and not run.is_dir():
        raise ValueError(f"{run} is a file, but a run needs a folder; choose another name with --run")
    missing = [folder for folder in (run, *run.parents) if not folder.exists()]
    probe = run / f".writable-{secrets.token_hex(4)}"
    try:
        run.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        problem = f"{error.strerror}: cannot write in {run}; choose another folder with --run"
        raise OSError(error.errno, problem) from error
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def lock_run(run: Path) -> Iterator[None]:
    """Lock a run's folder; raise a ValueError if another process trains in it."""
    run.mkdir(parents=True, exist_ok=True)
    with file_lock(run / _LOCK, wait=False) as acquired:
        if not acquired and _supports_locks(run):
            raise ValueError(f"another process trains in {run}; wait for it, or choose another folder with --run")
        yield


def _supports_locks(folder: Path) -> bool:
    """Return whether the file system has locks, by locking a file that no other thread or process uses."""
    with file_lock(folder / f"{_LOCK}-{threading.get_native_id()}", wait=False) as acquired:
        return acquired


@contextmanager
def explain_full_disk(run: Path) -> Iterator[None]:
    """Replace the error of a full disk by one that says which checkpoint is safe and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise OSError(error.errno, _disk_full(run, error.strerror or "No space left")) from error
    except SafetensorError as error:  # its writer wraps the system's error in a message
        if not any(f"code: {number}" in str(error) or f"os error {number}" in str(error) for number in _DISK_FULL):
            raise
        raise OSError(errno.ENOSPC, _disk_full(run, "No space left on device")) from error


def _disk_full(run: Path, problem: str) -> str:
    return (
        f"{problem}: cannot write in {run}. {describe_latest(run)} Free some space (train.keep limits the number of "
        "checkpoints), then repeat the command to resume"
    )


@contextmanager
def explain_lost_process(group: WorkerGroup, run: Path) -> Iterator[None]:
    """Replace the error of a lost connection to another process by one that says how to resume."""
    try:
        yield
    except RuntimeError as error:
        if not group.is_connection_error(error):
            raise
        raise ValueError(
            f"one of the {group.world_size} processes has exited; see its own error message. {describe_latest(run)} "
            "Repeat the command to resume; torchrun --max-restarts 3 does so automatically"
        ) from error


@contextmanager
def explain_failed_step(run: Path, settings: Train, tokens: int) -> Iterator[None]:
    """Replace the errors of a diverged loss and of too little memory by ones that say what to change.

    Args:
        run: Folder of the run.
        settings: The `[train]` section of the recipe.
        tokens: The token budget of a batch.
    """
    try:
        yield
    except FloatingPointError as error:
        raise ValueError(
            f"training has diverged: {error}. {describe_latest(run)} "
            "Use a lower train.rate, a longer train.warmup, a smaller train.clip or train.precision=float32, "
            "in a new folder (train.start can take weights from this run)"
        ) from error
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"a batch of {tokens} tokens does not fit into the memory of the device. {describe_latest(run)} "
            f"Repeat the command with train.tokens={tokens // 2} train.accumulate={2 * settings.accumulate}, "
            "which trains on the same number of tokens per step in smaller batches"
        ) from error
