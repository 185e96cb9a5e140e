"""The cache: where it is, who may build in it, and that a file's contents are known without reading it twice."""

import errno
import json
import os
import resource
from pathlib import Path

import pytest

from regard.data.cache import (
    NoRoomError,
    building,
    cache_folder,
    contents_digest,
    lock_of,
    locked,
    room_in,
    sweep,
)
from regard.files import write_whole


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


def test_a_lock_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path) as first:
        assert first
        with locked(path, wait=False) as second:
            assert not second
        assert path.exists()
    assert not path.exists()
    with locked(path, wait=False) as third:
        assert third


def test_a_folder_is_there_only_once_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "thing"
    with building(folder) as scratch:
        (scratch / "part").write_text("whole")
        assert not folder.exists()
    assert (folder / "part").read_text() == "whole"
    assert names(tmp_path) == ["thing"]


def test_of_two_who_build_at_once_the_first_to_finish_wins(tmp_path: Path) -> None:
    folder = tmp_path / "thing"
    with building(folder) as slow:
        (slow / "part").write_text("slow")
        with building(folder) as quick:
            (quick / "part").write_text("quick")
    assert (folder / "part").read_text() == "quick"
    assert names(tmp_path) == ["thing"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with building(tmp_path / "thing") as scratch:
            (scratch / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_sweeping_removes_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    for name in ("dead.building-1", "dead.building-2", "alive.building-3", "finished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").touch()
    with locked(lock_of(tmp_path / "alive")):
        sweep(tmp_path)
        assert names(tmp_path) == ["alive.building-3", "alive.lock", "finished"]


def test_a_full_disk_is_told_with_what_was_written_and_the_remedy(tmp_path: Path) -> None:
    def fill_up() -> None:
        with room_in(tmp_path):
            (tmp_path / "part").write_bytes(bytes(1_500_000))
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NoRoomError, match=r"stopped after 1\.5 MB in .*REGARD_CACHE") as caught:
        fill_up()
    assert caught.value.errno == errno.ENOSPC


def test_a_forbidden_folder_is_told_with_the_remedy(tmp_path: Path) -> None:
    def intrude() -> None:
        with room_in(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(NoRoomError, match=rf"cannot write in {tmp_path}; set REGARD_CACHE"):
        intrude()


def test_other_errors_pass_untouched(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), room_in(tmp_path):
        (tmp_path / "nothing").read_bytes()


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_whole(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(path, bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["note"]


def test_a_digest_follows_the_contents_and_nothing_else(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("text")
    two.write_text("text")
    before = contents_digest(one, tmp_path / "cache")
    assert contents_digest(two, tmp_path / "cache") == before
    os.utime(one, (1, 1))
    assert contents_digest(one, tmp_path / "cache") == before
    one.write_text("TEXT")
    os.utime(one, (1, 1))  # same size, same date: still noticed
    assert contents_digest(one, tmp_path / "cache") != before


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    old = Path(os.__file__)  # a file of the standard library: nobody has changed it just now
    digest = contents_digest(old, tmp_path)
    [note] = (tmp_path / "contents").iterdir()
    written = json.loads(note.read_bytes())
    assert written["digest"] == digest
    note.write_text(json.dumps(written | {"digest": "remembered"}))
    assert contents_digest(old, tmp_path) == "remembered"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"\xff", b'{"state": [1], "digest": "x"}'])
def test_a_damaged_note_is_ignored(tmp_path: Path, damage: bytes) -> None:
    old = Path(os.__file__)
    digest = contents_digest(old, tmp_path)
    [note] = (tmp_path / "contents").iterdir()
    note.write_bytes(damage)
    assert contents_digest(old, tmp_path) == digest


def test_a_file_changed_just_now_is_not_remembered(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.write_text("text")
    contents_digest(fresh, tmp_path)
    assert not (tmp_path / "contents").exists()
