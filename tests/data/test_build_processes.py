"""Building a store in processes that are killed at any moment, run at the same time, or have a full disk.

Run as a program, this file builds the store of the corpus in a folder: `FOLDER build`, `FOLDER kill N` (is killed at
the N-th call), `FOLDER wait` (starts after a line on standard input) or `FOLDER full BYTES` (no file may be larger).
"""

import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from regard.data.build import build_store
from regard.data.fields import with_tokenizers
from regard.data.store import Store
from regard.recipe import Data, TsvCorpus
from regard.text import Tokenizers

PAIRS = 25_000  # three chunks
MODULES = tuple(f"/regard/data/{name}.py" for name in ("build", "cache", "dedupe", "store"))
CORPUS = TsvCorpus(path="pairs.tsv")


def build(folder: Path) -> tuple[Store, int]:
    """The store of the corpus in a folder, and the number of progress reports."""
    progress: list[int] = []
    fields = with_tokenizers(Tokenizers.load(folder / "tokenizer"))
    data = Data(root=str(folder), train=(CORPUS,))
    store = build_store(
        CORPUS, data, fields, cache=folder / "cache", keep_text=True, progress=progress.append, workers=2
    )
    return store, len(progress)


def counting(strike: Callable[[int], None]) -> None:
    """Number the calls of this thread in the modules that build, of Python and C functions, and report each number."""
    numbers = itertools.count()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event.endswith("call") and frame.f_code.co_filename.endswith(MODULES):
            strike(next(numbers))

    sys.setprofile(count)


def die_at(moment: int) -> None:
    """Kill this process at that call."""
    counting(lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == moment else None)


def start(python: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [python, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and tokenizers."""
    folder = tmp_path_factory.mktemp("made")
    draw = random.Random(7)
    lines = [f"{draw.randrange(9999)} red cats\t{draw.randrange(9)} rote Katzen\n" for _ in range(PAIRS)]
    (folder / "pairs.tsv").write_text("".join(lines))
    pairs = (line.rstrip("\n").split("\t") for line in lines[:1000])
    Tokenizers.learn(((source, target) for source, target in pairs), kind="char", size=300).save(folder / "tokenizer")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The folder with a cache of its own."""
    for name in ("pairs.tsv", "tokenizer"):
        (tmp_path / name).symlink_to(made / name)
    return tmp_path


def contents(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


def stores(folder: Path) -> list[Path]:
    """Everything in the folder of stores."""
    return sorted((folder / "cache" / "store").glob("*"))


def test_killed_at_random_moments_a_store_is_complete_or_absent(python: str, folder: Path) -> None:
    moments: list[int] = []
    counting(moments.append)
    try:
        reference, _ = build(folder)
    finally:
        sys.setprofile(None)
    whole = contents(reference)
    draw = random.Random(11)
    killed = 0
    # The last calls, in which the store gets its name, are chosen as often as all the others.
    for moment in [draw.choice(moments) for _ in range(4)] + [draw.choice(moments[-40:]) for _ in range(4)]:
        shutil.rmtree(reference.folder, ignore_errors=True)
        with start(python, folder, "kill", moment) as process:
            status = process.wait()
        assert status in (0, -signal.SIGKILL)
        killed += status != 0
        if reference.folder.exists():
            assert contents(Store.open(reference.folder)) == whole
    assert killed > 4
    assert contents(build(folder)[0]) == whole
    assert stores(folder) == [reference.folder]


def test_two_processes_at_once_make_one_store(python: str, folder: Path) -> None:
    with start(python, folder, "wait") as one, start(python, folder, "wait") as two:
        assert one.stdout
        assert two.stdout
        assert [process.stdout.readline() for process in (one, two) if process.stdout] == ["ready\n"] * 2
        for process in (one, two):
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.close()
        answers = [process.stdout.read().split() for process in (one, two) if process.stdout]
    assert [one.returncode, two.returncode] == [0, 0]
    assert answers[0][0] == answers[1][0]
    # The second process waits for the first and then finds its store.
    assert [int(answer[1]) > 0 for answer in answers].count(True) == 1
    assert stores(folder) == [Path(answers[0][0])]
    store, reports = build(folder)
    assert reports == 0
    assert store.report.read == PAIRS


@pytest.mark.parametrize("limit", [0, 1000, 300_000])
def test_a_full_disk_is_an_error_with_a_remedy_and_leaves_nothing(python: str, folder: Path, limit: int) -> None:
    with start(python, folder, "full", limit) as process:
        output, _ = process.communicate()
    assert "stopped after" in output
    assert "REGARD_CACHE" in output
    assert str(folder / "cache" / "store") in output
    assert stores(folder) == []
    assert build(folder)[0].report.read == PAIRS


def main() -> None:
    """Build as the arguments say."""
    folder = Path(sys.argv[1])
    match sys.argv[2:]:
        case ["kill", call]:
            die_at(int(call))
        case ["wait"]:
            print("ready", flush=True)
            sys.stdin.readline()
        case ["full", size]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    try:
        store, reports = build(folder)
    except OSError as error:
        print(error)
    else:
        print(store.folder, reports)


if __name__ == "__main__":
    main()
