"""Checkpoints: everything needed to go on with the same numbers, on disk whole or not at all.

    checkpoints/step-00000500/
      shard-*.safetensors    tensors, written by torch.distributed.checkpoint, each process its part
      notes.json             how far the run has come, size and checksum of every file, and a checksum of all this

Any number of processes can read what any number has written. There is no pickle in it. A checkpoint is written beside
its place, reaches the disk, and is then renamed, so that a name without a dot in front always means a whole one.
"""

import errno
import json
import shutil
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from regard.files import settle, write_whole
from regard.names import CHECKPOINTS
from regard.train.workers import Workers

NOTES = "notes.json"
_NAME, _SCRATCH, _SEAL = "step-{:08d}", ".writing", "seal"
_BLOCK = 1 << 24
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def save(run: Path, step: int, tensors: dict[str, Tensor], notes: dict[str, Any], workers: Workers, keep: int) -> Path:
    """Write a checkpoint with everybody's part, then drop all but the last `keep`."""
    parent = run / CHECKPOINTS
    scratch, place = parent / _SCRATCH, place_of(run, step)
    try:
        if workers.first:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
        workers.wait()
        with _told_plainly():
            # Each process writes its own part, in safetensors' format, and waits until the disk has it.
            writer = HuggingFaceStorageWriter(str(scratch), save_distributed=True)
            state_dict_saver.save(tensors, storage_writer=writer, no_dist=workers.count == 1)
        if workers.first:
            files = {file.name: _print_of(file) for file in sorted(scratch.iterdir())}
            write_whole(scratch / NOTES, _sealed({**notes, "files": files}))
            settle(scratch)
            shutil.rmtree(place, ignore_errors=True)
            scratch.rename(place)
            settle(parent)
            for old in _found(run)[keep:]:
                shutil.rmtree(old, ignore_errors=True)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    workers.wait()
    return place


def place_of(run: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return run / CHECKPOINTS / _NAME.format(step)


def exists(run: Path) -> bool:
    """Whether a run has any checkpoint, whole or not."""
    return bool(_found(run))


def newest(run: Path) -> tuple[Path | None, list[str]]:
    """The last checkpoint that is whole, and what is wrong with those after it."""
    faults: list[str] = []
    for place in _found(run):
        fault = _fault(place)
        if fault is None:
            return place, faults
        faults.append(fault)
    return None, faults


def read_notes(place: Path) -> dict[str, Any]:
    """What was noted beside the tensors; refused where it is not what was written."""
    notes: Any = json.loads((place / NOTES).read_text(encoding="utf-8"))
    # Runs begun before there was a seal have none.
    if not isinstance(notes, dict) or notes.pop(_SEAL, _seal_of(notes)) != _seal_of(notes):
        raise ValueError(f"{NOTES} changed since it was written")
    return notes


def read_into(place: Path, tensors: dict[str, Tensor], workers: Workers) -> None:
    """Fill the tensors, each of which the checkpoint must have."""
    with _told_plainly():
        reader = HuggingFaceStorageReader(str(place))
        state_dict_loader.load(tensors, storage_reader=reader, no_dist=workers.count == 1)


def names_in(place: Path) -> set[str]:
    """The names of the tensors in a checkpoint."""
    return set(HuggingFaceStorageReader(str(place)).read_metadata().state_dict_metadata)


def _found(run: Path) -> list[Path]:
    """The checkpoints of a run, the last one first; copies that somebody laid beside them have other names."""
    return sorted((each for each in (run / CHECKPOINTS).glob("step-*") if each.name[5:].isdecimal()), reverse=True)


def _fault(place: Path) -> str | None:
    """What is wrong with a checkpoint, if anything is."""
    try:
        files = read_notes(place)["files"]
        wrong = [name for name, said in files.items() if _print_of(place / name) != said]
    except (OSError, ValueError, KeyError) as error:
        return f"{place} is damaged ({error})"
    return f"{place} is damaged ({', '.join(wrong)} changed since it was written)" if wrong else None


def _sealed(notes: dict[str, Any]) -> bytes:
    """Notes as a file's bytes, with a checksum of their own."""
    return json.dumps({**notes, _SEAL: _seal_of(notes)}, indent=2).encode()


def _seal_of(notes: object) -> int:
    """A checksum of notes, however they are laid out."""
    return zlib.crc32(json.dumps(notes, sort_keys=True).encode())


def _print_of(file: Path) -> list[int]:
    """Size and checksum of a file."""
    size = check = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            size += len(block)
            check = zlib.crc32(block, check)
    return [size, check]


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Without torch's word that one process is alone; and with the error of the system instead of torch's bundle."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except CheckpointException as error:
        causes = [failure[0] for failure in error.failures.values()]
        system = [cause for cause in causes if isinstance(cause, OSError)]
        raise (system or causes)[0] from error


@contextmanager
def room_in(run: Path) -> Iterator[None]:
    """Turn a full disk into an error that says what is safe and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(error.errno, _no_room(run, error.strerror or "No space left")) from error
    except SafetensorError as error:  # its writer has its own name for what the system said
        if not any(f"code: {number}" in str(error) or f"os error {number}" in str(error) for number in _NO_ROOM):
            raise
        raise OSError(errno.ENOSPC, _no_room(run, "No space left on device")) from error


def _no_room(run: Path, what: str) -> str:
    """What a full disk means for a run."""
    kept = _found(run)
    safe = f"the last checkpoint, {kept[0]}, is whole" if kept else "there is no checkpoint yet"
    return (
        f"{what}: cannot write in {run}; {safe}. Make room (train.keep says how many checkpoints are kept), "
        "then give the same command: it goes on from there"
    )
