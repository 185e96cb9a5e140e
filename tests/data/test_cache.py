"""The cache folder: where it is, atomic folders, locks between processes, and hashes of file contents."""

import errno
import json
import os
import resource
from pathlib import Path

import pytest

from regard.data.cache import (
    CacheWriteError,
    atomic_folder,
    build_lock,
    cache_folder,
    explain_write_errors,
    file_digest,
    file_lock,
)
from regard.files import write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "regard"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/regard")
    monkeypatch.setenv("REGARD_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "mine"


def test_a_lock_is_held_once_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with file_lock(path) as first:
        assert first
        with file_lock(path, wait=False) as second:
            assert not second
        assert path.exists()
    assert not path.exists()
    with file_lock(path, wait=False) as third:
        assert third


def test_a_folder_exists_only_once_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "thing"
    with atomic_folder(folder) as scratch:
        (scratch / "part").write_text("whole")
        assert not folder.exists()
    assert (folder / "part").read_text() == "whole"
    assert names(tmp_path) == ["thing"]


def test_of_two_builds_at_once_the_first_to_finish_counts(tmp_path: Path) -> None:
    folder = tmp_path / "thing"
    with atomic_folder(folder) as slow:
        (slow / "part").write_text("slow")
        with atomic_folder(folder) as fast:
            (fast / "part").write_text("fast")
    assert (folder / "part").read_text() == "fast"
    assert names(tmp_path) == ["thing"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic_folder(tmp_path / "thing") as scratch:
            (scratch / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_build_removes_the_remains_of_dead_processes_and_nothing_else(tmp_path: Path) -> None:
    with build_lock(tmp_path / "alive"):
        for name in ("dead.building-1", "dead.building-2", "alive.building-3", "finished"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "part").touch()
        with build_lock(tmp_path / "other"):
            assert names(tmp_path) == ["alive.building-3", "alive.lock", "finished", "other.lock"]
    assert names(tmp_path) == ["alive.building-3", "finished"]


def test_the_error_of_a_full_disk_says_what_was_written_and_what_to_do(tmp_path: Path) -> None:
    def fill_up() -> None:
        with explain_write_errors(tmp_path):
            (tmp_path / "part").write_bytes(bytes(1_500_000))
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CacheWriteError, match=r"stopped after 1\.5 MB in .*REGARD_CACHE") as caught:
        fill_up()
    assert caught.value.errno == errno.ENOSPC


def test_the_error_of_a_read_only_folder_says_what_to_do(tmp_path: Path) -> None:
    def write() -> None:
        with explain_write_errors(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(CacheWriteError, match=rf"cannot write in {tmp_path}; set REGARD_CACHE"):
        write()


def test_other_errors_are_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), explain_write_errors(tmp_path):
        (tmp_path / "nothing").read_bytes()


def test_a_file_that_cannot_be_written_completely_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_atomically(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(path, bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["note"]


def test_a_digest_depends_only_on_the_contents(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("text")
    two.write_text("text")
    before = file_digest(one, tmp_path / "cache")
    assert file_digest(two, tmp_path / "cache") == before
    os.utime(one, (1, 1))
    assert file_digest(one, tmp_path / "cache") == before
    one.write_text("TEXT")
    os.utime(one, (1, 1))  # same size and date, other contents
    assert file_digest(one, tmp_path / "cache") != before


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    old = Path(os.__file__)  # a file of the standard library, which was not changed just now
    digest = file_digest(old, tmp_path)
    [entry] = (tmp_path / "contents").iterdir()
    written = json.loads(entry.read_bytes())
    assert written["digest"] == digest
    entry.write_text(json.dumps(written | {"digest": "remembered"}))
    assert file_digest(old, tmp_path) == "remembered"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"\xff", b'{"state": [1], "digest": "x"}'])
def test_a_damaged_cache_entry_is_ignored(tmp_path: Path, damage: bytes) -> None:
    old = Path(os.__file__)
    digest = file_digest(old, tmp_path)
    [entry] = (tmp_path / "contents").iterdir()
    entry.write_bytes(damage)
    assert file_digest(old, tmp_path) == digest


def test_the_digest_of_a_file_changed_just_now_is_not_cached(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.write_text("text")
    file_digest(fresh, tmp_path)
    assert not (tmp_path / "contents").exists()
