"""The format of checkpoints: written completely or not at all, and verified by checksums.

    checkpoints/step-00000500/
      shard-*.safetensors    tensors, written by torch.distributed.checkpoint, one file per process
      notes.json             state of the run, size and checksum of every file, and a checksum of this file

A checkpoint can be read by any number of processes, whatever number wrote it. It contains no pickle. It is written to a
temporary folder, flushed to disk and then renamed, so a folder with its final name is always complete.
"""

import json
import re
import shutil
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from regard.files import fsync_path, size_and_checksum, write_atomically
from regard.run_files import CHECKPOINTS
from regard.train.distributed import WorkerGroup

METADATA = "notes.json"
_NAME, _TEMPORARY, _CHECKSUM = "step-{:08d}", ".writing", "seal"


def write_checkpoint(
    run: Path, step: int, tensors: dict[str, Tensor], metadata: dict[str, Any], group: WorkerGroup
) -> Path:
    """Write a checkpoint. Every process must call this."""
    parent = run / CHECKPOINTS
    temporary, path = parent / _TEMPORARY, checkpoint_path(run, step)
    try:
        if group.is_main:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        group.barrier()
        with _plain_errors():
            # Each process writes its own shard, and waits until it is on disk.
            writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
            state_dict_saver.save(tensors, storage_writer=writer, no_dist=group.world_size == 1)
        if group.is_main:
            files = {file.name: size_and_checksum(file) for file in sorted(temporary.iterdir())}
            _write_metadata(temporary, {**metadata, "files": files})
            fsync_path(temporary)
            shutil.rmtree(path, ignore_errors=True)
            temporary.rename(path)
            fsync_path(parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    group.barrier()
    return path


def update_metadata(path: Path, metadata: dict[str, Any]) -> None:
    """Replace entries of a checkpoint's metadata; the tensors stay as they are."""
    _write_metadata(path, {**read_metadata(path), **metadata})


def remove_checkpoint(run: Path, step: int) -> None:
    """Remove the checkpoint of a step."""
    shutil.rmtree(checkpoint_path(run, step), ignore_errors=True)


def remove_old_checkpoints(run: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep`."""
    for old in _list_checkpoints(run)[keep:]:
        shutil.rmtree(old, ignore_errors=True)


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return run / CHECKPOINTS / _NAME.format(step)


def _list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, damaged ones included, the last one first.

    Other files and folders beside them, such as copies, have other names and are ignored. A folder that may not be read
    is an error, not a run without checkpoints.
    """
    try:
        paths = list((run / CHECKPOINTS).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((path for path in paths if re.fullmatch(r"step-\d+", path.name)), reverse=True)


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has any checkpoint, damaged ones included."""
    return bool(_list_checkpoints(run))


def find_latest(run: Path) -> tuple[Path | None, list[str]]:
    """Return the last undamaged checkpoint, and messages about the damaged ones after it."""
    damages: list[str] = []
    for path in _list_checkpoints(run):
        damage = _find_damage(path)
        if damage is None:
            return path, damages
        damages.append(damage)
    return None, damages


def describe_latest(run: Path) -> str:
    """Return a sentence that says which checkpoint an interrupted run can resume from."""
    path, _ = find_latest(run)
    return f"The last checkpoint, {path}, is complete." if path else "There is no checkpoint yet."


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a checkpoint; raise a ValueError if they do not match their checksum."""
    metadata: Any = json.loads((path / METADATA).read_text(encoding="utf-8"))
    # The first checkpoints of version 0.1 have no checksum.
    if not isinstance(metadata, dict) or metadata.pop(_CHECKSUM, _checksum(metadata)) != _checksum(metadata):
        raise ValueError(f"{METADATA} changed since it was written")
    return metadata


def load_tensors(path: Path, tensors: dict[str, Tensor], group: WorkerGroup) -> None:
    """Load a checkpoint into tensors, in place; each of them must be in the checkpoint."""
    with _plain_errors():
        reader = HuggingFaceStorageReader(str(path))
        state_dict_loader.load(tensors, storage_reader=reader, no_dist=group.world_size == 1)


def tensor_names(path: Path) -> set[str]:
    """Return the names of the tensors in a checkpoint."""
    return set(HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata)


def _find_damage(path: Path) -> str | None:
    """Return a message if a checkpoint is damaged, else None."""
    try:
        files = read_metadata(path)["files"]
        changed = [name for name, expected in files.items() if size_and_checksum(path / name) != expected]
    except (OSError, ValueError, KeyError) as error:
        return f"{path} is damaged ({error})"
    return f"{path} is damaged ({', '.join(changed)} changed since it was written)" if changed else None


def _write_metadata(path: Path, metadata: dict[str, Any]) -> None:
    """Write the metadata of a checkpoint with their checksum."""
    encoded = json.dumps({**metadata, _CHECKSUM: _checksum(metadata)}, indent=2).encode()
    write_atomically(path / METADATA, encoded)


def _checksum(metadata: object) -> int:
    """Return a checksum of metadata that does not depend on their formatting."""
    return zlib.crc32(json.dumps(metadata, sort_keys=True).encode())


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise the system's own error instead of torch's collection of errors; silence a warning of torch."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except CheckpointException as error:
        causes = [failure[0] for failure in error.failures.values()]
        system_errors = [cause for cause in causes if isinstance(cause, OSError)]
        raise (system_errors or causes)[0] from error
