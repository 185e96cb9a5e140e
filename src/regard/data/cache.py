"""The cache folder: atomic folders, file locks between processes, and hashes of file contents.

An entry of the cache is a folder named by its fingerprint. It is written to a scratch folder beside it, which is then
renamed. So an entry is complete or absent, even if a process is killed.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.files import fsync_path, write_atomically

_SCRATCH = ".building-"
_CLOCK_STEP = 2_000_000_000  # nanoseconds: the coarsest step of modification times, that of FAT
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}


class CacheWriteError(OSError):
    """The disk of the cache is full, or the cache may not be written to."""


def cache_folder() -> Path:
    """Return `$REGARD_CACHE`, else `regard` in `$XDG_CACHE_HOME`, else `~/.cache/regard`."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "regard"
    return Path.home() / ".cache" / "regard"


@contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is created for it and removed afterwards; yield whether the lock is held.

    It is not held if the file system has no locks or, without `wait`, if another process holds it. The operating
    system releases the lock of a process that dies.
    """
    descriptor = _acquire(path, wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            # Removed while the lock is held: a process that waits for this file sees that it is gone and creates it.
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _acquire(path: Path, wait: bool) -> int | None:
    """Return the descriptor of the locked file, or None."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except OSError as error:
            if error.errno not in _NO_LOCKS | {errno.EAGAIN}:
                raise
            os.close(descriptor)
            return None
        os.close(descriptor)


@contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Hold the lock under which an entry of the cache is built; remove what killed processes have left beside it."""
    with explain_write_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
        with file_lock(_lock_path(folder)):
            yield


def _lock_path(folder: Path) -> Path:
    """Return the file whose lock is held while `folder` is built."""
    return folder.with_name(f"{folder.name}.lock")


def _remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders of processes that have died: those whose lock is free."""
    for scratch in parent.glob(f"*{_SCRATCH}*"):
        folder = parent / scratch.name.partition(_SCRATCH)[0]
        with file_lock(_lock_path(folder), wait=False) as held:
            if held:
                shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new scratch folder, which becomes `folder` at the end of the block, or is removed after an exception.

    Without locks two processes may build the same folder at once. The first to finish creates it; the work of the other
    is discarded.
    """
    scratch = folder.with_name(f"{folder.name}{_SCRATCH}{secrets.token_hex(4)}")
    try:
        with explain_write_errors(scratch):
            scratch.mkdir(parents=True)
            yield scratch
            fsync_path(scratch)
            try:
                scratch.rename(folder)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            fsync_path(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def explain_write_errors(folder: Path) -> Iterator[None]:
    """Turn the error of a full or read-only disk into one that says what was written and what to do."""
    try:
        yield
    except CacheWriteError:
        raise
    except OSError as error:
        remedy = "set REGARD_CACHE to a folder on another disk"
        if error.errno in _NOT_PERMITTED:
            raise CacheWriteError(error.errno, f"{error.strerror}: cannot write in {folder}; {remedy}") from error
        if error.errno not in _DISK_FULL:
            raise
        written = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
        progress = f"stopped after {written / 1e6:,.1f} MB in {folder}, which are removed"
        raise CacheWriteError(error.errno, f"{error.strerror}: {progress}; free some space, or {remedy}") from error


def file_digest(path: Path, cache: Path) -> str:
    """Return a hash of the contents of a file; it is cached, so that an unchanged file is not read again."""
    real = path.resolve()
    entry = cache / "contents" / f"{hashlib.blake2b(os.fsencode(real), digest_size=16).hexdigest()}.json"
    with real.open("rb") as file:
        state = _file_state(file.fileno())
        cached = _cached_digest(entry, state)
        if cached is not None:
            return cached
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()
        # A file changed a moment ago may change again without a later date; such a digest is not cached.
        if _file_state(file.fileno()) == state and time.time_ns() - max(state[1], state[2]) > _CLOCK_STEP:
            with suppress(OSError):  # a read-only cache may still contain what is needed
                write_atomically(entry, json.dumps({"path": str(real), "state": state, "digest": digest}).encode())
    return digest


def files_digest(paths: Sequence[Path], cache: Path) -> str:
    """Return a hash of the contents of many files, such as pictures; one entry of the cache keeps it for all."""
    real = [path.resolve() for path in paths]
    name = hashlib.blake2b(b"\0".join(map(os.fsencode, real)), digest_size=16).hexdigest()
    entry = cache / "contents" / f"{name}.json"
    states = [_file_state(path) for path in real]
    state = hashlib.blake2b(json.dumps(states).encode(), digest_size=16).hexdigest()
    cached = _cached_digest(entry, state)
    if cached is not None:
        return cached
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="digest") as pool:
        digests = pool.map(lambda path: hashlib.blake2b(path.read_bytes(), digest_size=20).digest(), real)
        digest = hashlib.blake2b(b"".join(digests), digest_size=20).hexdigest()
    newest = max((max(changed[1], changed[2]) for changed in states), default=0)
    if [_file_state(path) for path in real] == states and time.time_ns() - newest > _CLOCK_STEP:
        with suppress(OSError):
            write_atomically(entry, json.dumps({"files": len(real), "state": state, "digest": digest}).encode())
    return digest


def _file_state(file: int | Path) -> list[int]:
    """Return what differs after a file has been changed or replaced: size, dates, inode and device."""
    state = os.stat(file)  # noqa: PTH116
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]


def _cached_digest(entry: Path, state: list[int] | str) -> str | None:
    """Return the digest that was cached for exactly this state of a file, or of files."""
    try:
        cached = json.loads(entry.read_bytes())
        return str(cached["digest"]) if cached["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
