"""Where built things are kept, how two processes keep out of each other's way there, and what a file's contents are.

A thing in the cache is a folder named by its fingerprint. It is built in a folder beside it and renamed into place, so
it is there whole or not at all, whatever is killed when.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.files import settle, write_whole

_BUILDING = ".building-"
_SETTLED = 2_000_000_000  # nanoseconds; file systems date changes no finer than this, the coarsest of them
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}


def cache_folder() -> Path:
    """`$REGARD_CACHE`, else `regard` in `$XDG_CACHE_HOME`, else `~/.cache/regard`."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "regard"
    return Path.home() / ".cache" / "regard"


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file that is made for it and removed after it; true where it is held.

    It is not held where the file system knows no locks or, without `wait`, where somebody else holds it. The system
    frees the lock of a process that dies.
    """
    descriptor = _acquire(path, wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            # Removed while held: whoever waits on this very file notices that it is gone, and makes a new one.
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _acquire(path: Path, wait: bool) -> int | None:
    """The open, locked file, or none."""
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
def building(folder: Path) -> Iterator[Path]:
    """A fresh folder beside `folder` to build in; when all went well it takes that name, else it is removed.

    Without a lock two may build at once. Then the first to finish has made the folder, and the other's work is dropped.
    """
    scratch = folder.with_name(f"{folder.name}{_BUILDING}{secrets.token_hex(4)}")
    try:
        with room_in(scratch):
            scratch.mkdir(parents=True)
            yield scratch
            settle(scratch)
            _rename(scratch, folder)
            settle(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _rename(scratch: Path, folder: Path) -> None:
    """Give a folder its name, unless a folder of that name is there."""
    try:
        scratch.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def lock_of(folder: Path) -> Path:
    """The file whose lock the builder of `folder` holds."""
    return folder.with_name(f"{folder.name}.lock")


def sweep(parent: Path) -> None:
    """Remove what builders that died have left in `parent`: those whose lock nobody holds."""
    for scratch in parent.glob(f"*{_BUILDING}*"):
        folder = parent / scratch.name.partition(_BUILDING)[0]
        with locked(lock_of(folder), wait=False) as held:
            if held:
                shutil.rmtree(scratch, ignore_errors=True)


class NoRoomError(OSError):
    """The disk of the cache is full, or may not be written to."""


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Turn a full or forbidden disk into an error that says how far we got and what can be done."""
    try:
        yield
    except NoRoomError:
        raise
    except OSError as error:
        remedy = "set REGARD_CACHE to a folder on another disk"
        if error.errno in _NO_RIGHT:
            raise NoRoomError(error.errno, f"{error.strerror}: cannot write in {folder}; {remedy}") from error
        if error.errno not in _NO_ROOM:
            raise
        written = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
        progress = f"stopped after {written / 1e6:,.1f} MB in {folder}, removed again"
        raise NoRoomError(error.errno, f"{error.strerror}: {progress}; make room there, or {remedy}") from error


def contents_digest(path: Path, cache: Path) -> str:
    """A hash of what is in a file; remembered in the cache, so an unchanged file is not read again."""
    real = path.resolve()
    note = cache / "contents" / f"{hashlib.blake2b(os.fsencode(real), digest_size=16).hexdigest()}.json"
    with real.open("rb") as file:
        state = _state(file.fileno())
        remembered = _remembered(note, state)
        if remembered is not None:
            return remembered
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()
        # A file changed a moment ago may change again without a later date, and then the note would lie.
        if _state(file.fileno()) == state and time.time_ns() - max(state[1], state[2]) > _SETTLED:
            with suppress(OSError):  # a cache that cannot be written to may still hold what we look for
                write_whole(note, json.dumps({"path": str(real), "state": state, "digest": digest}).encode())
    return digest


def _state(descriptor: int) -> list[int]:
    """What differs when a file has been changed or replaced: size, dates, place on the disk."""
    stat = os.fstat(descriptor)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def _remembered(note: Path, state: list[int]) -> str | None:
    """The digest in a note about just this state of the file."""
    try:
        noted = json.loads(note.read_bytes())
        return str(noted["digest"]) if noted["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
